import math
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.record import Record, Series
from pairbench.report.figures import COLORS, MARKERS, look_of, to_bytes, trend_figure
from pairbench.report.trend import series_chart
from tests.builders import CASES, DEVICE, SUITE, ended, make_run
from tests.report.site import made

CASE = CASES[0]
FUSED = Series(device_name=DEVICE, suite=SUITE, case=CASE, implementation="fused", mode="eager")
SVG = "{http://www.w3.org/2000/svg}"


def make(number: int, *, vary: Callable[[int, Record], Record] = lambda _, record: record, **series: Any) -> Trend:
    """Return the trend of a run a day whose variant is 5 % slower from the tenth on."""
    records = [
        vary(day, record)
        for day in range(number)
        for record in make_run(24 * day, cases=[CASE], slower={"fused": 1.05} if day >= 10 else {})
    ]
    return make_trend(records, replace(FUSED, **series))


def eventful(day: int, record: Record) -> Record:
    if day >= 20:
        record = replace(record, driver="580.2", environment_hash="g")
    if day >= 30:
        record = replace(record, definition_hash="new")
    return ended(record, "failed", "died") if day in (3, 4) else record


@pytest.fixture(scope="module")
def trend() -> Trend:
    return make(40, vary=eventful)


def lines_of(figure: Any, gid: str) -> list[Any]:
    # The lines of an error bar have its name, too; the points are a plain line.
    return [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]


def words_of(figure: Any) -> list[str]:
    texts = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [str(text.get_text()) for text in texts if text.get_text()]


def test_the_picture_shows_what_the_chart_has(trend: Trend) -> None:
    figure, values = trend_figure(trend), series_chart(trend)
    assert len(figure.axes) == 3
    (drawn,) = lines_of(figure, "p50")
    assert [value for value in drawn.get_ydata() if not math.isnan(value)] == [
        value for value in values.lines["p50"] if not math.isnan(value)
    ]
    (speedup,) = lines_of(figure, "speedup")
    assert len(speedup.get_ydata()) == 40
    (control,) = lines_of(figure, "control")
    assert len(control.get_ydata()) == 40
    levels = [tuple(line.get_ydata()) for line in lines_of(figure, "level")]
    assert levels == [(step.value,) * 2 for step in (*values.levels, *values.speedup_levels)]
    for kind, at in (("code", 9.5), ("era", 19.5), ("definition", 29.5)):
        assert [line.get_xdata()[0] for line in lines_of(figure, kind)] == [at] * 3
    assert [line.get_xdata()[0] for line in lines_of(figure, "gap")] == [3, 4]
    words = words_of(figure)
    assert values.title in words and "driver 580.1 -> 580.2" in words and "speedup (x)" in words
    assert "latency of a call (us)" in words and "run without a value" in words


def test_a_long_history_has_few_labels_and_an_environment_that_changes_with_every_run_is_not_spelt_out() -> None:
    def vary(day: int, record: Record) -> Record:
        return replace(record, driver=str(day % 2), environment_hash=str(day % 2))

    trend = make(60, vary=vary)
    values = series_chart(trend)
    assert [mark.label for mark in values.marks if mark.kind == "era"] == [""] * 59
    assert len(values.ticks) <= 12 and values.ticks[-1][0] == 59
    assert len(trend_figure(trend).axes[-1].get_xticks()) == len(values.ticks)


def test_a_wide_range_is_logarithmic() -> None:
    def vary(day: int, record: Record) -> Record:
        factor = 10 if day >= 6 else 1
        return replace(record, call_p50_ns=(record.call_p50_ns or 0) * factor, call_p50_ns_low=None)

    figure = trend_figure(trend := make(12, vary=vary))
    assert series_chart(trend).log and figure.axes[0].get_yscale() == "log"
    assert to_bytes(figure, ".svg")


def test_forty_two_implementations_look_different() -> None:
    names = [*map(str, range(42))]
    looks = {tuple(look_of(name, names).values()) for name in names}
    assert len(looks) == len(COLORS) * len(MARKERS) == 42


