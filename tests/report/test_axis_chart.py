import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.text import Text

from pairbench.errors import SelectionError
from pairbench.model.record import Record
from pairbench.report import units
from pairbench.report.axis_chart import axis_chart, chart_rows, crossover_sentences
from pairbench.report.figures import PAPER_WIDTH, axis_bytes, draw_axis
from pairbench.report.rows import html_table
from tests.builders import DEVICE, ended, make_run


def records(*cases: Mapping[str, Any]) -> list[Record]:
    """Return a baseline that takes n/10 us and a variant that takes 50 us + n/20: they cross at n = 1000."""
    found = []
    for axes in cases:
        key = f"norm[{','.join(f'{name}={value}' for name, value in sorted(axes.items()))}]"
        slower = {"baseline": axes.get("n", 1) / 2000, "fused": 0.5 + axes.get("n", 1) / 2000}
        found += [replace(row, axes=json.dumps(axes)) for row in make_run(cases=[key], slower=slower, cv=1e-6)]
    return found


SIZES = [{"n": n} for n in (256, 512, 2048, 4096)]


def test_a_line_an_implementation() -> None:
    chart = axis_chart(records(*SIZES))
    (panel,) = chart.panels
    assert (chart.x, chart.quantity, chart.log_x, chart.log_y) == ("n", "p50_us", True, True)
    assert [line.name for line in panel.lines] == ["baseline", "fused"]
    assert [point.x for point in panel.lines[0].points] == [256, 512, 2048, 4096]
    assert panel.lines[0].points[2].y == pytest.approx(204.8, rel=1e-3)
    assert panel.lines[0].points[2].low <= panel.lines[0].points[2].y <= panel.lines[0].points[2].high


def test_where_a_variant_and_its_baseline_cross() -> None:
    chart = axis_chart(records(*SIZES), "n")
    (crossing,) = chart.panels[0].crossovers
    assert crossing.name == "fused" and crossing.faster_above
    assert crossing.x == pytest.approx(1000, rel=0.15)  # straight in logarithms, which the curves are not
    assert crossover_sentences(chart) == [
        f"fused overtakes the baseline at n of about {units.significant(crossing.x, 3)}"
    ]
    assert not axis_chart(records(*SIZES[2:]), "n").panels[0].crossovers


def test_axes_that_go_along_are_one_and_others_are_panels() -> None:
    together = records(*({"m": n, "k": 2 * n, "n": n, "dtype": d} for n in (256, 512) for d in ("float32", "bfloat16")))
    chart = axis_chart(together, "m")
    assert [panel.title for panel in chart.panels] == ["dtype=float32", "dtype=bfloat16"]
    assert all(len(line.points) == 2 for panel in chart.panels for line in panel.lines)
    words = axis_chart(together, "dtype")
    assert set(words.words) == {"bfloat16", "float32"} and len(words.panels) == 2


def test_cases_that_differ_in_another_axis_are_not_of_one_line() -> None:
    cases = [{"n": n, "tokens": tokens} for n, tokens in ((256, 4096), (512, 64), (1024, 4096), (2048, 64))]
    chart = axis_chart(records(*cases), "n")
    assert {panel.title: [point.x for point in panel.lines[0].points] for panel in chart.panels} == {
        "tokens=4096": [256, 1024],
        "tokens=64": [512, 2048],
    }


def test_cases_without_the_axis_are_left_out() -> None:
    (panel,) = axis_chart(records(*SIZES[:2], {"m": 8}), "n").panels
    assert [point.x for point in panel.lines[0].points] == [256, 512]


def test_device_dtype_and_mode_are_named_once() -> None:
    cases = [{"n": n, "dtype": dtype} for n in (256, 512) for dtype in ("float32", "bfloat16")]
    rows = [replace(one, dtype=json.loads(str(one.axes))["dtype"]) for one in records(*cases)]
    chart = axis_chart(rows, "n")
    assert chart.title == f"norm ({DEVICE}, eager)"
    assert [panel.title for panel in chart.panels] == ["dtype=float32", "dtype=bfloat16"]
    alone = axis_chart([one for one in rows if one.dtype == "float32"], "n")
    assert (alone.title, alone.panels[0].title) == (f"norm ({DEVICE}, float32, eager)", "")
    both = axis_chart([replace(one, mode=mode) for one in rows for mode in ("eager", "graph")], "n")
    assert both.title == f"norm ({DEVICE})" and both.names[:2] == ("baseline (eager)", "baseline (graph)")


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ((256, 4096, 16384), ["256", "4096", "16384"]),
        ((64, 4096, 2**20), ["64", "4Ki", "1Mi"]),
        ((64, 4096, 10**6), ["64", "4096", "1000000"]),
        ((2**10, 2**19 - 2**10, 2**19), ["1Ki", "", "512Ki"]),
    ],
)
def test_ticks_are_the_sizes_in_one_notation(sizes: tuple[int, ...], shown: list[str]) -> None:
    figure = draw_axis(axis_chart(records(*({"n": n} for n in sizes)), "n"))
    axes = figure.axes[0]
    assert [*axes.get_xticks()] == [*sizes]
    assert [label.get_text() for label in axes.get_xticklabels()] == shown


