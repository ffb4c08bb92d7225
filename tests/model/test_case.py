"""Cases and their keys: a key is a series' name for all time, so what it may hold is narrow and its form never changes."""

import itertools
import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.errors import DeclarationError
from pairbench.model.case import AxisValue, Case, declaring, format_value, grid, make_case

names = st.text(string.ascii_lowercase + "_", min_size=1, max_size=8)
words = st.text(min_size=1).filter(str.isprintable)
values = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words)
tuples = st.lists(st.integers(), min_size=1, max_size=5).map(tuple)
few = settings(max_examples=25)
points = st.dictionaries(names, st.one_of(values, tuples), max_size=6)


def test_key_is_written_as_it_always_was() -> None:
    point = {"tokens": 4096, "dtype": "bfloat16", "kernel": (3, 1, 1), "eps": 1e-6, "bias": True}
    case = make_case("rms_norm", point, "smoke")
    assert case.key == "rms_norm[bias=True,dtype=bfloat16,eps=1e-06,kernel=3x1x1,tokens=4096]"


@few
@given(points)
def test_axes_and_the_key_are_sorted_whatever_the_order_of_declaration(point: dict[str, AxisValue]) -> None:
    backwards = dict(reversed(point.items()))
    case = make_case("op", point, "smoke")
    assert case == make_case("op", backwards, "smoke")
    assert [axis for axis, _ in case.axes] == sorted(point)
    inside = re.fullmatch(r"op\[(.*)\]", case.key)
    assert inside
    assert inside[1].split(",") == [f"{axis}={format_value(point[axis])}" for axis in sorted(point)] or not point


@few
@given(points, points)
def test_different_points_have_different_keys(one: dict[str, AxisValue], other: dict[str, AxisValue]) -> None:
    """Up to values that are written alike, such as 4 and '4': the operator refuses those as one case declared twice."""

    def written(point: dict[str, AxisValue]) -> dict[str, str]:
        return {axis: format_value(value) for axis, value in point.items()}

    same_key = make_case("op", one, "smoke").key == make_case("op", other, "smoke").key
    assert same_key == (written(one) == written(other))


@pytest.mark.parametrize(
    ("point", "words"),
    [
        *(
            ({"dtype": value}, f"axis 'dtype' has the value {value!r}, expected a number, a bool, a text that")
            for value in ("", "a\n", "\udc80")
        ),
        *(
            ({"size": value}, "expected a number, a bool, a text that")
            for value in (None, (), (1, 2.0), ("a",), (True,), {"a": 1}, 1j, object)
        ),
        *((point, "is no mapping, expected dict(axis=value, ...)") for point in (4, "rows", ["rows", 4], None)),
    ],
    ids=str,
)
def test_a_point_that_a_key_cannot_hold_is_refused(point: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=f"operator 'op': .*{re.escape(words)}"), declaring("operator 'op'"):
        make_case("op", point, "smoke")


@pytest.mark.parametrize(
    ("axes", "dtype"), [({"dtype": "float32"}, "float32"), ({"rows": 4}, None), ({"dtype": 32}, None)]
)
def test_dtype_is_the_axis_of_that_name(axes: dict[str, object], dtype: str | None) -> None:
    assert make_case("op", axes, "smoke").dtype == dtype


def test_a_value_such_as_a_case_is_frozen_hashable_and_made_by_names() -> None:
    case = Case(operator="op", axes=(("rows", 4),), tier="smoke")
    assert len({case, make_case("op", {"rows": 4}, "smoke")}) == 1
    with pytest.raises(AttributeError):
        case.tier = "real"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Case("op", (), "smoke")  # type: ignore[call-arg]


@few
@given(st.dictionaries(names, st.lists(st.integers(), min_size=1, max_size=4, unique=True), max_size=4))
def test_grid_has_every_point_once_in_order_of_any_iterables(axes: dict[str, list[int]]) -> None:
    assert [tuple(point.values()) for point in grid(**axes)] == list(itertools.product(*axes.values()))
    assert all(list(point) == list(axes) for point in grid(**axes))
    assert grid(rows=(2**power for power in range(2))) == grid(rows=range(1, 3)) == [{"rows": 1}, {"rows": 2}]


@pytest.mark.parametrize("lone", ["float32", 4, 1.5])
def test_grid_refuses_a_lone_value_and_an_empty_axis(lone: Any) -> None:
    with pytest.raises(
        DeclarationError, match=re.escape(f"axis 'a' is {lone!r}, expected a list of values: a=[{lone!r}]")
    ):
        grid(a=lone)
    with pytest.raises(DeclarationError, match="grid: axis 'b' has no values, so there would be no case at all"):
        grid(a=[1], b=[])
