"""The exam's planted changes still fit its suite."""

import ast

import pytest

from tests.lab.exam.bench import PLANTED, SUITE, planted


def test_every_change_is_put_in_and_the_suite_is_still_one() -> None:
    source = SUITE.read_text(encoding="utf-8")
    changed = planted(source)
    ast.parse(changed)
    assert all(after in changed and before in source for _, before, after in PLANTED.values())


def test_a_place_that_is_gone_is_said() -> None:
    with pytest.raises(ValueError, match=r"2 % more work in a kernel: .* is 0 times in exam.py, expected once"):
        planted("")
