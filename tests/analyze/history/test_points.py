import datetime as dt
import math
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.analyze.history import points
from pairbench.model.record import CALL, DEVICE, Record
from tests.builders import CASES, FIRST, ended, make_run, only, run_id_of, with_device

CASE = CASES[0]


def history(records: Iterable[Record], implementation: str, *, timer: str | None = None) -> points.History:
    return points.history(points.in_order(records), implementation, timer=timer)


def runs(number: int) -> list[Record]:
    return [record for day in range(number) for record in make_run(24 * day, cases=[CASE])]


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_runs_come_oldest_first_whatever_the_order_of_reading(rng: random.Random) -> None:
    """Some times are those of another zone, of none, or no times."""
    records = runs(6)
    days = [FIRST + dt.timedelta(days=day) for day in range(3)]
    zone = dt.timezone(dt.timedelta(hours=9))
    for day, said in enumerate(
        (days[0].astimezone(zone).isoformat(), "no time", days[2].replace(tzinfo=None).isoformat())
    ):
        records[2 * day : 2 * day + 2] = [replace(one, started_at=said) for one in records[2 * day : 2 * day + 2]]
    rng.shuffle(records)
    found = history(records, "fused")
    assert [point.record.run_id for point in found.points] == [run_id_of(24 * day) for day in range(6)]
    assert all(point.control and point.control.run_id == point.record.run_id for point in found.points)
    assert (found.timer, found.control, found.notes) == ("cuda_event", "baseline", ())


def test_a_clock_that_is_wrong_is_said_to_be() -> None:
    records = runs(3)
    records = [replace(record, commit_at="2096-06-01T00:00:00+00:00") for record in records[:2]] + records[2:]
    (note,) = history(records, "fused").notes
    assert note.startswith(f"1 run began before its own commit was made, {run_id_of(0)} the first")


def test_a_run_that_is_there_twice_counts_once_and_two_gpus_of_one_run_are_two_points_with_their_own_control() -> None:
    records = runs(2)
    broken = [ended(record, "failed") for record in records[:2]]
    found = history([*records[:2], *broken, *records], "fused")
    assert len(found.points) == 2 and found.points[0].p50
    assert found.notes == ("1 run found twice in the store and counted once",)
    found = history([*records[:2], *make_run(0, cases=[CASE], device_uuid="GPU-1", call_p50_ns=7e5)], "fused")
    assert [point.control_ns and point.control_ns > 6e5 for point in found.points] == [False, True]
    assert found.notes == ("the runs are of 2 devices of this model",)


def test_another_timer_is_another_history_and_failures_are_in_both() -> None:
    other = [replace(record, timer="do_bench") for record in make_run(24, cases=[CASE])]
    failed = [ended(record, "failed") for record in make_run(48, cases=[CASE])]
    records = [*make_run(0, cases=[CASE]), *other, *failed, *make_run(72, cases=[CASE])]
    found = history(records, "fused")
    assert [point.record.timer for point in found.points] == ["cuda_event", None, "cuda_event"]
    assert found.notes == ("1 run timed by do_bench left out: another timer is another series",)
    chosen = history(records, "fused", timer="do_bench")
    assert [point.record.timer for point in chosen.points] == ["do_bench", None]
    assert chosen.points[0].control_ns


def test_a_new_definition_begins_a_new_part() -> None:
    hashes = ["a", "a", None, "a", "b", "b", "a"]
    records = [
        replace(record, definition_hash=definition)
        for day, definition in enumerate(hashes)
        for record in make_run(24 * day, cases=[CASE])
    ]
    assert [point.part for point in history(records, "fused").points] == [0, 0, 0, 0, 1, 1, 2]


def test_the_control_of_a_baseline_is_the_variant_most_often_measured_and_without_others_there_is_none() -> None:
    records = [*make_run(0, cases=[CASE], implementations=("baseline", "rare", "fused")), *runs(3)[2:]]
    found = history(records, "baseline")
    assert found.control == "fused"
    point = found.points[0]
    assert point.p50 and point.control_ns and point.speedup == pytest.approx(point.p50.estimate / point.control_ns)
    found = history(only(runs(2), implementation="fused"), "fused")
    assert found.control is None and [point.speedup for point in found.points] == [None, None]
    assert not history([], "fused").points


@pytest.mark.parametrize("value", [None, math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_latency_is_a_gap(value: float | None) -> None:
    records = [replace(record, call_p50_ns=value) for record in runs(1)]
    assert [point.p50 for point in history(records, "fused").points] == [None]
    assert history(records, "fused").points[0].speedup is None


def on_a_gpu(number: int, **columns: object) -> list[Record]:
    return [
        replace(record, **columns)  # type: ignore[arg-type]
        for day in range(number)
        for record in with_device(make_run(24 * day, cases=[CASE]), device=(50_000.0,), host=(9_000.0,))
    ]


def test_on_a_gpu_it_is_the_history_of_the_device() -> None:
    found = history(on_a_gpu(3), "fused")
    assert found.points.latency is DEVICE
    assert [(point.p50 or (0,))[0] for point in found.points] == [50_000.0] * 3
    assert [(point.p95_ns, point.control_ns, point.speedup) for point in found.points] == [
        (51_000.0, 50_000.0, 1.0)
    ] * 3
    assert history(on_a_gpu(3, device_kind="cpu"), "fused").points.latency is CALL


def test_runs_by_another_clock_of_the_device_or_without_one_are_left_out() -> None:
    spun = [replace(record, device_timer="spin") for record in on_a_gpu(4)[-2:]]
    for records, left, words in (
        ([*on_a_gpu(3), *spun], 1, "3 runs without a device latency by spin"),
        ([*runs(2), *on_a_gpu(4)[-4:]], 2, "2 runs without a device latency by graph_replay"),
    ):
        found = history(records, "fused")
        assert len(found.points) == left
        assert found.notes == (f"{words} left out: another clock is another series",)


def of_commit(number: int, *, committed: int, started: int) -> list[Record]:
    """Return a run of a commit that was made some hours after the first, and measured some hours after it."""
    moments = (FIRST + dt.timedelta(hours=hours) for hours in (committed, started))
    made, begun = (moment.isoformat() for moment in moments)
    records = make_run(number, cases=[CASE])
    return [replace(record, commit_at=made, started_at=begun, run_id=run_id_of(started)) for record in records]


def test_runs_that_fill_in_a_history_are_at_the_place_of_their_commit() -> None:
    nightly = [of_commit(number, committed=100 * number, started=100 * number + 5) for number in range(4)]
    later = [of_commit(9, committed=hours, started=1000 + place) for place, hours in enumerate((250, 50, 150))]
    seen = history((record for run in (*later, *nightly) for record in run), "fused").points
    hours = [
        round((dt.datetime.fromisoformat(point.record.commit_at or "") - FIRST).total_seconds() / 3600)
        for point in seen
    ]
    assert hours == [0, 50, 100, 150, 200, 250, 300]


@pytest.mark.parametrize(
    "runs",
    [
        # As the commit of a pull request that began before the newest commit of the default branch was made.
        [(1, 10, 11), (2, 5, 12), (3, 12, 13)],
        # Reruns of an old commit with no later one between.
        [(1, 10, 11), (1, 10, 900), (2, 20, 1000)],
    ],
)
def test_runs_that_fill_in_nothing_stay_in_the_order_of_clocks(runs: list[tuple[int, int, int]]) -> None:
    order = [of_commit(number, committed=committed, started=started) for number, committed, started in runs]
    seen = history((record for run in order for record in run), "fused").points
    assert [point.record.run_id for point in seen] == [run_id_of(started) for _, _, started in runs]
