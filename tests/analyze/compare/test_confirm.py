"""A regression counts where it is seen again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.runs import again, compare, suspects
from pairbench.model.comparison import Change, GateOutcome
from pairbench.model.record import Record
from tests.builders import change_of, ended, make_run, run_id_of

MANY = tuple(f"rms_norm[tokens={number}]" for number in range(20))
ONE = f"{MANY[3]}-fused"
BEFORE = make_run(0, cases=MANY)


def first(slower: float = 1.1, **columns: Any) -> list[Record]:
    return edited(make_run(1, cases=MANY, slower={ONE: slower}), **columns)


def second(slower: float = 1.1, **columns: Any) -> list[Record]:
    run = make_run(2, cases=MANY[3:4], slower={ONE: slower}, confirms=run_id_of(1))
    return edited(run, **columns)


def edited(run: Sequence[Record], **columns: Any) -> list[Record]:
    return [
        replace(record, **columns) if record.implementation == "fused" and record.case == MANY[3] else record
        for record in run
    ]


def judged(current: Sequence[Record]) -> Change:
    changes = compare(BEFORE, current)
    found = change_of(changes, MANY[3])
    assert all(item.confirmed is None for item in changes if item is not found)
    return found


def test_suspects_are_what_would_fail_and_was_not_measured_twice() -> None:
    changes = compare(BEFORE, first())
    (suspect,) = suspects(changes)
    assert (suspect.case, suspect.implementation) == (MANY[3], "fused")
    assert suspects(compare(BEFORE, [*first(), *second()])) == ()
    assert suspects(compare(BEFORE, make_run(1, cases=MANY))) == ()
    assert suspects(compare(BEFORE, [ended(record, "failed") for record in first()])) != ()


def test_slow_both_times_is_confirmed() -> None:
    found = judged(first())
    assert (found.outcome, found.confirmed) == (GateOutcome.REGRESSION, None)
    found = judged([*first(), *second()])
    assert (found.outcome, found.confirmed) == (GateOutcome.REGRESSION, True)
    assert found.current_runs == (run_id_of(1), run_id_of(2))


@pytest.mark.parametrize("later", [1.0, 0.9])
def test_slow_once_is_not(later: float) -> None:
    found = judged([*first(), *second(later)])
    assert found.outcome in (GateOutcome.UNDECIDED, GateOutcome.UNCHANGED, GateOutcome.IMPROVEMENT)
    assert found.confirmed is False and "not seen again" in found.reason


@pytest.mark.parametrize(("later", "confirmed"), [(2, True), (1, False), (3, False), (None, False)])
def test_a_count_has_to_be_the_same_again(later: int | None, confirmed: bool) -> None:
    found = judged([*first(1.0, launches_per_call=2), *second(1.0, launches_per_call=later)])
    assert (found.outcome is GateOutcome.REGRESSION, found.confirmed) == (confirmed, confirmed)
    assert confirmed or "not seen again" in found.reason


def test_memory_has_to_grow_again_and_not_by_the_same_bytes() -> None:
    grown = judged([*first(1.0, peak_bytes=1 << 24), *second(1.0, peak_bytes=(1 << 24) + 512)])
    assert (grown.outcome, grown.confirmed) == (GateOutcome.REGRESSION, True)
    back = judged([*first(1.0, peak_bytes=1 << 24), *second(1.0, peak_bytes=1 << 20)])
    assert (back.outcome, back.confirmed) == (GateOutcome.UNDECIDED, False)


def test_a_failure_has_to_come_again() -> None:
    failed = [ended(record, "failed") if record in first() and record.case == MANY[3] else record for record in first()]
    twice = [ended(record, "failed") for record in second()]
    for later, expected in (
        (twice, (GateOutcome.FAILED, True)),
        (second(1.0), (GateOutcome.UNDECIDED, False)),
    ):
        of_case = [one for one in compare(BEFORE, [*failed, *later]) if one.series.case == MANY[3]]
        assert {(one.outcome, one.confirmed) for one in of_case} == {expected}


def test_only_runs_that_are_there_can_be_confirmed() -> None:
    assert again([*first(), *second()]) == second()
    assert again(second()) == []


def test_what_was_seen_again_counts_beside_what_was_not() -> None:
    found = judged([*first(1.1, launches_per_call=2), *second(1.0, launches_per_call=2)])
    assert (found.outcome, found.confirmed) == (GateOutcome.REGRESSION, True)
    assert found.judgements[0].metric == "launches_per_call"
