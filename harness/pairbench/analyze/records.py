"""Makes the rows of a store from outcomes: statistics are derived here, from raw samples, and nowhere else."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairbench.analyze.plausible import believed
from pairbench.model.environment import Commit, Environment
from pairbench.model.outcome import STOP_REASONS, EntrySamples, Outcome, Status, TimedRound
from pairbench.model.plan import BrokenSuite, Entry
from pairbench.model.record import Record, Samples
from pairbench.stats import Interval, latency_interval, outliers, percentile, speedup_interval


@dataclass(frozen=True, kw_only=True)
class Run:
    """One invocation of pairbench, as all its records name it."""

    run_id: str
    started_at: str
    commit: Commit | None
    confirms: str | None = None
    """The run whose suspects this one measures again."""


def to_records(
    run: Run, environment: Environment, outcomes: Iterable[Outcome], *, resamples: int = 1000
) -> list[Record]:
    """Return the rows of some outcomes of one case; a variant's speedup needs its baseline's outcome among them.

    Measured outcomes that cannot be (`plausible.believed`) become rows with the status `failed`, without latencies.

    Args:
        run: The invocation.
        environment: Where it was made.
        outcomes: Of one case.
        resamples: Of the bootstrap; fewer are enough for rows that a later round will replace.
    """
    known = believed(tuple(outcomes), environment)
    controls = {item.entry.mode: item for item in known if item.entry.role == "baseline"}
    return [_record(run, environment, item, controls.get(item.entry.mode), resamples) for item in known]


def broken_record(run: Run, environment: Environment, suite: BrokenSuite) -> Record:
    """Return the row of a suite that could not be loaded."""
    return Record(**_run_columns(run, environment), suite=suite.suite, status=Status.FAILED.value, reason=suite.reason)


def to_samples(run: Run, environment: Environment, outcomes: Iterable[Outcome]) -> list[Samples]:
    """Return the raw samples behind some outcomes, one row a round."""
    rows = []
    for outcome in outcomes:
        for timed in outcome.rounds:
            samples = _of(timed, outcome.entry)
            if samples is None:
                continue
            count = len(samples.call_ns)
            rows.append(
                Samples(
                    run_id=run.run_id,
                    device_name=environment.device.name,
                    device_uuid=environment.device.uuid,
                    suite=outcome.operator.suite,
                    operator=outcome.operator.name,
                    case=outcome.case.key,
                    implementation=outcome.entry.implementation,
                    mode=outcome.entry.mode,
                    timer=timed.timer,
                    round=timed.round,
                    stop_reason=timed.stop_reason,
                    block=tuple(range(count)),
                    position=samples.position,
                    at_ns=samples.at_ns,
                    call_ns=samples.call_ns,
                    host_ns=samples.host_ns,
                    device_ns=samples.device_ns,
                    throttled=timed.throttled[:count],
                    outlier=tuple(bool(label) for label in outliers(samples.call_ns)),
                )
            )
    return rows


def _record(run: Run, environment: Environment, outcome: Outcome, control: Outcome | None, resamples: int) -> Record:
    operator, case, entry = outcome.operator, outcome.case, outcome.entry
    hashes = {item.name: item.hash for item in operator.implementations}
    return Record(
        **_run_columns(run, environment),
        suite=operator.suite,
        operator=operator.name,
        definition_hash=operator.definition_hash,
        implementation_hash=hashes[entry.implementation],
        case=case.key,
        axes=json.dumps(dict(case.axes)),
        tier=case.tier,
        dtype=case.dtype,
        implementation=entry.implementation,
        role=entry.role,
        mode=entry.mode,
        status=outcome.status.value,
        reason=_reason(outcome),
        **_correctness_columns(outcome),
        **_latency_columns(outcome, control, environment, resamples),
        **_profile_columns(outcome),
    )


def _reason(outcome: Outcome) -> str | None:
    notes = [outcome.reason, outcome.profile.reason if outcome.profile else None]
    return "; ".join(note for note in notes if note) or None


def _run_columns(run: Run, environment: Environment) -> dict[str, Any]:
    commit = run.commit
    return {
        "run_id": run.run_id,
        "confirms": run.confirms,
        "started_at": run.started_at,
        "commit": commit.sha if commit else None,
        "commit_at": commit.committed_at if commit else None,
        "branch": commit.branch if commit else None,
        "dirty": commit.dirty if commit else None,
        **environment_columns(environment),
    }


def environment_columns(environment: Environment) -> dict[str, Any]:
    """Return an environment as columns of a record."""
    device = environment.device
    return {
        "device_kind": device.kind,
        "device_name": device.name,
        "device_uuid": device.uuid,
        "driver": environment.driver,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "torch": environment.torch,
        "triton": environment.triton,
        "python": environment.python,
        "hostname": environment.hostname,
        "cpu": environment.cpu,
        "environment_hash": environment.hash,
        "environment": json.dumps(environment.rest, sort_keys=True, default=str),
    }


def _correctness_columns(outcome: Outcome) -> dict[str, Any]:
    verification = outcome.verification
    if verification is None:
        return {}
    columns: dict[str, Any] = {
        "first_call_ns": verification.first_call_ns,
        "graph_capturable": verification.capturable,
        "graph_capture_reason": verification.uncapturable,
    }
    if (compilation := verification.compilation) is not None:
        columns |= {
            "compilations": compilation.compilations,
            "recompilations": compilation.recompilations,
            "graph_breaks": compilation.graph_breaks,
            "compile_notes": compilation.notes,
        }
    if (correctness := verification.correctness) is not None:
        columns |= {name: getattr(correctness, name) for name in correctness.__dataclass_fields__}
    return columns


def _latency_columns(
    outcome: Outcome, control: Outcome | None, environment: Environment, resamples: int
) -> dict[str, Any]:
    rounds = _good_rounds(outcome)
    if outcome.status is not Status.MEASURED or not rounds:
        return {}
    calls = [samples for samples, _ in rounds]
    p50, p95 = (latency_interval(calls, q, resamples=resamples) for q in (50, 95))
    devices = [devices for _, devices in rounds]
    device = (
        [value for of_round in devices if of_round is not None for value in of_round] if None not in devices else []
    )
    entries = [samples for timed in outcome.rounds if (samples := _of(timed, outcome.entry))]
    hosts = [value for samples in entries for value in samples.host_ns or ()]
    firsts = [samples.first_call_ns for samples in entries if samples.first_call_ns is not None]
    columns: dict[str, Any] = {
        "timer": outcome.rounds[0].timer,
        **interval_columns("call_p50_ns", p50),
        **interval_columns("call_p95_ns", p95),
        "device_timer": entries[0].device_timer if device else None,
        "device_p50_ns": percentile(device, 50) if device else None,
        "device_p95_ns": percentile(device, 95) if device else None,
        "host_p50_ns": percentile(hosts, 50) if hosts else None,
        "warm_first_call_ns": percentile(firsts, 50) if firsts else None,
        "n_samples": sum(len(samples) for samples in calls),
        "n_rounds": len(rounds),
        "round_p50_ns": tuple(percentile(samples, 50) for samples in calls),
        "round_p95_ns": tuple(percentile(samples, 95) for samples in calls),
        "stop_reason": max((timed.stop_reason for timed in outcome.rounds), key=STOP_REASONS.index),
        **_speedup_columns(outcome, control, resamples),
        **roofline_columns(
            outcome, latency_ns=percentile(device, 50) if device else p50.estimate, environment=environment
        ),
        **_telemetry_columns(outcome.rounds),
    }
    return columns


def interval_columns(name: str, interval: Interval) -> dict[str, float | None]:
    """Return the columns of an estimate and of the ends of its interval, null where it has none."""
    low, high = (None if math.isnan(end) else end for end in interval[1:])
    return {name: interval.estimate, f"{name}_low": low, f"{name}_high": high}


def _of(timed: TimedRound, entry: Entry) -> EntrySamples | None:
    return next((samples for samples in timed.entries if samples.entry == entry), None)


def call_samples(outcome: Outcome) -> list[list[float]]:
    """Return the call latencies behind an outcome's percentiles, in ns, of each round."""
    return [calls for calls, _ in _good_rounds(outcome)]


