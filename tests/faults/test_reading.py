"""Every way of damaging a store, each with another command; `nox -s faults` tries them all with all commands."""

import pytest

from tests.faults.damaged import DAMAGES
from tests.faults.reading import COMMANDS, read_damaged


@pytest.mark.parametrize("start", range(len(COMMANDS)))
def test_a_damaged_store_costs_only_what_is_damaged(start: int) -> None:
    names = list(DAMAGES)[start :: len(COMMANDS)]
    seen = read_damaged({name: DAMAGES[name] for name in names}, [list(COMMANDS)[start]])
    assert seen.wrong == []
    assert seen.counts["stores"] == len(names) >= 5
