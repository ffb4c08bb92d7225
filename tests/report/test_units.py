import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.model.site import SeriesFacts
from pairbench.report import units
from pairbench.report.units import WIDTH, case_labels, labels_of
from pairbench.stats import Interval
from tests.report.site import made


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, ""),
        (math.nan, ""),
        (0.0, "0 ns"),
        (0.5, "0.5000 ns"),
        (999.94, "999.9 ns"),
        (999.97, "1.000 us"),
        (12_345.6, "12.35 us"),
        (1_234_567.0, "1.235 ms"),
        (9.9e9, "9.900 s"),
        (3.6e12, "3600 s"),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert units.duration(ns) == text


@given(st.floats(1e-3, 1e13))
def test_duration_is_within_half_its_last_digit(ns: float) -> None:
    number, unit = units.duration(ns).split()
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * scale == pytest.approx(ns, rel=0.5e-3)
    assert unit == "s" or float(number) < 1000


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(None, ""), (0, "0 B"), (1023, "1023 B"), (1536, "1.500 KiB"), (3 * 2**40, "3.000 TiB")]
)
def test_size(n_bytes: float | None, text: str) -> None:
    assert units.size(n_bytes) == text


def test_ratios() -> None:
    texts = {None: "", 0.5: "0.500x", 1.0: "1.000x", 2.0341: "2.034x", 123.45: "123.5x"}
    assert {value: units.ratio(value) for value in texts} == texts
    assert units.ratio_range(0.98, 1.021) == "0.980-1.021"
    assert units.ratio_range(None, 1.0) == ""


def test_spread_is_the_wider_side() -> None:
    assert units.spread(100.0, 99.0, 103.0) == "±3.0%"
    assert units.spread(100.0, 1.0, 1e12) == ">±1000%"
    assert units.spread(100.0, 99.999997, 100.000003) == "±<0.010%", "no clock is that exact"
    assert units.spread(100.0, 100.0, 100.0) == units.spread(1.0, 1.0, 1.0)
    assert units.spread(100.0, None, 103.0) == ""
    assert units.spread(0.0, 0.0, 0.0) == ""
    assert units.spread(100.0, 99.0, math.nan) == ""


def test_counts_and_errors() -> None:
    assert [units.count(value) for value in (None, math.nan, 3, 3.0)] == ["", "", "3", "3"]
    assert [units.error(value) for value in (None, 0.0, 3.14159e-5, math.inf)] == ["", "0", "3.1e-05", "inf"]
    assert [units.percent(value) for value in (None, 0.0021, 0.5, math.inf)] == ["", "0.21%", "50%", ""]
    assert [units.significant(value) for value in (12345.6, 0.00012345, -2.5)] == ["12350", "0.0001234", "-2.500"]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0203, "+2.03%"),
        (0.99999999, "+0.00%"),
        (0.5, "-50.0%"),
        (1.5, "+50.0%"),
        (3.0, "+200%"),
        (12.34, "12.3x"),
        (None, ""),
        (math.nan, ""),
        (math.inf, ""),
    ],
)
def test_changes(ratio: float | None, text: str) -> None:
    assert units.change(ratio) == text


def test_ranges_of_changes_need_both_ends_and_an_axis_has_one_unit() -> None:
    assert units.between(Interval(1.02, 1.018, 1.0225), units.change) == "+1.80% to +2.25%"
    assert units.between(Interval(2, 1.5, 2.5)) == "1.500x to 2.500x" and units.between(None) == ""
    assert units.between(Interval(1, 1.0, math.inf), units.change) == ""
    assert units.scale_of(12_345) == units.scale_of(999.97) == (1e3, "us")


@pytest.mark.parametrize(
    ("consumes", "text"),
    [
        (None, ""),
        (("x",), "overwrites its input x"),
        (("output gradient",), "overwrites the gradients of its outputs"),
        (("output gradient", "a", "b"), "overwrites its inputs a, b and the gradients of its outputs"),
        (
            ("saved tensors", "a", "output gradient"),
            "overwrites its input a, the gradients of its outputs and its saved tensors",
        ),
    ],
)
def test_what_a_call_overwrites_is_named(consumes: tuple[str, ...] | None, text: str) -> None:
    assert units.overwrites(consumes) == text


def facts(axes: Mapping[str, object], operator: str = "op") -> SeriesFacts:
    key = f"{operator}[{','.join(f'{name}={value}' for name, value in sorted(axes.items()))}]"
    return replace(made.series_facts(made.series(key)), axes=axes)


def labels(*cases: Mapping[str, object]) -> list[str]:
    return list(case_labels([facts(axes) for axes in cases]).values())


def test_axes_that_differ_are_named_words_first_and_numbers_in_order_and_of_one_case_all() -> None:
    cases = [{"dtype": "bfloat16", "hidden": 4096, "tokens": tokens} for tokens in (1024, 9, 16384)]
    assert labels(*cases) == ["tokens=9", "tokens=1024", "tokens=16384"]
    cases = [{"tokens": tokens, "dtype": dtype} for tokens in (2, 1) for dtype in ("float32", "bfloat16")]
    assert labels(*cases) == ["bfloat16, tokens=1", "bfloat16, tokens=2", "float32, tokens=1", "float32, tokens=2"]
    assert labels({"dtype": "float32", "n": 4, "stride": [3, 1, 1]}) == ["float32, n=4, stride=3x1x1"]


def test_an_axis_that_some_cases_lack_is_named_where_it_is() -> None:
    assert labels({"n": 1, "layout": "strided"}, {"n": 1}) == [
        labels({"n": 1})[0].replace("n=1", "op[n=1]"),
        "layout=strided",
    ]


def test_sizes_that_only_follow_others_are_left_out_where_there_is_no_room() -> None:
    names = ("batch", "channels", "height", "length", "width")
    cases = [{"dtype": "bfloat16", **{name: 1000 * size + at for at, name in enumerate(names)}} for size in (1, 2, 3)]
    found = labels(*cases)
    assert len(set(found)) == 3 and max(map(len, found)) <= 44
    assert all(label.endswith(f"width={1000 * size + 4}") for size, label in enumerate(found, start=1))


def test_every_series_has_the_label_of_its_case_once() -> None:
    pair = [facts({"n": 1}), replace(facts({"n": 1}), series=made.series("op[n=1]", "other"))]
    assert list(case_labels(pair)) == ["op[n=1]"]


@pytest.mark.parametrize("name", made.HOSTILE)
def test_hostile_names_are_cut_and_stay_apart(name: str) -> None:
    found = labels({name: name, "n": 1}, {name: name + "y" * 200, "n": 1})
    assert len(set(found)) == 2 or len(name) == 10_000
    assert all(label and len(label) <= WIDTH and label.isprintable() for label in found)


def test_where_there_is_more_room_more_axes_are_named() -> None:
    cases = {
        f"op[{n}]": {"channels": 100 + n, "height": 200 + n, "width": 300 + n, "latents": 400 + n, "taps": 500 + n}
        for n in range(3)
    }
    few, many = (list(labels_of(cases, fits=fits).values()) for fits in (30, 80))
    assert all(len(label) <= 30 for label in few)
    assert many[0] == "channels=100, height=200, latents=400, taps=500, width=300"