def test_every_panel_has_its_labels() -> None:
    figure = draw_axis(axis_chart(records(*({"n": n, "m": m} for n in (1, 2) for m in range(4))), "n"))
    for axes in figure.axes[:4]:
        assert axes.get_xlabel() == "n" and all(label.get_visible() for label in axes.get_xticklabels())


def test_a_paper_has_a_column_of_small_letters_and_no_label_is_cut() -> None:
    cases = [
        {"n": 2**n, "m": m, "layout": "channels_last_3d", "kind": kind}
        for n in range(4, 21, 2)
        for m in (1, 2**20)
        for kind in ("causal_chunked", "plain")
    ]
    names = {"baseline": "a_baseline_with_a_long_name", "fused": "\u6e2c\u5b9a"}
    rows = [replace(one, implementation=names[str(one.implementation)]) for one in records(*cases)]
    chart = axis_chart(rows, "n")
    figure = draw_axis(chart, paper=True)
    assert figure.get_figwidth() == PAPER_WIDTH
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert {text.get_fontsize() for text in texts} == {8}
    figure.draw_without_rendering()
    for box in (text.get_window_extent() for text in texts):
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    svg = axis_bytes(chart, ".svg", paper=True)
    assert b"<text" in svg and all(name.encode() in svg for name in names.values())


def test_speedup_and_rates() -> None:
    rows = [replace(one, bytes_moved=1e6, flops=2e6) for one in records(*SIZES)]
    by_name = {y: axis_chart(rows, "n", y).panels[0].lines for y in ("speedup", "gbps", "tflops", "call_p50_us")}
    baseline, fused = by_name["speedup"]
    assert {point.y for point in baseline.points} == {1.0} and fused.points[-1].y > 1
    call = by_name["call_p50_us"][1].points[0].y
    assert by_name["gbps"][1].points[0].y == pytest.approx(1e6 / (call * 1e3))
    assert by_name["tflops"][1].points[0].y == pytest.approx(2e6 / (call * 1e3) / 1e3)


def test_what_was_not_measured_is_a_gap() -> None:
    rows = [
        ended(one, "failed") if one.implementation == "fused" and "n=512" in str(one.case) else one
        for one in records(*SIZES)
    ]
    chart = axis_chart(rows)
    assert [point.x for point in chart.panels[0].lines[1].points] == [256, 2048, 4096]
    assert chart_rows(chart)[1] == {"n": 512, "baseline": pytest.approx(51.2, rel=1e-3), "fused": None}


ONE_EACH = [{"n": 1, "m": 1}, {"n": 1, "m": 2}, {"n": 2, "m": 1}]


@pytest.mark.parametrize(
    ("cases", "arguments", "sentence"),
    [
        (SIZES, ("m",), "x='m' is no axis of these cases, expected one of n"),
        (SIZES, ("n", "latency"), "y='latency' is unknown, expected one of p50_us, device_p50_us"),
        (SIZES, ("n", "gbps"), "y='gbps' has no value in these records: the operator declares no cost="),
        ([{"n": 1, "t": 2}, {"n": 2, "t": 1}], ("n",), "no two of these cases differ in 'n' alone"),
        (ONE_EACH, (), "several vary: x='n', or one of n, m"),
        ([{"n": n, "m": m} for n in (1, 2) for m in range(13)], ("n",), "13 panels, expected 12 at most; select fewer"),
    ],
)
def test_what_cannot_be_drawn_is_said(cases: list[dict[str, int]], arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(SelectionError, match=sentence):
        axis_chart(records(*cases), *arguments)


def test_where_nothing_was_measured_there_is_no_chart() -> None:
    with pytest.raises(SelectionError, match="nothing was measured"):
        axis_chart([ended(one, "failed") for one in records(*SIZES)])


def test_pictures_are_the_same_each_time_and_hold_no_markup_of_names() -> None:
    rows = [replace(one, implementation="<b>" if one.role == "variant" else "baseline") for one in records(*SIZES)]
    chart = axis_chart(rows)
    for suffix, begin in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!DOCTYPE html>")):
        content = axis_bytes(chart, suffix)
        assert content.startswith(begin) and content == axis_bytes(chart, suffix)
        assert suffix == ".png" or b"<b>" not in content
    pdf = axis_bytes(chart, ".pdf", paper=True)
    assert pdf.startswith(b"%PDF") and b"/FontFile2" in pdf and pdf == axis_bytes(chart, ".pdf", paper=True)
    assert f"/MediaBox [ 0 0 {72 * PAPER_WIDTH:g}".encode() in pdf
    assert draw_axis(chart)._repr_png_().startswith(b"\x89PNG")
    assert "<b>" not in html_table(rows).replace("<p><b>", "").replace("</b></p>", "")