def _good_rounds(outcome: Outcome) -> list[tuple[list[float], list[float] | None]]:
    """Return call and device samples of each round, without the throttled blocks that were measured again."""
    rounds = []
    for timed in outcome.rounds:
        if (samples := _of(timed, outcome.entry)) is None:
            continue
        keep = [not (timed.remeasured and throttled) for throttled in timed.throttled]
        calls = [value for value, kept in zip(samples.call_ns, keep, strict=False) if kept]
        devices = samples.device_ns
        rounds.append((calls, None if devices is None else [v for v, kept in zip(devices, keep, strict=False) if kept]))
    return rounds


def _speedup_columns(outcome: Outcome, control: Outcome | None, resamples: int) -> dict[str, float | None]:
    if control is None or control.status is not Status.MEASURED or outcome.entry.role == "baseline":
        return {}
    ours = [calls for calls, _ in _good_rounds(outcome)]
    theirs = [calls for calls, _ in _good_rounds(control)]
    # Triton's do_bench takes as many samples of each as it likes; pairs are what both have.
    lengths = [min(len(a), len(b)) for a, b in zip(theirs, ours, strict=True)]
    interval = speedup_interval(
        [values[:n] for values, n in zip(theirs, lengths, strict=True)],
        [values[:n] for values, n in zip(ours, lengths, strict=True)],
        resamples=resamples,
    )
    return interval_columns("speedup", interval)


