"""Every way of damaging a store, each with another command; `nox -s faults` tries them all with all commands."""

import pytest

from tests.faults.damaged import DAMAGES
from tests.faults.reading import COMMANDS, read_damaged


# Two are enough for a quick look.
@pytest.mark.parametrize(
    "start", [0, 1, *(pytest.param(place, marks=pytest.mark.slow) for place in range(2, len(COMMANDS)))]
)
def test_a_damaged_store_costs_only_what_is_damaged(start: int) -> None:
    names = list(DAMAGES)[start :: len(COMMANDS)]
    seen = read_damaged({name: DAMAGES[name] for name in names}, [list(COMMANDS)[start]])
    assert seen.wrong == []
    assert seen.counts["stores"] == len(names) >= 5
