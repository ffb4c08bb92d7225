"""From outcomes to rows: every derived number against the plain formula."""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.compare.attribute import era_changes
from pairbench.analyze.records import Run, broken_record, to_records, to_samples
from pairbench.model.breakdown import KernelCount
from pairbench.model.case import make_case
from pairbench.model.environment import Commit, Device, Environment
from pairbench.model.outcome import (
    Correctness,
    EntrySamples,
    Launches,
    Outcome,
    Profile,
    Status,
    Telemetry,
    TimedRound,
    Verification,
)
from pairbench.model.plan import BrokenSuite, Entry, ImplementationDescription
from pairbench.model.record import Record
from pairbench.stats import latency_intervals, speedup_interval
from tests.builders import described

RUN = Run(
    run_id="20260102T030405-abcdef",
    started_at="2026-01-02T03:04:05+00:00",
    commit=Commit(sha="0" * 40, committed_at="2026-01-01T00:00:00+00:00", branch=None, dirty=True),
)
CEILINGS = {"copy_gbps": 4000.0, "bfloat16_tflops": 800.0, "float32_tflops": 50.0}
ENVIRONMENT = Environment(
    device=Device(selector="cuda:0", kind="cuda", name="NVIDIA H200", uuid="GPU-0", capability=(9, 0)),
    driver="570",
    cuda="13.0",
    cudnn="9",
    torch="2.13.0",
    triton="3.7.1",
    python="3.12.3",
    hostname="box",
    cpu="a CPU",
    rest={"flags": {"tf32": False}, "observed": {"ceilings": CEILINGS}},
)
CASE = make_case("op", {"rows": 4, "dtype": "bfloat16", "kernel": (3, 1)}, "real")
OPERATOR = described(
    suite="suites/op.py",
    path="/somewhere/suites/op.py",
    definition_hash="question",
    implementations=tuple(
        ImplementationDescription(name=name, needs=(), hash=f"hash of {name}") for name in ("baseline", "fast")
    ),
    cases=(CASE,),
    costs={CASE.key: (2e9, 4e6)},
)
BASELINE, FAST = Entry(implementation="baseline", mode="eager"), Entry(implementation="fast", mode="eager")
GENERATOR = np.random.default_rng(0)


def draw(scale: float, count: int) -> tuple[float, ...]:
    return tuple(float(value) for value in scale * GENERATOR.lognormal(0, 0.05, count))


def samples(entry: Entry, calls: tuple[float, ...], devices: tuple[float, ...] | None = None) -> EntrySamples:
    count = len(calls)
    return EntrySamples(
        entry=entry,
        position=(0,) * count,
        at_ns=tuple(range(count)),
        call_ns=calls,
        host_ns=tuple(value / 10 for value in calls),
        device_ns=devices,
        device_timer="graph_replay" if devices else None,
    )


def round_of(*entries: EntrySamples, **more: Any) -> TimedRound:
    plain: dict[str, Any] = {
        "round": 0,
        "timer": "cuda_event",
        "throttled": (False,) * max(len(entry.call_ns) for entry in entries),
        "remeasured": 0,
        "stop_reason": "precise",
        "telemetry": Telemetry(),
        "measuring_s": 1.0,
    }
    return TimedRound(entries=entries, **{**plain, **more})


def outcome(entry: Entry, *rounds: TimedRound, **more: Any) -> Outcome:
    plain: dict[str, Any] = {"operator": OPERATOR, "case": CASE, "status": Status.MEASURED}
    return Outcome(entry=entry, rounds=rounds, **{**plain, **more})


def records(*outcomes: Outcome, environment: Environment = ENVIRONMENT) -> list[Record]:
    return to_records(RUN, environment, outcomes)


SLOW = [draw(2e6, count) for count in (40, 30)]
QUICK = [draw(1e6, count) for count in (40, 30)]
DEVICE = [draw(0.9e6, count) for count in (40, 30)]
ROUNDS = tuple(
    round_of(samples(BASELINE, slow), samples(FAST, quick, device), round=index)
    for index, (slow, quick, device) in enumerate(zip(SLOW, QUICK, DEVICE, strict=True))
)


@pytest.fixture(scope="module")
def pair() -> tuple[Record, Record]:
    baseline, fast = records(outcome(BASELINE, *ROUNDS), outcome(FAST, *ROUNDS))
    return baseline, fast


