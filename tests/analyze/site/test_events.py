"""Events: one for each pair of runs between which series moved, with its likely cause; and lives of moves: what lasts, and what was taken back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.exact import AcceptedLevel
from pairbench.analyze.compare.runs import compare
from pairbench.analyze.facts import run_head
from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.breakdown import KernelCount
from pairbench.model.comparison import Acceptance, Attribution, GateOutcome
from pairbench.model.record import LazyRecords, Record, Series
from pairbench.site.events import (
    Heads,
    MoveLife,
    SeriesEvent,
    events_of,
    joined,
    kernels_wanted,
    lasting,
    lives_of,
    series_events,
    with_kernels,
)
from pairbench.site.store_events import environment_events, shifts_of
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, only, run_id_of

Runs = list[tuple[Record, ...]]


def history(runs: int, slower_from: int, factor: float = 1.1) -> Runs:
    return [make_run(day, slower={"fused": factor} if day >= slower_from else {}) for day in range(runs)]


def heads_of(runs: Runs) -> Heads:
    return {(run[0].run_id, DEVICE): run_head(run[0], LazyRecords.of(run)) for run in runs}


def trends_of(runs: Runs) -> list[Trend]:
    records = [record for run in runs for record in run]
    known = sorted({series for record in records if (series := Series.of(record))})
    return [make_trend(only(records, case=series.case), series) for series in known]


def moves(runs: Runs) -> list[SeriesEvent]:
    return [one for trend in trends_of(runs) for one in series_events(trend)]


def compared(runs: Runs, reference: Runs, current: Sequence[Record]) -> list[SeriesEvent]:
    """Return what became of each series, by its trend over some runs and by a comparison."""
    changes = compare([record for run in reference for record in run], current)
    return [
        event
        for trend in trends_of(runs)
        for event in series_events(trend, [change for change in changes if change.series == trend.series])
    ]


def test_series_that_moved_together_are_one_event() -> None:
    runs = history(24, 12)
    (event,) = events_of(moves(runs), heads_of(runs))
    assert (event.kind, event.direction, event.outcome) == ("moved", "slower", GateOutcome.REGRESSION)
    assert event.before is not None
    assert (event.before.run_id, event.after.run_id) == (run_id_of(11), run_id_of(12))
    assert sorted(one.series.case for one in event.moved) == sorted(CASES)
    for one in event.moved:
        assert one.change == pytest.approx(1.1, rel=0.01) and one.attribution is Attribution.CODE
        assert one.after_ns is not None and one.after_ns == pytest.approx(110_000, rel=0.01)
    assert events_of(moves(runs), heads_of(runs))[0].key == event.key


def test_a_gain_is_an_improvement_and_another_driver_is_told_of_all_series() -> None:
    runs = history(24, 12, factor=0.8)
    (event,) = events_of(moves(runs), heads_of(runs))
    assert (event.direction, event.outcome) == ("faster", GateOutcome.IMPROVEMENT)
    newer = [tuple(replace(record, driver="580.2", environment_hash="e" * 16) for record in run) for run in runs[12:]]
    runs = [*runs[:12], *newer]
    assert events_of(moves(runs), heads_of(runs)) == (), "it is told of all series together"
    shifts = [shift for trend in trends_of(runs) for shift in shifts_of(trend)]
    (event,) = environment_events(shifts, heads_of(runs))
    assert event.era == ("driver 580.1 -> 580.2",) and (event.direction, event.of) == ("faster", 4)
    assert {one.series.implementation for one in event.moved} == {"fused"}


@pytest.mark.parametrize(
    ("p50_ns", "minimum_effect", "accepted"),
    [(110_000, 0.02, True), (104_000, 0.02, False), (104_000, 0.08, True)],  # within the series' own minimum effect
)
def test_an_accepted_level_is_marked_and_a_worse_one_is_not(
    p50_ns: float, minimum_effect: float, accepted: bool
) -> None:
    runs = history(24, 12)
    trend = next(trend for trend in trends_of(runs) if trend.series.implementation == "fused")
    level: dict[str, Any] = {"definition_hash": "d" * 16, "p50_ns": p50_ns, "p95_ns": None}
    acceptance = Acceptance(series=trend.series, run_id=run_id_of(13), at="", reason="exact", **level)
    covered = AcceptedLevel(acceptance=acceptance, minimum_effect=minimum_effect)
    (event,) = events_of(series_events(trend, accepted=covered), heads_of(runs))
    assert (event.accepted, event.moved[0].accepted) == (accepted, "exact" if accepted else None)
    assert (event.life, event.open) == (("accepted", False) if accepted else ("still there", True))


def test_the_newest_run_and_a_failure() -> None:
    before, now = make_run(0), make_run(1, slower={"fused": 1.5})
    now = tuple(
        ended(record, "failed", "boom") if (record.case, record.implementation) == (CASES[1], "fused") else record
        for record in now
    )
    found = compared([before, now], [before], now)
    events = events_of(found, heads_of([before, now]))
    assert {(event.kind, event.direction, event.outcome) for event in events} == {
        ("newest", "worse", GateOutcome.REGRESSION),
        ("failed", "failed", GateOutcome.FAILED),
    }
    worse = next(event for event in events if event.kind == "newest")
    assert worse.moved[0].change == pytest.approx(1.5, rel=0.01)
    assert events_of(found, {}) == ()


@pytest.mark.parametrize(("runs", "kind"), [(24, "newest"), (26, "moved")])
def test_a_comparison_says_nothing_that_a_level_says_already(runs: int, kind: str) -> None:
    made = history(runs, 22)
    found = compared(made, made[:22], made[-1])
    assert {event.kind for event in events_of(found, heads_of(made))} == {kind}


@pytest.mark.parametrize(("slower", "before"), [(1.5, 7), (1.035, 0)])
def test_one_slower_run_leaves_those_commits_open_after_which_it_may_have_come(slower: float, before: int) -> None:
    runs = [
        *(make_run(day, slower={"fused": 1 + 0.01 * (day % 2)}) for day in range(8)),
        make_run(8, slower={"fused": slower}),
    ]
    (event,) = events_of(compared(runs, runs[:8], runs[8]), heads_of(runs))
    assert event.kind == "newest" and event.before is not None and event.before.run_id == run_id_of(before)


def test_comparisons_of_earlier_runs_count_while_a_history_is_too_short_for_levels() -> None:
    runs = [make_run(0), make_run(1, slower={"fused": 1.5}), make_run(2)]
    (event,) = events_of(compared(runs, runs[:1], runs[1]), heads_of(runs))
    assert event.kind == "newest" and event.after.run_id == run_id_of(1)
    long = [*runs, *(make_run(day) for day in range(3, 12))]
    assert events_of(compared(long, runs[:1], runs[1]), heads_of(long)) == ()


def counted(runs: Runs, since: int, until: int = 1000, **columns: int) -> Runs:
    return [
        tuple(
            replace(one, **columns) if since <= day < until and one.implementation == "fused" else one  # type: ignore[arg-type]
            for one in run
        )
        for day, run in enumerate(runs)
    ]


def test_another_launch_is_an_event_at_once_and_one_with_the_latency_that_goes_with_it() -> None:
    runs = counted(history(13, 1000), 12, launches_per_call=3)
    (event,) = events_of(moves(runs), heads_of(runs))
    assert (event.kind, event.direction, event.outcome) == ("moved", "worse", GateOutcome.REGRESSION)
    assert (event.life, event.ended, event.open) == ("still there", None, True)
    assert [(one.metric, one.before, one.after) for one in event.moved[0].counts] == [("launches_per_call", 1, 3)]
    assert event.moved[0].change is None and event.moved[0].attribution is Attribution.CODE
    assert {one.moved.outcome for one in lasting(moves(runs)).values()} == {GateOutcome.REGRESSION}
    runs = counted(history(24, 12), 11, launches_per_call=3)
    (event,) = events_of(moves(runs), heads_of(runs))
    assert event.after.run_id == run_id_of(11), "the count is exact, so it says where"
    assert event.moved[0].counts and event.moved[0].size == pytest.approx(1.1, rel=0.01)


def test_what_was_taken_back_says_in_which_run() -> None:
    runs = counted(history(24, 1000), 6, 12, ops_per_call=4)
    (event,) = events_of(moves(runs), heads_of(runs))
    assert (event.life, event.ended, event.open) == ("recovered", run_id_of(12), False)
    assert lasting(moves(runs)) == {}
    slow = [make_run(day, slower={"fused": 1.1} if 12 <= day < 24 else {}) for day in range(36)]
    (event,) = events_of(moves(slow), heads_of(slow))
    assert (event.direction, event.life, event.ended) == ("slower", "recovered", run_id_of(24))
    failed = [tuple(ended(one, "failed") if day == 3 else one for one in make_run(day)) for day in range(5)]
    (event,) = events_of(moves(failed), heads_of(failed))
    assert (event.kind, event.life, event.ended) == ("failed", "recovered", run_id_of(4))


def test_the_same_step_on_two_device_models_is_one_event() -> None:
    here = history(24, 12)
    other = [tuple(replace(one, device_name="NVIDIA H100") for one in run) for run in here[::2]]
    heads = {
        **heads_of(here),
        **{(run[0].run_id, "NVIDIA H100"): run_head(run[0], LazyRecords.of(run)) for run in other},
    }
    found = events_of([*moves(here), *moves(other)], heads)
    assert len(found) == 2
    (event,) = joined(found)
    assert {one.device_name for one in event.everywhere} == {DEVICE, "NVIDIA H100"} and event.open
    (alone,) = joined(found[:1])
    assert alone.elsewhere == ()
    late = events_of(moves(history(24, 8)), heads)
    assert len(joined([found[0], *late])) == 2, "commits between which it happened do not overlap"


def test_kernels_of_both_runs_say_what_differs() -> None:
    runs = history(24, 12)
    (event,) = events_of(moves(runs), heads_of(runs))
    assert kernels_wanted([event])[0] == {run_id_of(11), run_id_of(12)}
    copied = KernelCount(name="copy", count=2, total_ns=8e3)
    after = [replace(one, kernels=(*(one.kernels or ()), copied)) for one in only(runs[12], implementation="fused")]
    both = [*runs[11], *runs[12], *after]
    records = {(record.run_id, series): record for record in both if (series := Series.of(record))}
    assert with_kernels(event, records).moved[0].kernels[0] == "new: copy (0 -> 2 a call, 0 -> 8 us)"
    assert with_kernels(event, {}) == event


CASE = CASES[0]
FUSED = Series(device_name=DEVICE, suite=SUITE, case=CASE, implementation="fused", mode="eager")


def trend_of(levels: Mapping[int, Mapping[str, float]], *, driver: int = 1000, definition: int = 1000) -> Trend:
    """Return the trend of 48 runs of which those from some on are slower by factors."""
    records: list[Record] = []
    for day in range(48):
        since = max((first for first in levels if first <= day), default=None)
        run = make_run(day, cases=(CASE,), slower=levels[since] if since is not None else {})
        if day >= driver:
            run = tuple(replace(one, driver="580.2", environment_hash="e" * 16) for one in run)
        records += [replace(one, definition_hash="other") if day >= definition else one for one in run]
    return make_trend(records, FUSED)


@pytest.mark.parametrize(
    ("levels", "more", "lives"),
    [
        ({12: {"fused": 1.1}}, {}, [(12, None, False)]),
        ({12: {"fused": 1.1}, 24: {}}, {}, [(12, 24, False)]),
        ({12: {"fused": 1.1}, 24: {"fused": 1.21}, 36: {}}, {}, [(12, 36, False), (24, 36, False)]),
        # Half a recovery is none, and more than one is a gain.
        ({12: {"fused": 1.2}, 24: {"fused": 1.1}}, {}, [(12, None, False), (24, None, False)]),
        ({12: {"fused": 1.1}, 24: {"fused": 0.8}}, {}, [(12, 24, False), (24, None, False)]),
        # A gain of the code that is lost is a regression; a machine's is none, nor is that of an environment taken back by the code.
        ({12: {"fused": 0.8}, 24: {}}, {}, [(12, 24, True), (24, None, False)]),
        ({12: {CASE: 0.9}, 24: {}}, {}, [(12, 24, False)]),
        ({12: {CASE: 0.95}, 24: {CASE: 0.95, "fused": 1.05}}, {"driver": 12}, [(12, None, False), (24, None, False)]),
        ({12: {"fused": 1.1}}, {"definition": 30}, [(12, 30, True)]),
    ],
)
def test_what_lasts_lasts_and_what_was_taken_back_or_replaced_ended_there(
    levels: Mapping[int, Mapping[str, float]], more: dict[str, int], lives: list[tuple[int, int | None, bool]]
) -> None:
    found = lives_of(trend_of(levels, **more))
    assert [(life.move.index, life.ended, life.superseded) for life in found] == lives


@pytest.mark.parametrize("driver", [0.94, 1.05])
def test_an_environment_takes_back_nothing_that_the_code_did(driver: float) -> None:
    both = {CASE: driver}
    found = lives_of(trend_of({12: {"fused": 1.05}, 24: {"fused": 1.05, **both}}, driver=24))
    assert [(life.move.index, life.ended) for life in found] == [(12, None), (24, None)]
    assert [life.move.attribution for life in found] == [Attribution.CODE, Attribution.ENVIRONMENT]


@pytest.mark.parametrize("driver", [0.98, 1.03])
def test_beside_another_driver_the_change_is_that_of_the_code(driver: float) -> None:
    """5 % planted five runs after a driver that made all 2 % faster read +2.9 %."""
    moved = trend_of({15: {CASE: driver}, 20: {CASE: driver, "fused": 1.05}}, driver=15)
    (life,) = [one for one in lives_of(moved) if one.move.attribution is Attribution.CODE]
    assert isinstance(life, MoveLife) and life.move.index == 20
    assert life.move.size == pytest.approx(1.05, abs=0.004) and life.move.own == pytest.approx(1.05, abs=0.004)
    assert life.move.control == pytest.approx(1, abs=0.004)
