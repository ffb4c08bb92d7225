import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairbench.site.payload import field_groups, fields, figures, run_payload, script
from pairbench.stats import rounded
from tests.report.site import made
from tests.report.site.reading import value_of


@given(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_a_script_holds_what_was_given(name: str, value: object) -> None:
    data = script(name, value)
    assert value_of(data) == (name, value)
    # In a page or a file, it ends neither a script nor a line.
    assert b"</" not in data and b"<!--" not in data and data.isascii() and data.count(b"\n") == 1


def test_what_is_large_is_packed_and_holds_the_same() -> None:
    value = {"series": [{"p50": [number / 7 for number in range(100)], "name": "</script>"}] * 40}
    data = script("operators/x", value)
    assert value_of(data) == ("operators/x", value) and data.startswith(b"pairbench.packed(")
    assert len(data) < len(json.dumps(value)) / 10 and data.count(b"\n") == 1


def test_what_is_no_number_becomes_null() -> None:
    value = {"a": [1.0, math.nan, (math.inf,)], "b": {"c": -math.inf}, "d": "NaN"}
    assert value_of(script("x", value)) == ("x", {"a": [1.0, None, [None]], "b": {"c": None}, "d": "NaN"})


@pytest.mark.parametrize(
    ("value", "digits", "told"),
    [
        (123456.7, 5, 123460),
        (0.000123456, 4, 0.0001235),
        (536870913.0, 5, 536870913),
        (None, 5, None),
        (math.nan, 5, None),
    ]
    + [(math.inf, 5, None), (-1.23456, 4, -1.235), (0.0, 5, 0), (1e300, 5, 1e300)],
)
def test_figures(value: float | None, digits: int, told: float | None) -> None:
    assert figures(value, digits) == told


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(2, 8))
@example(1.75e308, 2)
def test_figures_are_near(value: float, digits: int) -> None:
    told = figures(value, digits)
    assert told is not None and math.isclose(told, value, rel_tol=0.5 * 10.0 ** (1 - digits) * (1 + 1e-9))


@given(st.lists(st.floats(), min_size=3, max_size=3), st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3))
def test_rows_are_rounded_as_single_figures_are(row: list[float], usual: list[float]) -> None:
    rows = [row, usual, [math.nan] * 3, [1e300, 2.0, 1e-300]]
    for told, expected in zip(rounded(rows, 4), [[figures(value, 4) for value in one] for one in rows], strict=True):
        assert [value is None for value in told] == [value is None for value in expected]
        assert told == pytest.approx(expected, rel=1.1e-3)


def test_a_run_as_columns_with_what_lasts_of_its_environment() -> None:
    bad = made.failed(made.series(implementation="broken"), reason="RuntimeError: out of luck")
    payload: Any = run_payload(made.run(1, [*made.case_facts(), bad]))
    places = payload["texts"]["implementation"]
    assert [payload["names"][place] for place in places] == ["baseline", "fused", "broken"]
    assert payload["numbers"]["p50"] == [200000, 100000, None]
    assert payload["numbers"]["speedup"] == [None, 2, None]
    assert payload["texts"]["timer"][2] == -1 and payload["reasons"] == {"2": "RuntimeError: out of luck"}
    assert {len(column) for part in ("texts", "numbers") for column in payload[part].values()} == {3}
    assert payload["texts"]["definition"] == [-1] * 3, "nobody's definition is known here"
    only_failed: Any = run_payload(made.run(0, [bad]))
    assert only_failed["numbers"] == {}, "no series has a column of nulls"
    environment: Any = payload["environment"]
    assert environment["flags.cudnn.benchmark"] == "no" and environment["driver"] == "580.1"
    assert environment["machine"] == "box" and not any(name.startswith("observed") for name in environment)


def test_a_run_of_many_series_stays_small() -> None:
    """2,000 series: a store of 200 such runs must not become a site of gigabytes."""
    facts = [one for number in range(1000) for one in made.case_facts(f"rms_norm[dtype=bfloat16,tokens={number}]")]
    assert len(script("runs/x", run_payload(made.run(0, facts)))) < 400_000


def test_an_environment_of_any_shape() -> None:
    assert list(fields({"a": {"b": [1, 2], "c": None}, "d": {}})) == [("a.b", "1, 2"), ("a.c", "none"), ("d", "{}")]
    deep: Any = "end"
    for _ in range(50):
        deep = {"x": deep}
    ((name, text),) = fields(deep)
    assert name == "x.x.x.x.x.x" and text.startswith('{"x": ')
    assert list(field_groups({"one": 1, "flags": {"tf32": False}, "two": True}).items()) == [
        ("", [("one", "1"), ("two", "yes")]),
        ("flags", [("tf32", "no")]),
    ]