def test_the_chart_is_plain_values(trend: Trend) -> None:
    found = series_chart(trend)
    assert (found.unit, found.log, found.control_name) == ("us", False, "baseline")
    assert {len(line) for line in found.lines.values()} == {40}
    p50, control = found.lines["p50"], found.lines["control"]
    assert [place for place, value in enumerate(p50) if math.isnan(value)] == [3, 4]
    assert p50[0] == pytest.approx(100, rel=0.01) and control[0] == pytest.approx(200, rel=0.01)
    assert [(step.start, step.stop) for step in found.levels] == [(0, 2), (5, 9), (10, 19), (20, 29), (30, 39)]
    assert [round(step.value / 100, 2) for step in found.levels] == [1.0, 1.0, 1.05, 1.05, 1.05]
    assert [(step.start, step.stop) for step in found.speedup_levels][:2] == [(0, 2), (5, 9)], "none where it failed"
    marks = {(mark.at, mark.kind): mark.label for mark in found.marks}
    assert marks[10, "code"].endswith("% code") and marks[20, "era"] == "driver 580.1 -> 580.2"
    assert (30, "definition") in marks and marks[3, "gap"] == "failed"
    assert "2 without a value" in found.subtitle


@pytest.mark.parametrize(("kind", "axis"), [("cuda", "latency on the device"), ("cpu", "latency of a call")])
def test_the_lines_are_of_the_result(kind: str, axis: str) -> None:
    def filled(record: Record) -> Record:
        one = replace(record, device_kind=kind, device_p50_ns=2e4, device_p95_ns=2.2e4)
        return replace(one, device_speedup_low=1.1, device_speedup_high=1.4, speedup_low=1.9, speedup_high=2.1)

    values = series_chart(make_trend([filled(record) for day in range(3) for record in make_run(day)], FUSED))
    record = make_run(2)[1]
    assert values.latency == axis and values.unit == "us"
    assert values.lines["p95"][-1] == pytest.approx(22.0 if kind == "cuda" else (record.call_p95_ns or 0) / 1e3)
    assert (values.lines["speedup_low"][-1], values.lines["speedup_high"][-1]) == (
        (1.1, 1.4) if kind == "cuda" else (1.9, 2.1)
    )


def picture(name: str = "") -> Figure:
    """Return the picture of a trend, all names in it being this one where one is given."""

    def vary(day: int, record: Record) -> Record:
        return replace(record, driver=f"{name}{day // 8}", environment_hash=str(day // 8), commit=name or "c" * 40)

    return trend_figure(make(10, vary=vary, suite=name or SUITE, device_name=name or DEVICE))


def test_equal_values_are_equal_files_an_svg_is_text_without_a_date_and_a_png_has_its_size() -> None:
    first, second = ({end: to_bytes(picture(), end) for end in (".svg", ".png")} for _ in "ab")
    assert first == second
    root = ET.fromstring(first[".svg"])
    assert root.tag == f"{SVG}svg" and b"<dc:date>" not in first[".svg"]
    assert "level" in " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    assert struct.unpack(">II", first[".png"][16:24]) == (1500, 1050)


@pytest.mark.parametrize("name", ["$x_1$ \\frac{ 測定 \U0001f600 a\x00b\x1b[2J\ud800", *made.HOSTILE])
def test_hostile_names_are_only_text(name: str) -> None:
    svg = to_bytes(picture(name), ".svg")
    assert ET.fromstring(svg).find(f".//{SVG}script") is None and len(svg) < 500_000
    if name == made.HOSTILE[-1]:  # so long that it would make a picture of a size that cannot be
        assert len(to_bytes(picture(name), ".png")) < 500_000


def test_little_or_nothing_is_drawn_too() -> None:
    for number, implementation in ((0, "fused"), (1, "fused"), (2, "baseline"), (1, "none such")):
        figure = trend_figure(make(number, implementation=implementation))
        assert to_bytes(figure, ".svg").startswith(b"<?xml")
    with pytest.raises(ValueError, match=r"'.gif' is unknown, expected one of .svg, .png, .pdf"):
        to_bytes(figure, ".gif")
