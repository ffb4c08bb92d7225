"""What is judged on a GPU: the device, and the host by itself where it is known to repeat; the call is shown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.exact import acceptance_of
from pairbench.analyze.compare.runs import compare
from pairbench.model.comparison import Attribution, Change, Floor, GateOutcome, Verdict
from pairbench.model.record import CALL, DEVICE, HOST, HOST_JUDGED, Record, Series
from tests.builders import judgement_of, make_run, moved_alone, with_device

DEVICE_NS = (50_000.0, 50_020.0, 49_980.0, 50_010.0, 49_990.0)
HOST_NS = (60_000.0, 60_900.0, 59_400.0, 60_300.0, 59_800.0)
CASES = tuple(f"norm[n={number}]" for number in range(8))


def run(number: int, *, timer: str = "graph_replay", **factors: float) -> tuple[Record, ...]:
    """Return the records of a run; `device`, `host` and `call` are what the variant of the first case takes more."""
    found: list[Record] = []
    for record in make_run(number, cases=CASES):
        moved = factors if (record.case, record.implementation) == (CASES[0], "fused") else {}
        call, device, host = (moved.get(name, 1.0) for name in ("call", "device", "host"))
        calls: Any = {name: call * (getattr(record, name) or 0) for name in ("call_p50_ns", "call_p95_ns")}
        rounds = tuple(call * value for value in record.round_p50_ns or ())
        found += with_device(
            [replace(record, **calls, round_p50_ns=rounds)],
            device=[device * value for value in DEVICE_NS],
            host=[host * value for value in HOST_NS],
            timer=timer,
        )
    return tuple(found)


FLOORS = {
    series: Floor(p50=0.004, p95=0.01, runs=10, source="calibration", latency="device", host=0.03)
    for record in run(0)
    if (series := Series.of(record))
}


def changed(current: Sequence[Record], reference: Sequence[Record] | None = None, **more: Any) -> Change:
    """Return what became of the variant of the first case; nothing else may have moved."""
    return moved_alone(compare(reference or run(0), current, **more), CASES[0])


def test_a_call_that_moves_alone_is_shown_and_not_judged() -> None:
    """What the host limits is a coin between runs."""
    found = changed(run(1, call=2.3), floors=FLOORS)
    assert found.outcome is GateOutcome.UNCHANGED and found.verdict is Verdict.SAME
    shown = judgement_of(found, CALL.p50)
    assert shown.outcome is GateOutcome.UNDECIDED and shown.change is None
    assert "not judged: the device's latency is the result" in shown.reason
    assert shown.current == pytest.approx(2.3 * (shown.reference or 0), rel=0.01)  # type: ignore[operator]
    assert CALL.p95 not in {one.metric for one in found.judgements}
    assert found.p50 is judgement_of(found, DEVICE.p50)


def test_a_slower_device_is_a_regression() -> None:
    found = changed(run(1, device=1.02), floors=FLOORS)
    assert found.outcome is GateOutcome.REGRESSION and found.attribution is Attribution.CODE
    assert found.reason.startswith("median device latency 2.0 % slower")
    assert found.control is not None and abs(found.control.estimate - 1) < 0.001


def test_the_host_is_judged_where_a_calibration_found_that_it_repeats() -> None:
    found = changed(run(1, host=4 / 3), floors=FLOORS)
    assert found.outcome is GateOutcome.REGRESSION and found.attribution is Attribution.CODE
    assert found.reason.startswith("issuing the call takes 20 us more (+33.3 %")
    assert "; the device is unchanged" in found.reason
    assert found.verdict is Verdict.SAME  # the series' verdict stays that of its result


def test_a_reference_run_that_was_cut_short_takes_no_count_away() -> None:
    """It was timed and never profiled; the run before it was."""
    whole = tuple(replace(one, ops_per_call=1, launch_status="exact") for one in run(0))
    cut_short = tuple(replace(one, ops_per_call=None, launch_status=None) for one in run(1))
    now = tuple(replace(one, ops_per_call=2, launch_status="exact") for one in run(2))
    for found in compare([*whole, *cut_short], now, floors=FLOORS):
        assert found.outcome is GateOutcome.REGRESSION and "1 more dispatched operators a call, 1 -> 2" in found.reason


@pytest.mark.parametrize("host", [None, 0.2])
def test_elsewhere_the_host_is_shown(host: float | None) -> None:
    """Without a calibration, or where that found that it does not repeat."""
    floors = {series: replace(floor, host=host) for series, floor in FLOORS.items()}
    found = changed(run(1, host=4 / 3), floors=floors)
    assert found.outcome is GateOutcome.UNCHANGED
    shown = judgement_of(found, HOST.p50)
    assert shown.outcome is GateOutcome.UNDECIDED
    assert "host time 60 us -> 80 us, not judged: no calibration has found that the host's time repeats" in shown.reason


def without(*columns: str) -> tuple[Record, ...]:
    """Return the run before as an earlier version recorded it, without some columns."""
    return tuple(replace(one, **dict.fromkeys(columns)) for one in run(0))  # type: ignore[arg-type]


def test_rounds_of_the_host_that_were_taken_in_another_way_are_not_judged() -> None:
    found = changed(run(1, host=4 / 3), without("host_round_p50_ns", HOST_JUDGED), floors=FLOORS)
    shown = judgement_of(found, HOST.p50)
    assert found.outcome is GateOutcome.UNCHANGED and shown.change is None
    assert "not judged: a run of an earlier version of pairbench lacks" in shown.reason


def test_a_quiet_host_is_judged_beside_runs_that_lack_the_rounds_for_ratios() -> None:
    ratios = {series: replace(floor, host_relative=0.03) for series, floor in FLOORS.items()}
    for before, relative in ((run(0), True), (without(HOST_JUDGED), False)):
        found = changed(run(1, host=4 / 3), before, floors=ratios)
        assert found.outcome is GateOutcome.REGRESSION and "issuing the call takes 20 us more" in found.reason
        assert judgement_of(found, HOST.p50).relative_to_baseline is relative


@pytest.mark.parametrize(
    "before",
    [
        run(0, timer="spin"),
        tuple(replace(one, device_p50_ns=None, device_round_p50_ns=None, device_timer=None) for one in run(0)),
    ],
)
def test_device_latencies_of_two_clocks_are_not_compared(before: tuple[Record, ...]) -> None:
    found = changed(run(1, device=2.0), before)
    assert {one.metric for one in found.judgements if one.verdict} == {CALL.p50, CALL.p95}
    assert found.outcome is GateOutcome.UNCHANGED


def test_a_floor_of_the_call_says_nothing_of_the_device() -> None:
    floors = {series: replace(floor, p50=0.3, p95=0.3, latency="call") for series, floor in FLOORS.items()}
    found = changed(run(1, device=1.03), floors=floors)
    assert found.outcome is GateOutcome.REGRESSION and judgement_of(found, DEVICE.p50).floor is None


def test_side_by_side_the_host_is_judged_without_a_calibration() -> None:
    found = changed(run(1, host=4 / 3, call=2.3), interleaved=True)
    assert found.outcome is GateOutcome.REGRESSION and "issuing the call takes 20 us more" in found.reason
    assert changed(run(1, device=1.02), interleaved=True).reason.startswith("median device latency 2.0 % slower")
    assert changed(run(1, call=2.3), interleaved=True).outcome is GateOutcome.UNCHANGED


def test_an_accepted_level_is_that_of_the_device_and_the_host() -> None:
    worse = run(1, device=1.1, host=1.5)
    variant = next(record for record in worse if record.case == CASES[0] and record.role == "variant")
    series = Series.of(variant)
    assert series is not None
    accepted = acceptance_of(series, [variant], run_id=variant.run_id, at="2026-01-01T00:00:00+00:00", reason="wanted")
    assert accepted.device_p50_ns == variant.device_p50_ns and accepted.host_p50_ns == variant.host_p50_ns
    for current, outcome in ((worse, GateOutcome.UNCHANGED), (run(1, device=1.2, host=1.5), GateOutcome.REGRESSION)):
        assert changed(current, floors=FLOORS, accepted={series: accepted}).outcome is outcome
