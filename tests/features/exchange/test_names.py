import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.features.exchange.foreign import axis_value, literal, word
from pairbench.model.case import make_case


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("bfloat16", "bfloat16"),
        ("UNSERIALIZABLE[<function plain at 0x7f390f927ec0>]", "plain"),
        ("UNSERIALIZABLE[torch.float32]", "float32"),
        ("<class 'numpy.float32'>", "numpy.float32"),
        ("<built-in method relu of type object at 0x7f00>", "relu"),
        ("<function Norm.rms at 0x7f00>", "Norm.rms"),
        ("<Mode.FAST: 1>", "Mode.FAST"),
    ],
)
def test_what_is_a_name_stays_one(text: str, expected: str) -> None:
    assert word(text) == expected


def test_addresses_are_no_part_of_a_name() -> None:
    assert word("<Thing object at 0x7f00>") == word("<Thing object at 0x7fff>")
    assert word("UNSERIALIZABLE[<function <lambda> at 0x1>]") == word("UNSERIALIZABLE[<function <lambda> at 0x2>]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000", 1000), ("0.5", 0.5), ("True", True), ("'plain'", "plain"), ("(3, 1, 1)", (3, 1, 1)), ("None", "None")],
)
def test_a_repr_is_read_as_its_value(text: str, expected: object) -> None:
    assert literal(text) == expected


def test_a_float_that_no_key_holds_is_a_word() -> None:
    assert axis_value(float("inf")) == "inf"
    assert axis_value([2, 3, 4]) == (2, 3, 4)
    assert isinstance(axis_value([2, "a"]), str)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=3,
)


@given(value=values)
def test_every_value_fits_a_case_key(value: object) -> None:
    case = make_case("square", {"axis": axis_value(value)}, "smoke")
    assert re.fullmatch(r"square\[axis=[\w.+x-]+\]", case.key, re.ASCII)


@given(one=st.text(), other=st.text())
def test_texts_that_look_the_same_stay_apart(one: str, other: str) -> None:
    texts = {text for text in (one, other) if not re.search(r" at 0x|\[|<|^torch\.", text)}
    assert len({word(text) for text in texts}) == len(texts)