def test_identity(pair: tuple[Record, Record]) -> None:
    _, fast = pair
    assert (fast.run_id, fast.commit, fast.branch, fast.dirty) == (RUN.run_id, "0" * 40, None, True)
    assert (fast.suite, fast.operator, fast.case) == ("suites/op.py", "op", CASE.key)
    assert (fast.definition_hash, fast.implementation_hash) == ("question", "hash of fast")
    assert json.loads(str(fast.axes)) == {"rows": 4, "dtype": "bfloat16", "kernel": [3, 1]}
    assert (fast.tier, fast.dtype, fast.role, fast.mode) == ("real", "bfloat16", "variant", "eager")
    assert (fast.device_name, fast.device_uuid, fast.torch) == ("NVIDIA H200", "GPU-0", "2.13.0")
    assert fast.environment_hash == ENVIRONMENT.hash and json.loads(fast.environment) == ENVIRONMENT.rest
    assert fast.status == "measured" and fast.reason is None


def test_versions_of_packages_are_in_the_environment_of_who_needs_them() -> None:
    def recorded(version: str) -> tuple[Record, Record]:
        plain, fast = OPERATOR.implementations
        packages = {"liger_kernel": version}
        operator = replace(OPERATOR, implementations=(plain, replace(fast, packages=packages, hash=version)))
        before, after = records(*(outcome(entry, *ROUNDS, operator=operator) for entry in (BASELINE, FAST)))
        return before, after

    (control, old), (_, new) = recorded("0.7"), recorded("0.8")
    assert control.environment_hash == old.environment_hash and "liger" not in str(control.environment)
    assert [str(change) for change in era_changes(old, new)] == ["packages.liger_kernel 0.7 -> 0.8"]


