"""Pictures of speedups and rooflines: what is in them, not which pixels."""

import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from pairbench.model.site import SeriesFacts
from pairbench.report.figures import (
    COLORS,
    MARKERS,
    SUFFIXES,
    color_of,
    marker_of,
    roofline_figure,
    speedup_figure,
    to_bytes,
)
from pairbench.report.operator_charts import roofline_chart, speedup_chart
from tests import builders
from tests.report.site import made

CEILINGS = {"copy_gbps": 4000.0, "bfloat16_tflops": 800.0}
SVG = "{http://www.w3.org/2000/svg}"


def variant(name: str, level: float, reach: float = 0.01, case: str = made.CASE) -> SeriesFacts:
    facts = made.series_facts(made.series(case, name), level=level)
    speedup = 2e5 / level
    ends = {"speedup_low": speedup * (1 - reach), "speedup_high": speedup * (1 + reach)}
    return replace(facts, numbers={**facts.numbers, **ends})


def series() -> list[SeriesFacts]:
    """Return a baseline, a variant each that is faster, slower and neither, and one that failed."""
    return [
        made.series_facts(made.series(implementation="baseline"), level=2e5),
        variant("fused", 1e5),
        variant("slow", 4e5),
        variant("same", 1.99e5, reach=0.2),
        made.failed(made.series(implementation="broken")),
    ]


def by_name(figure: Any, gid: str) -> list[Any]:
    return [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]


def words_of(figure: Any) -> list[str]:
    texts = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [str(text.get_text()) for text in texts if text.get_text()]


def test_the_picture_of_speedups_shows_what_the_chart_has() -> None:
    figure, chart = speedup_figure(series()), speedup_chart(series())
    for state in ("faster", "slower", "open"):
        (point,) = [point for point in chart.points if point.state == state]
        (drawn,) = by_name(figure, state)
        assert (drawn.get_xdata()[0], drawn.get_ydata()[0]) == (point.speedup, point.row)
    assert len({drawn.get_marker() for state in ("faster", "slower", "open") for drawn in by_name(figure, state)}) == 3
    assert [tuple(line.get_xdata()) for line in by_name(figure, "interval")] == [
        (point.low, point.high) for point in chart.points if point.state != "none"
    ]
    assert [line.get_xdata()[0] for line in by_name(figure, "one")] == [1]
    words = words_of(figure)
    assert {chart.title, chart.subtitle, *chart.groups, *chart.variants, "failed"} <= {*words}
    assert "slower than the baseline" in words and "not proven either way" in words


def test_the_picture_of_a_roofline_shows_what_the_chart_has() -> None:
    figure, chart = roofline_figure(series(), CEILINGS), roofline_chart(series(), CEILINGS)
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in by_name(figure, "point")] == [
        (point.intensity, point.tflops) for point in chart.points
    ]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in by_name(figure, "roof")] == [
        (*roof.x, *roof.y) for roof in chart.roofs
    ]
    (axes,) = figure.axes
    assert (axes.get_xlim(), axes.get_ylim(), axes.get_xscale(), axes.get_yscale()) == (chart.x, chart.y, "log", "log")
    words = words_of(figure)
    assert {"copy 4000 GB/s", "bfloat16 800.0 TFLOP/s", "baseline", "fused"} <= {*words} and "broken" not in words


def test_an_implementation_looks_the_same_in_every_picture() -> None:
    """A variant that lacks in one chart shifts no colour there."""
    broken, rest = series()[-1], [replace(one, numbers={"p50_ns": 1.0}) for one in series()[1:2]]
    given = [broken, *rest, *series()[2:4]]
    variants = speedup_chart(given).variants
    assert roofline_chart(given, CEILINGS).implementations == variants
    looks = {
        (color_of(str(at), [*map(str, range(42))]), marker_of(str(at), [*map(str, range(42))])) for at in range(42)
    }
    assert len(looks) == len(COLORS) * len(MARKERS) == 42


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("make", [speedup_figure, lambda found: roofline_figure(found, CEILINGS)])
def test_equal_values_are_equal_files(make: Any, suffix: str) -> None:
    first, second = (to_bytes(make(series()), suffix) for _ in range(2))
    assert first == second


def test_an_svg_is_text_and_a_png_has_its_size() -> None:
    content = to_bytes(speedup_figure(series()), ".svg")
    words = ["".join(text.itertext()) for text in ET.fromstring(content).iter(f"{SVG}text")]
    assert "fused" in words and b"<dc:date>" not in content
    assert struct.unpack(">II", to_bytes(roofline_figure(series(), CEILINGS), ".png")[16:24]) == (1350, 840)


def test_hundreds_of_pairs_share_rows() -> None:
    cases = [f"op[n={number}]" for number in range(140)]
    found = [
        replace(variant(name, 1e5, case=case), axes={"n": at}) for at, case in enumerate(cases) for name in ("a", "b")
    ]
    figure = speedup_figure(found)
    assert figure.get_size_inches()[1] < 30
    assert {"n=0", "n=139", "a", "b"} <= {*words_of(figure)}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["$x_1$ \\frac{", *made.HOSTILE])
def test_hostile_names_are_only_text(name: str, suffix: str) -> None:
    hostile = made.series(f"{name}[n=1]", name, name, device_name=name, suite=name)
    found = [made.series_facts(hostile, axes={name: name}, dtype=name), made.failed(hostile, status=name)]
    for figure in (speedup_figure(found), roofline_figure(found, {**CEILINGS, f"{name}_tflops": 10.0})):
        content = to_bytes(figure, suffix)
        assert len(content) < 500_000
        if suffix == ".svg":
            assert ET.fromstring(content).find(f".//{SVG}script") is None


@pytest.mark.parametrize(
    "found", [[], [made.failed()], [made.series_facts(made.series(builders.CASES[0], "baseline"))]]
)
def test_little_or_nothing_is_drawn_too(found: list[SeriesFacts]) -> None:
    for figure in (speedup_figure(found), roofline_figure(found, {})):
        assert to_bytes(figure, ".svg").startswith(b"<?xml")
