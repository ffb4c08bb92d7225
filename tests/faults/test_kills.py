"""A few of the kills and interruptions that `python -m tests.faults.kills` makes hundreds of."""

import pytest

from tests.faults.kills import trials


@pytest.mark.parametrize(
    ("kills", "interrupts", "kinds"), [(1, 0, ["parent"]), pytest.param(0, 1, [], marks=pytest.mark.slow)]
)
def test_killed_and_interrupted_runs_leave_nothing_and_lose_nothing(
    kills: int, interrupts: int, kinds: list[str]
) -> None:
    seen = trials(kills, interrupts, seed=7, kinds=kinds, length_s=4.0)
    assert not seen.wrong
    done = sum(count for what, count in seen.counts.items() if what.startswith(("kill", "SIG")))
    assert done == kills + interrupts


@pytest.mark.slow
def test_a_kill_of_each_kind() -> None:
    assert not trials(6, 0, seed=3).wrong