def test_each_latency_has_the_percentiles_of_all_its_rounds_with_intervals_and_those_of_each(
    pair: tuple[Record, Record],
) -> None:
    baseline, fast = pair
    hosts = [[value / 10 for value in values] for values in QUICK]
    for name, rounds in (("device", DEVICE), ("call", QUICK), ("host", hosts)):
        for q in (50, 95):
            # Of the host it is the round in which it was quickest.
            (expected,) = latency_intervals(rounds if name != "host" else [min(rounds, key=np.median)], (q,))
            ends = [getattr(fast, f"{name}_p{q}_ns{end}") for end in ("", "_low", "_high")]
            assert ends == pytest.approx(list(expected))
            assert name == "host" or ends[0] == np.percentile(np.concatenate(rounds), q)
            of_rounds = [np.percentile(values, q) for values in rounds]
            assert getattr(fast, f"{name}_round_p{q}_ns") == pytest.approx(of_rounds)
    assert (fast.n_samples, fast.n_rounds, fast.timer, fast.device_timer) == (70, 2, "cuda_event", "graph_replay")
    assert (fast.call_round_p50_ns, fast.call_round_p95_ns) == (fast.round_p50_ns, fast.round_p95_ns)
    lower = [np.mean(sorted(values)[: len(values) // 2]) for values in hosts]
    assert fast.host_round_lower_mean_ns == pytest.approx(lower)
    # The baseline has no device samples here, so there is nothing to compare the variant's with.
    assert (baseline.device_p50_ns, baseline.device_round_p50_ns, fast.device_speedup) == (None, None, None)
    slow, quick = (min(map(np.median, rounds)) for rounds in (SLOW, QUICK))
    assert fast.host_speedup == pytest.approx(slow / quick)
    assert (fast.host_speedup_low or 9) < slow / quick < (fast.host_speedup_high or 0)


def test_the_device_s_speedup_is_of_its_own_pairs() -> None:
    slow = [draw(1.8e6, count) for count in (40, 30)]
    rounds = tuple(
        round_of(samples(BASELINE, call, device), samples(FAST, quick, own), round=index)
        for index, (call, device, quick, own) in enumerate(zip(SLOW, slow, QUICK, DEVICE, strict=True))
    )
    baseline, fast = records(outcome(BASELINE, *rounds), outcome(FAST, *rounds))
    expected = speedup_interval(slow, DEVICE)
    assert (fast.device_speedup, fast.device_speedup_low, fast.device_speedup_high) == pytest.approx(tuple(expected))
    assert fast.bound == "device" and baseline.device_speedup is None


@pytest.mark.parametrize(("host", "bound"), [(10.0, "host"), (0.1, "device")])
def test_what_takes_longer_limits_a_stream_of_calls(host: float, bound: str) -> None:
    taken = replace(samples(FAST, QUICK[0], DEVICE[0]), host_ns=tuple(host * value for value in DEVICE[0]))
    (fast,) = records(outcome(FAST, round_of(taken)))
    assert fast.bound == bound


def test_on_a_cpu_the_host_is_the_call() -> None:
    rounds = tuple(
        round_of(*(replace(samples(entry, calls), host_ns=calls) for entry, calls in ((BASELINE, slow), (FAST, quick))))
        for slow, quick in zip(SLOW, QUICK, strict=True)
    )
    _, fast = records(outcome(BASELINE, *rounds), outcome(FAST, *rounds))
    for call, host in (("call_p50_ns", "host_p50_ns"), ("call_p95_ns", "host_p95_ns"), ("speedup", "host_speedup")):
        for end in ("", "_low", "_high"):
            assert getattr(fast, f"{call}{end}") == getattr(fast, f"{host}{end}")
    assert fast.host_round_p50_ns == fast.round_p50_ns and fast.host_round_lower_mean_ns is None
    assert fast.bound is None and fast.device_speedup is None


def test_the_speedup_is_baseline_over_variant(pair: tuple[Record, Record]) -> None:
    baseline, fast = pair
    expected = speedup_interval(SLOW, QUICK)
    assert (fast.speedup, fast.speedup_low, fast.speedup_high) == expected
    assert fast.speedup == pytest.approx(2, rel=0.05)
    assert (baseline.speedup, baseline.speedup_low, baseline.speedup_high) == (None, None, None)


@pytest.mark.parametrize(
    ("kind", "compiled_ns", "best", "over"),
    [
        ("", 11e5, "baseline", 4.0),  # of no kind, so nobody's alternative
        ("library", 11e5, "other", 3.0),
        ("library", 5e5, "baseline (compile)", 2.0),
    ],
)
def test_the_best_alternative_is_the_fastest_of_the_baseline_its_compiled_form_and_libraries(
    kind: str, compiled_ns: float, best: str, over: float
) -> None:
    own = Entry(implementation="fast", mode="eager")
    latencies = {BASELINE: 1e6, own: 2.5e5, Entry(implementation="other", mode="eager"): 7.5e5}
    latencies[Entry(implementation="baseline", mode="compile")] = compiled_ns
    named = [ImplementationDescription(name=name, needs=(), hash=name) for name in ("baseline", "fast", "other")]
    operator = replace(OPERATOR, implementations=(*named[:2], replace(named[2], kind=kind)))
    rounds = [round_of(*(samples(entry, (ns,) * 20) for entry, ns in latencies.items()))]
    found = records(*(outcome(entry, *rounds, operator=operator) for entry in latencies))
    baseline, fast, other, compiled = found
    assert fast.best_alternative == best and fast.speedup_over_best == pytest.approx(over)
    assert fast.speedup == pytest.approx(4.0)
    assert other.best_alternative in ("baseline", "baseline (compile)")
    assert baseline.best_alternative is compiled.best_alternative is None


def test_no_baseline_no_speedup() -> None:
    (alone,) = records(outcome(FAST, *ROUNDS))
    assert alone.speedup is None and alone.call_p50_ns is not None
    _, beside_failed = records(outcome(BASELINE, status=Status.FAILED, reason="x"), outcome(FAST, *ROUNDS))
    assert beside_failed.speedup is None and beside_failed.status == "measured"
    graph = Entry(implementation="fast", mode="graph")
    rounds = tuple(
        replace(timed, entries=(*timed.entries, samples(graph, calls)))
        for timed, calls in zip(ROUNDS, QUICK, strict=True)
    )
    _, in_graph = records(outcome(BASELINE, *rounds), outcome(graph, *rounds))
    assert in_graph.speedup is None, "a speedup is within a mode"


def test_throttled_blocks_are_left_out_only_where_measured_again() -> None:
    calls = (1e6, 1e6, 9e6, 1e6)
    labels = (False, False, True, False)
    again = round_of(samples(BASELINE, calls), samples(FAST, calls, calls), throttled=labels, remeasured=1)
    (left_out,) = records(outcome(FAST, again))
    assert left_out.n_samples == 3 and left_out.call_p95_ns == 1e6 and left_out.device_p95_ns == 1e6
    assert left_out.remeasured_blocks == 1
    (kept,) = records(outcome(FAST, replace(again, remeasured=0)))
    assert kept.n_samples == 4 and kept.call_p95_ns == np.percentile(calls, 95) and kept.remeasured_blocks == 0
    (raw,) = to_samples(RUN, ENVIRONMENT, [outcome(FAST, again)])
    assert raw.call_ns == calls and raw.throttled == labels, "the raw samples are all kept"


def test_do_bench_takes_as_many_samples_of_each_as_it_likes() -> None:
    long, short = draw(2e6, 50), draw(1e6, 20)
    timed = round_of(samples(BASELINE, long), samples(FAST, short), timer="do_bench")
    baseline, fast = records(outcome(BASELINE, timed), outcome(FAST, timed))
    assert (baseline.n_samples, fast.n_samples, fast.timer) == (50, 20, "do_bench")
    assert fast.speedup is not None and fast.speedup == pytest.approx(2, rel=0.1)
    kept = {
        row.implementation: len(row.throttled)
        for row in to_samples(RUN, ENVIRONMENT, [outcome(BASELINE, timed), outcome(FAST, timed)])
    }
    assert kept == {"baseline": 50, "fast": 20}


def test_the_roofline_takes_the_device_latency_where_there_is_one(pair: tuple[Record, Record]) -> None:
    baseline, fast = pair
    assert (fast.flops, fast.bytes_moved) == (2e9, 4e6)
    device = fast.device_p50_ns
    assert device is not None
    assert fast.tflops == pytest.approx(2e9 / (device * 1e-9) / 1e12)
    assert fast.gbps == pytest.approx(4e6 / (device * 1e-9) / 1e9)
    # 2 GFLOP at 800 TFLOP/s take 2.5 us, 4 MB at 4 TB/s 1 us: the longer one is the floor.
    assert fast.roofline_fraction == pytest.approx(2500 / device)
    assert baseline.device_p50_ns is None
    assert baseline.gbps == pytest.approx(4e6 / baseline.call_p50_ns)  # type: ignore[operator]


def test_the_roof_without_a_dtype_of_several_gpus_and_without_a_ceiling_or_a_cost() -> None:
    """The ceiling of float32 would put a case that computes in bfloat16 at several times its roof."""
    case = make_case("op", {"rows": 4}, "real")
    operator = replace(OPERATOR, cases=(case,), costs={case.key: (2e9, 4e6)})
    (found,) = records(outcome(FAST, *ROUNDS, operator=operator, case=case))
    assert found.device_p50_ns is not None
    assert found.roofline_fraction == pytest.approx(2500 / found.device_p50_ns)
    on_four = tuple(replace(one, needs=("triton", "gpus:4")) for one in OPERATOR.implementations)
    (alone,), (four,), (costless,) = (
        records(outcome(FAST, *ROUNDS, operator=operator))
        for operator in (OPERATOR, replace(OPERATOR, implementations=on_four), replace(OPERATOR, costs={}))
    )
    assert four.roofline_fraction == pytest.approx(alone.roofline_fraction / 4)  # type: ignore[operator]
    assert four.gbps == alone.gbps
    assert (costless.flops, costless.gbps, costless.roofline_fraction) == (None, None, None)
    (bare,) = records(outcome(FAST, *ROUNDS), environment=replace(ENVIRONMENT, rest={}))
    assert bare.roofline_fraction is None and bare.gbps is not None


def test_device_latencies_need_every_round_and_the_most_limiting_stop_reason_counts() -> None:
    rounds = (ROUNDS[0], round_of(samples(BASELINE, SLOW[1]), samples(FAST, QUICK[1]), round=1))
    (found,) = records(outcome(FAST, *rounds))
    assert (found.device_p50_ns, found.device_p95_ns, found.device_timer) == (None, None, None)
    stopped = [replace(ROUNDS[0], stop_reason=reason) for reason in ("precise", "time_cap", "sample_cap")]
    assert records(outcome(FAST, *stopped))[0].stop_reason == "time_cap"


def test_a_configuration_that_not_all_rounds_chose_says_how_many_did() -> None:
    calls = draw(1e6, 20)
    rounds = [
        round_of(replace(samples(BASELINE, calls), autotuned=(f"add: BLOCK={block}", "mul: BLOCK=1")))
        for block in (64, 128, 64)
    ]
    (record,) = records(outcome(BASELINE, *rounds))
    assert record.autotuned == ("add: BLOCK=64 (in 2 of 3 rounds)", "mul: BLOCK=1", "add: BLOCK=128 (in 1 of 3 rounds)")
    (plain,) = records(outcome(BASELINE, round_of(samples(BASELINE, calls))))
    assert plain.autotuned is None


def test_telemetry_over_rounds() -> None:
    readings = [
        Telemetry(sm_clock_mhz=1900, temperature_c=50, power_w=300, throttle_reasons=("sw_power_cap",)),
        Telemetry(sm_clock_mhz=1700, temperature_c=70, power_w=500, throttle_reasons=()),
    ]
    rounds = [replace(timed, telemetry=reading) for timed, reading in zip(ROUNDS, readings, strict=True)]
    (found,) = records(outcome(FAST, *rounds))
    assert (found.sm_clock_mhz, found.temperature_c, found.power_w) == (1800, 70, 400)
    assert found.throttle_reasons == "sw_power_cap"
    (none,) = records(outcome(FAST, replace(ROUNDS[0], telemetry=readings[1])))
    assert none.throttle_reasons == "", "nothing seen is not the same as not looked"
    (unknown,) = records(outcome(FAST, *ROUNDS))
    assert unknown.throttle_reasons is None and unknown.sm_clock_mhz is None


def test_what_was_not_measured_has_no_latency() -> None:
    names = ("max_abs_error", "mean_abs_error", "rel_l2_error", "oracle_ratio", "mismatched_fraction", "rtol", "atol")
    errors: dict[str, Any] = {**dict(zip(names, (1.0, 0.5, 0.1, 3.0, 0.25, 1e-3, 1e-5), strict=True)), "margin": -2.0}
    verification = Verification(
        entry=FAST, status=Status.MISMATCHED, first_call_ns=5.0, reuses_output=True, correctness=Correctness(**errors)
    )
    (found,) = records(outcome(FAST, *ROUNDS, status=Status.MISMATCHED, reason="wrong", verification=verification))
    assert (found.status, found.reason) == ("mismatched", "wrong")
    assert (found.call_p50_ns, found.n_samples, found.timer, found.speedup) == (None,) * 4
    assert {name: getattr(found, name) for name in errors} == errors
    assert found.first_call_ns == 5.0 and found.reuses_output is True


def test_the_profile() -> None:
    counts: dict[str, Any] = {"launches": 3, "kernels": 5, "graph_launches": 1, "memcpys": 2, "memcpy_bytes": 64}
    counts |= {"memsets": 0, "syncs": 1}
    kernels = (KernelCount(name="k", count=5, total_ns=10.0),)
    launches = Launches(status="exact", kernel_counts=kernels, **counts)
    profile = Profile(entry=FAST, launches=launches, ops=7, peak_bytes=512, allocations=2, reason="a note")
    (found,) = records(outcome(FAST, *ROUNDS, profile=profile, reason="another"))
    assert {name: getattr(found, f"{name}_per_call") for name in counts} == counts
    assert (found.ops_per_call, found.peak_bytes, found.allocations_per_call) == (7, 512, 2)
    assert found.launch_status == "exact" and found.kernels == kernels
    assert found.reason == "another; a note"


def test_a_broken_suite_has_a_row_of_the_environment_and_the_reason() -> None:
    found = broken_record(RUN, ENVIRONMENT, BrokenSuite(suite="suites/bad.py", reason="line 3: no"))
    assert (found.suite, found.status, found.reason) == ("suites/bad.py", "failed", "line 3: no")
    assert found.operator is None and found.case is None and found.device_name == "NVIDIA H200"
    filled = {item.name for item in fields(Record) if getattr(found, item.name) is not None}
    assert {"run_id", "commit", "environment_hash"} <= filled and "call_p50_ns" not in filled


def test_samples_are_a_row_a_round_with_labels() -> None:
    calls = (*draw(1e6, 20), 9e7)
    rounds = [round_of(samples(FAST, calls)), round_of(samples(FAST, QUICK[1]), round=1, stop_reason="time_cap")]
    first, second = to_samples(RUN, ENVIRONMENT, [outcome(FAST, *rounds), outcome(BASELINE, *rounds)])
    assert (first.round, second.round, second.stop_reason) == (0, 1, "time_cap")
    assert first.call_ns == calls and first.block == tuple(range(21))
    assert first.outlier == (False,) * 20 + (True,)
    assert first.device_ns is None and first.host_ns is not None and len(first.host_ns) == 21


def test_nothing_gives_nothing_and_outside_a_checkout_there_is_no_commit() -> None:
    assert records() == [] and to_samples(RUN, ENVIRONMENT, [outcome(FAST)]) == []
    assert records(outcome(FAST))[0].call_p50_ns is None
    (found,) = to_records(replace(RUN, commit=None), ENVIRONMENT, [outcome(FAST, *ROUNDS)])
    assert (found.commit, found.commit_at, found.branch, found.dirty) == (None,) * 4


@pytest.mark.parametrize("seen", [("tf32", None), (None, "tf32"), (None, None)])
def test_the_precision_is_the_cases(seen: tuple[str | None, str | None]) -> None:
    """What a replay or a Triton kernel multiplies is not dispatched; the baseline of the case tells it."""
    profiles = [
        Profile(entry=entry, launches=Launches(status="exact"), float32_precision=precision)
        for entry, precision in zip((BASELINE, FAST), seen, strict=True)
    ]
    rows = records(*(outcome(profile.entry, profile=profile) for profile in profiles), outcome(FAST))
    assert [row.float32_precision for row in rows] == ["tf32" if any(seen) else None] * 3
