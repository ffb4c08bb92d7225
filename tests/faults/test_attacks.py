"""A few of each attack that `nox -s faults` makes by the hundred: nothing is lost, and what is wrong has a sentence."""

import signal

import pytest

from tests.faults.damaged import DAMAGES
from tests.faults.flips import flip_bits
from tests.faults.imports import import_fuzzed
from tests.faults.kill_imports import kill_imports
from tests.faults.kills import KILLS, trials
from tests.faults.messages import tell
from tests.faults.reading import COMMANDS, read_damaged


@pytest.mark.slow
def test_no_flipped_bit_changes_a_value_without_a_word() -> None:
    found = flip_bits(60)
    assert found.wrong == []
    assert found.counts["bits flipped"] == 60 and found.counts["named and left out"] > 40


@pytest.mark.slow
def test_files_with_anything_in_any_place() -> None:
    found = import_fuzzed(60, shown_each=20)
    assert found.counts["files"] >= 50 and found.counts["imported"] and found.counts["not imported"]


def test_no_message_of_a_worker_is_executed_waited_for_or_a_traceback() -> None:
    found = tell(150)
    assert found.wrong == []
    assert found.counts["messages"] == 150 and found.counts["refused in a sentence"] > 50


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_import_that_is_killed_before_a_line(number: int) -> None:
    found = kill_imports(16, number)
    assert found.wrong == [] and found.counts["killed"] >= 10


# Each damage with another command; one command is enough for a quick look.
@pytest.mark.parametrize(
    "start", [0, *(pytest.param(place, marks=pytest.mark.slow) for place in range(1, len(COMMANDS)))]
)
def test_a_damaged_store_costs_only_what_is_damaged(start: int) -> None:
    names = list(DAMAGES)[start :: len(COMMANDS)]
    seen = read_damaged({name: DAMAGES[name] for name in names}, [list(COMMANDS)[start]])
    assert seen.wrong == []
    assert seen.counts["stores"] == len(names) >= 5


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "interrupts", "kinds"), [(1, 0, ["parent"]), (0, 1, []), (6, 0, KILLS)])
def test_killed_and_interrupted_runs_leave_nothing_and_lose_nothing(
    kills: int, interrupts: int, kinds: list[str]
) -> None:
    seen = trials(kills, interrupts, seed=7, kinds=kinds, length_s=4.0)
    assert not seen.wrong
    done = sum(count for what, count in seen.counts.items() if what.startswith(("kill", "SIG")))
    assert done == kills + interrupts
