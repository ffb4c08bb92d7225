"""Makes the rows of a store from outcomes: statistics are derived here, from raw samples, and nowhere else."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairbench.analyze.latencies import latency_columns, samples_of
from pairbench.analyze.plausible import believed
from pairbench.model.environment import Commit, Environment
from pairbench.model.latency import CALL, DEVICE
from pairbench.model.outcome import Outcome, Status, TimedRound
from pairbench.model.plain import plain
from pairbench.model.plan import BrokenSuite
from pairbench.model.record import Record, Samples
from pairbench.stats import outliers, percentile


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
    # Seen of one implementation it holds for the case: of compiled calls, replays and Triton's kernels nothing is seen.
    seen = {item.profile.float32_precision for item in known if item.profile} - {None}
    precision = next(iter(seen), None)
    return [_record(run, environment, item, controls.get(item.entry.mode), precision, resamples) for item in known]


def broken_record(run: Run, environment: Environment, suite: BrokenSuite) -> Record:
    """Return the row of a suite that could not be loaded."""
    return Record(**_run_columns(run, environment), suite=suite.suite, status=Status.FAILED.value, reason=suite.reason)


def to_samples(run: Run, environment: Environment, outcomes: Iterable[Outcome]) -> list[Samples]:
    """Return the raw samples behind some outcomes, one row a round."""
    rows = []
    for outcome in outcomes:
        for timed in outcome.rounds:
            samples = samples_of(timed, outcome.entry)
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
                    stream_ns=samples.stream_ns,
                    throttled=timed.throttled[:count],
                    outlier=tuple(bool(label) for label in outliers(samples.call_ns)),
                )
            )
    return rows


def _record(
    run: Run,
    environment: Environment,
    outcome: Outcome,
    control: Outcome | None,
    float32_precision: str | None,
    resamples: int,
) -> Record:
    operator, case, entry = outcome.operator, outcome.case, outcome.entry
    declared = operator.implementation(entry.implementation)
    return Record(
        **_run_columns(run, environment),
        suite=operator.suite,
        operator=operator.name,
        definition_hash=operator.definition_hash,
        implementation_hash=declared.hash,
        case=case.key,
        axes=json.dumps(dict(case.axes)),
        tier=case.tier,
        dtype=case.dtype,
        float32_precision=float32_precision,
        implementation=entry.implementation,
        role=entry.role,
        mode=entry.mode,
        status=outcome.status.value,
        reason=_reason(outcome),
        consumes=declared.consumes or None,
        **_correctness_columns(outcome),
        **_time_columns(outcome, control, environment, resamples),
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
        "commit_subject": commit.subject if commit else None,
        "commit_author": commit.author if commit else None,
        "commit_number": commit.number if commit else None,
        "pull_request": commit.pull_request if commit else None,
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
        "environment": json.dumps(plain(environment.rest, canonical=True), sort_keys=True),
    }


def _correctness_columns(outcome: Outcome) -> dict[str, Any]:
    verification = outcome.verification
    if verification is None:
        return {}
    columns: dict[str, Any] = {
        "first_call_ns": verification.first_call_ns,
        "graph_capturable": verification.capturable,
        "graph_capture_reason": verification.uncapturable,
        "reuses_output": verification.reuses_output,
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


def _time_columns(
    outcome: Outcome, control: Outcome | None, environment: Environment, resamples: int
) -> dict[str, Any]:
    columns = latency_columns(outcome, control, resamples=resamples)
    if not columns:
        return {}
    latency_ns = columns.get(DEVICE.p50) or columns[CALL.p50]
    return {
        **columns,
        **roofline_columns(outcome, latency_ns=latency_ns, environment=environment),
        **_telemetry_columns(outcome.rounds),
    }


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
        "saved_bytes": profile.saved_bytes,
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
