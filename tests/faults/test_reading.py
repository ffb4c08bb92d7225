"""Every way of damaging a store, each with another command; `nox -s faults` tries them all with all commands."""

import pytest

from tests.faults.damaged import DAMAGES
from tests.faults.reading import COMMANDS, read_damaged

EACH = 12
"""The number of damages that one test goes through."""


@pytest.mark.parametrize("start", range(0, len(DAMAGES), EACH))
def test_a_damaged_store_costs_only_what_is_damaged(start: int) -> None:
    commands = list(COMMANDS)
    for place, name in list(enumerate(DAMAGES))[start : start + EACH]:
        seen = read_damaged({name: DAMAGES[name]}, [commands[place % len(commands)], "show --runs"])
        assert seen.wrong == []
        assert seen.counts["commands"] == 2
