"""Results that cannot be are no results; every honest one of the reference runs is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairbench.analyze.records import BANDWIDTH_LIMIT, RATE_LIMIT, believed, to_samples, why_no_replay
from pairbench.model.environment import Device, HostLoad
from pairbench.model.outcome import Launches, Outcome, Profile, Status
from pairbench.model.plan import Entry
from tests.analyze.test_records import (
    BASELINE,
    CASE,
    ENVIRONMENT,
    FAST,
    OPERATOR,
    RUN,
    outcome,
    records,
    round_of,
    samples,
)

REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "records"
CPU = replace(ENVIRONMENT, device=Device(selector="cpu", kind="cpu", name="a CPU"))


def timed(entry: Entry, ns: float, device_ns: float | None = None, **more: object) -> Outcome:
    devices = None if device_ns is None else (device_ns,) * 20
    return outcome(entry, round_of(samples(entry, (ns,) * 20, devices)), **more)


def profile(entry: Entry, ops: int, launches: int | None, allocations: int = 1, status: str = "exact") -> Profile:
    of_call = Launches(status=status, launches=launches, kernels=launches)
    return Profile(entry=entry, launches=of_call, ops=ops, allocations=allocations)


def judged(ours: Outcome, *others: Outcome, environment: object = ENVIRONMENT) -> Outcome:
    *_, found = believed([*others, ours], environment)  # type: ignore[arg-type]
    return found


CACHED = replace(ENVIRONMENT, rest={**ENVIRONMENT.rest, "gpu": {"l2_bytes": 60_000_000}})
TWO_GPUS = replace(
    OPERATOR, implementations=tuple(replace(item, needs=("gpus:2",)) for item in OPERATOR.implementations)
)


@pytest.mark.parametrize(
    ("flops", "moved", "ns", "device_ns", "changes", "environment", "words"),
    [
        # 8e12 FLOP at the highest rate of 800 TFLOP/s take 10 ms, a fifth of that is 2 ms.
        (8e12, 1.0, 1.9e6, None, {}, ENVIRONMENT, "implausible: 1.9e+03 us for the 8e+12 FLOP"),
        (8e12, 1.0, 1.9e6, None, {}, ENVIRONMENT, "5.26 times the highest rate measured here, 800"),
        (8e12, 1.0, 2.1e6, None, {}, ENVIRONMENT, ""),
        # 4e9 bytes at 4000 GB/s take 1 ms: of the device, where its latency is known.
        (1.0, 4e9, 1e6, 0.6e6, {}, ENVIRONMENT, "1.67 times the bandwidth of a copy here, 4000"),
        (1.0, 4e9, 1e6, 0.7e6, {}, ENVIRONMENT, ""),
        (1.0, 60e6, 1e3, None, {}, CACHED, ""),
        (1.0, 60e6, 1e3, None, {}, ENVIRONMENT, "bandwidth"),
        # A CPU may have everything in its caches.
        (1.0, 4e9, 1e3, None, {}, CPU, ""),
        (8e12, 1.0, 0.4e6, None, {}, CPU, "highest rate"),
        # Several GPUs have so many roofs.
        (8e12, 1.0, 1.5e6, None, {}, ENVIRONMENT, "highest rate"),
        (8e12, 1.0, 1.5e6, None, {"implementations": TWO_GPUS.implementations}, ENVIRONMENT, ""),
        # No cost or no ceiling, no limit.
        (8e12, 4e9, 1.0, None, {"costs": {}}, ENVIRONMENT, ""),
        (8e12, 4e9, 1.0, None, {}, replace(ENVIRONMENT, rest={}), ""),
    ],
)
def test_what_hardware_and_caches_allow(
    flops: float, moved: float, ns: float, device_ns: float | None, changes: Any, environment: object, words: str
) -> None:
    ours = timed(FAST, ns, device_ns)
    operator = replace(OPERATOR, **{"costs": {CASE.key: (flops, moved)}, **changes})
    found = judged(replace(ours, operator=operator), environment=environment)
    assert found.status is (Status.FAILED if words else Status.MEASURED)
    assert words in str(found.reason) and bool(found.rounds) is not bool(words)


@pytest.mark.parametrize(("environment", "status"), [(ENVIRONMENT, "exact"), (CPU, "not_applicable")])
def test_a_call_that_does_nothing_where_the_baseline_works(environment: object, status: str) -> None:
    none = None if status != "exact" else 0
    control = timed(BASELINE, 5e6, profile=profile(BASELINE, 3, 3, status=status))
    idle = timed(FAST, 5e6, profile=profile(FAST, 0, none, 0, status=status))
    found = judged(idle, control, environment=environment)
    assert found.status is Status.FAILED and found.profile is not None
    assert "implausible: a call dispatches 0 operators and" in str(found.reason)
    assert "baseline dispatches 3" in str(found.reason)


@pytest.mark.parametrize(
    ("ours", "theirs", "environment"),
    [
        # A kernel of Triton's own dispatches nothing and launches something.
        (profile(FAST, 0, 1, 0), profile(BASELINE, 3, 3), ENVIRONMENT),
        # Both return their input as it is.
        (profile(FAST, 0, 0, 0), profile(BASELINE, 0, 0, 0), ENVIRONMENT),
        # A view, as the baseline's, that does not even dispatch.
        (profile(FAST, 0, 0, 0), profile(BASELINE, 1, 0, 0), ENVIRONMENT),
        (profile(FAST, 0, 0, 0, "unreliable"), profile(BASELINE, 3, 3), ENVIRONMENT),
        # Native code that writes into state, beside a baseline that does so by an operator.
        (profile(FAST, 0, None, 0, "not_applicable"), profile(BASELINE, 1, None, 0, "not_applicable"), CPU),
        (profile(FAST, 0, None, 1, "not_applicable"), profile(BASELINE, 1, None, 1, "not_applicable"), CPU),
        # Compiled code on a CPU.
        (profile(replace(FAST, mode="compile"), 0, None, 0), profile(replace(BASELINE, mode="compile"), 3, None), CPU),
    ],
)
def test_what_does_little_and_may(ours: Profile, theirs: Profile, environment: object) -> None:
    both = [timed(item.entry, 5e6, profile=item) for item in (ours, theirs)]
    assert judged(*both, environment=environment).status is Status.MEASURED


def test_its_record_has_no_latency_and_an_implausible_baseline_gives_no_speedup() -> None:
    control, ours = timed(BASELINE, 5e6), timed(FAST, 5e6)
    cheap = replace(control, operator=replace(OPERATOR, costs={CASE.key: (8e15, 1.0)}))
    baseline, fast = records(cheap, ours)
    assert (baseline.status, baseline.call_p50_ns, baseline.n_samples) == ("failed", None, None)
    assert str(baseline.reason).startswith("implausible: ")
    assert fast.status == "measured" and fast.speedup is None


def test_no_honest_implementation_of_the_reference_runs_is_near_the_limits() -> None:
    """Recomputed from the stored rows: what the docstrings of the limits say is the highest there."""
    columns = ["status", "bytes_moved", "device_kind", "environment", "device_p50_ns", "call_p50_ns", "flops"]
    rows = [
        row
        for file in REFERENCE.rglob("*.parquet")
        for row in pq.read_table(file, columns=columns, partitioning=None).to_pylist()
        if row["status"] == "measured" and row["bytes_moved"] is not None and row["device_kind"] == "cuda"
    ]
    highest_rate = highest_bandwidth = 0.0
    for row in rows:
        ceilings = json.loads(row["environment"])["observed"]["ceilings"]
        latency_ns = row["device_p50_ns"] or row["call_p50_ns"]
        rate = max(value for name, value in ceilings.items() if name.endswith("_tflops"))
        highest_rate = max(highest_rate, row["flops"] / latency_ns / 1e3 / rate)
        highest_bandwidth = max(highest_bandwidth, row["bytes_moved"] / latency_ns / ceilings["copy_gbps"])
    assert len(rows) >= 2880
    assert 0.9 < highest_rate < 1 < RATE_LIMIT["cuda"]
    assert 1 < highest_bandwidth < 1.1 < BANDWIDTH_LIMIT


def replayed(
    entry: Entry, device_us: float, stream_us: float | None, launches: int | None = 1, **more: float
) -> Outcome:
    """Return an outcome of two rounds, with samples of a stream in two of twenty blocks."""
    call_us, host_us = more.get("call_us", stream_us or device_us), more.get("host_us", 5.0)
    streams = None if stream_us is None else (None, stream_us * 1e3, stream_us * 1e3, *(None,) * 17)
    taken = samples(entry, (call_us * 1e3,) * 20, (device_us * 1e3,) * 20)
    taken = replace(taken, host_ns=(host_us * 1e3,) * 20, stream_ns=streams)
    rounds = [round_of(taken, round=number) for number in range(2)]
    return outcome(entry, *rounds, profile=None if launches is None else profile(entry, 1, launches))


@pytest.mark.parametrize(
    ("device_us", "stream_us", "launches"),
    [
        (18.6, 24.3, 8),  # a chain: 0.7 us a launch
        (262.0, 285.4, 7),  # the honest entry that is nearest to the limit: 87 % of it
        (1402.0, 1407.0, 1),
        (4.5, 4.3, 1),  # a single kernel, by a tick
        (7.33, 7.07, 1),
        (27.0, None, 1),
        (27.0, 60.0, None),  # nothing is known of its launches yet
    ],
)
def test_a_replay_that_its_stream_explains_is_believed(
    device_us: float, stream_us: float | None, launches: int | None
) -> None:
    found = judged(replayed(FAST, device_us, stream_us, launches))
    assert why_no_replay(found) is None and found.reason is None
    assert {one.device_timer for timed in found.rounds for one in timed.entries} == {"graph_replay"}


@pytest.mark.parametrize(
    ("device_us", "stream_us", "launches", "words"),
    [
        (26.9, 581.6, 2, "its own launches take 581.6 us on the device, a replay of the captured call 26.9 us, and 2"),
        (100.0, 110.0, 2, "2 launches explain 9.0 us at most"),
        (100.0, 96.0, 8, "its own launches take 96.0 us on the device, and a replay of the captured call 100.0 us"),
        (4.5, 3.8, 1, "its own launches take 3.8 us"),
    ],
)
def test_a_replay_that_its_stream_contradicts_is_not_believed(
    device_us: float, stream_us: float, launches: int, words: str
) -> None:
    """Then the case has the latencies of its streams, the baseline too: a replay is not divided by a stream."""
    slow = replayed(BASELINE, 600.0, 610.0, 8)
    ours = replayed(FAST, device_us, stream_us, launches)
    base, fast = records(slow, ours)
    assert fast.status == base.status == "measured"
    assert fast.device_timer == base.device_timer == "spin"
    assert fast.device_p50_ns == fast.stream_p50_ns == pytest.approx(stream_us * 1e3)
    assert base.device_p50_ns == pytest.approx(610e3)
    assert fast.device_speedup == fast.stream_speedup == pytest.approx(610 / stream_us)
    reason = "its device latency is that of its own launches, for a replay is not believed: "
    assert str(fast.reason).startswith(reason) and words in str(fast.reason)
    assert base.reason == "its device latency is that of its own launches, for a replay beside it is not believed"
    (raw,) = to_samples(RUN, ENVIRONMENT, [ours])[:1]
    assert raw.device_ns == (device_us * 1e3,) * 20 and raw.stream_ns is not None, "what is not believed is kept"
    other = replace(ours, entry=replace(FAST, mode="compile"))
    assert records(slow, other)[0].device_timer == "graph_replay", "another mode is another pair"


def test_a_call_that_takes_longer_than_device_and_host_together() -> None:
    """In each round: what else runs slows single ones."""
    ours = replayed(FAST, 27.0, None, 1, call_us=581.0, host_us=93.0)
    (found,) = records(ours)
    words = "although the device needs 27.0 us for a replay of it and the host 93.0 us to issue it"
    reason = f"its device latency is not known, for a replay is not believed: a call takes 581.0 us, {words}"
    assert found.reason == reason
    assert found.device_p50_ns is None and found.device_timer is None, "there is no stream to take its place"
    assert found.call_p50_ns == pytest.approx(581e3)
    honest = replayed(FAST, 27.0, None, 1, call_us=150.0, host_us=93.0)
    mixed = replace(ours, rounds=(ours.rounds[0], honest.rounds[1]))
    assert records(mixed)[0].reason is None


@pytest.mark.parametrize(("call_ns", "status"), [(17.6e3, "measured"), (16.4e3, "failed"), (2e-14, "failed")])
def test_a_call_that_takes_less_than_the_device_needs(call_ns: float, status: str) -> None:
    found = judged(timed(FAST, call_ns, 34e3))
    words = f"implausible: a call takes {call_ns / 1e3:.3g} us, although the device needs 34.0 us for its work"
    assert (found.status, found.reason) == (status, words if status == "failed" else None)


def test_a_replay_is_not_divided_by_launches() -> None:
    """Where a call cannot be captured, its device latency is that of its launches, and the speedup that of both streams."""
    launched = replayed(FAST, 52.7, 52.7, 2)
    spun = replace(launched.rounds[0].entries[0], device_timer="spin", stream_ns=(52.7e3,) * 20)
    rounds = tuple(replace(timed, entries=(spun,)) for timed in launched.rounds)
    slow, fast = records(replayed(BASELINE, 47.5, 51.0, 6), replace(launched, rounds=rounds))
    assert (slow.device_timer, fast.device_timer) == ("graph_replay", "spin")
    assert fast.device_speedup == fast.stream_speedup == pytest.approx(51.0 / 52.7)


def controlled(*alone_us: tuple[float, ...], device_us: float | None = None) -> tuple[Outcome, ...]:
    """Return a baseline of 200 us beside a variant, in rounds in which it took so long alone; on a GPU if a device's latency is given."""
    devices = None if device_us is None else (device_us * 1e3,) * 20
    timer = "perf_counter" if device_us is None else "cuda_event"
    both = round_of(samples(BASELINE, (2e5,) * 20, devices), samples(FAST, (1e5,) * 20, devices), timer=timer)
    rounds = [replace(both, alone_ns=tuple(us * 1e3 for us in taken)) for taken in alone_us]
    return tuple(outcome(entry, *rounds) for entry in (BASELINE, FAST))