def _telemetry_columns(rounds: tuple[TimedRound, ...]) -> dict[str, Any]:
    readings = [timed.telemetry for timed in rounds]
    clocks = [item.sm_clock_mhz for item in readings if item.sm_clock_mhz is not None]
    temperatures = [item.temperature_c for item in readings if item.temperature_c is not None]
    powers = [item.power_w for item in readings if item.power_w is not None]
    reasons = [item.throttle_reasons for item in readings if item.throttle_reasons is not None]
    return {
        "sm_clock_mhz": percentile(clocks, 50) if clocks else None,
        "temperature_c": max(temperatures, default=None),
        "power_w": percentile(powers, 50) if powers else None,
        "throttle_reasons": ",".join(sorted({name for names in reasons for name in names})) if reasons else None,
        "remeasured_blocks": sum(timed.remeasured for timed in rounds),
    }


def _profile_columns(outcome: Outcome) -> dict[str, Any]:
    profile = outcome.profile
    if profile is None:
        return {}
    launches = profile.launches
    return {
        "launches_per_call": launches.launches,
        "kernels_per_call": launches.kernels,
        "graph_launches_per_call": launches.graph_launches,
        "memcpys_per_call": launches.memcpys,
        "memcpy_bytes_per_call": launches.memcpy_bytes,
        "memsets_per_call": launches.memsets,
        "syncs_per_call": launches.syncs,
        "ops_per_call": profile.ops,
        "launch_status": launches.status,
        "kernels": launches.kernel_counts,
        "peak_bytes": profile.peak_bytes,
        "allocations_per_call": profile.allocations,
    }


def roofline_columns(outcome: Outcome, *, latency_ns: float, environment: Environment) -> dict[str, float | None]:
    """Return the columns of an outcome's roofline; none where no cost is declared.

    Args:
        outcome: Of one implementation.
        latency_ns: What the device's share of a call takes, as far as that is known.
        environment: Whose ceilings count.
    """
    cost = outcome.operator.costs.get(outcome.case.key)
    if cost is None:
        return {}
    flops, moved = cost
    ceilings = environment.rest.get("observed", {}).get("ceilings", {})
    bandwidth = ceilings.get("copy_gbps")
    rates = {name: rate for name, rate in ceilings.items() if name.endswith("_tflops")}
    # Where no axis says the dtype, the highest ceiling: a fraction may then be too low, and never over the roof.
    rate = rates.get(f"{outcome.case.dtype}_tflops") if outcome.case.dtype else max(rates.values(), default=None)
    floors = [moved / bandwidth if bandwidth else None, flops / rate / 1e3 if rate else None]
    known = [floor for floor in floors if floor is not None]
    # Several GPUs have a roof that is so many times as high.
    gpus = outcome.operator.implementation(outcome.entry.implementation).gpus
    return {
        "flops": flops,
        "bytes_moved": moved,
        "tflops": flops / latency_ns / 1e3,
        "gbps": moved / latency_ns,
        "roofline_fraction": max(known) / gpus / latency_ns if len(known) == len(floors) else None,
    }