@pytest.mark.parametrize(
    ("alone_us", "slowed"),
    [
        ([(100.0,) * 9], True),
        ([(100.0,) * 9, ()], True),
        ([(100.0,) * 9, (190.0,) * 9], False),  # in a round it was not
        ([(140.0,) * 9], False),  # by less than half
        ([(100.0,) * 5 + (150.0,) * 4], False),  # alone some calls took about as long
        ([(100.0,) * 2], False),  # nobody knows how far these spread
        ([(), ()], False),
    ],
)
def test_a_baseline_that_is_slower_beside_the_variants_gives_no_speedup(
    alone_us: list[tuple[float, ...]], slowed: bool
) -> None:
    baseline, fast = records(*controlled(*alone_us), environment=CPU)
    assert baseline.status == fast.status == "measured" and fast.call_p50_ns == 1e5
    assert (fast.speedup is None) is (fast.speedup_low is None) is slowed
    words = "its speedup is withheld: the baseline takes 200.0 us beside the variants and 100.0 us in a process where none was called"
    assert all((words in (record.reason or "")) is slowed for record in (baseline, fast))


@pytest.mark.parametrize(("device_us", "slowed"), [(200.0, True), (100.0, False)])
def test_on_a_gpu_latencies_of_the_device_are_compared(device_us: float, slowed: bool) -> None:
    baseline, _ = records(*controlled((100.0,) * 9, device_us=device_us))
    assert ("its speedup is withheld: the baseline takes 200.0 us" in (baseline.reason or "")) is slowed


def test_on_a_busy_host_that_says_nothing_of_who_slowed_it() -> None:
    busy = HostLoad(cores=2, before=1.9).put_in(CPU)
    assert all(record.reason is None for record in records(*controlled((100.0,) * 9), environment=busy))
