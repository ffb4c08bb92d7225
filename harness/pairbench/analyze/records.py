"""Makes the rows of a store from outcomes: statistics are derived here, from raw samples, and nowhere else.

Impossible results are refused: faster than the hardware, without work where the baseline needs some, or with latencies that contradict one another.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pairbench.analyze.facts import best_columns, latency_columns, samples_of, samples_of_rounds
from pairbench.model.environment import Commit, Environment, withheld
from pairbench.model.outcome import EntrySamples, Launches, Outcome, Status, is_slowed
from pairbench.model.plain import Value, plain
from pairbench.model.plan import LIBRARY, BrokenSuite
from pairbench.model.record import CALL, DEVICE, Record, Samples
from pairbench.stats import outliers, percentile

BANDWIDTH_LIMIT = 1.5
"""Highest believable multiple of the measured copy bandwidth on a GPU, for the bytes that cannot stay in its L2.

Among the 2880 records of results/reference with a declared cost the highest is 1.025, of a plain addition of 1.6 GB. An H200's nominal
bandwidth is 1.13 times that of a copy; the rest is for ceilings that were measured on a GPU that was warmer, or shared.
"""
RATE_LIMIT = {"cuda": 5.0, "cpu": 20.0}
"""Highest believable multiple of the fastest measured matrix rate, whatever the dtype, by device kind.

In results/reference the highest is 0.93, of a projection in bfloat16. Not measured are float8 (2 times bfloat16), float4 (4 times) and
sparse tiles, nor on a CPU bfloat16 and int8 (16 times float32 where there are tiles for them); a convolution may also need fewer
operations than its definition has (2.25 times by Winograd's method in two dimensions).
"""

LAUNCH_NS, OVER = 2e3, 1.05
"""The time that a stream may take longer than a replay: these ns for each launch, copy and memset, and this factor. A launch takes 0.7 to 1.2 us on an H100."""
UNDER, TICK_NS = 0.97, 500.0  # a stream is no quicker than this part of a replay less a tick of the clock
CALL_FACTOR, CALL_NS = 2.0, 50e3
"""The factor and the ns by which a call may take longer than device and host together, in each round: other processes slow single rounds."""
CALL_UNDER = 0.5
"""A call takes at least this part of the time that the device needs for it: of 3,945 entries on H100s and H200s the least is 0.89."""


def believed(outcomes: Sequence[Outcome], environment: Environment) -> list[Outcome]:
    """Return the outcomes of one case; an outcome with impossible values is returned as failed, without its rounds."""
    # Where the latency of a replay contradicts the others, the device latencies of its mode are those of the streams.
    doubts = {item.entry: why for item in outcomes if (why := why_no_replay(item))}
    modes = {entry.mode for entry in doubts}
    known = [_by_stream(item, doubts.get(item.entry)) if item.entry.mode in modes else item for item in outcomes]
    controls = {item.entry.mode: item for item in known if item.entry.role == "baseline"}
    judged = []
    for item in known:
        control, why = controls.get(item.entry.mode), None
        if item.status is Status.MEASURED:
            why = beyond_hardware(item, environment) or without_work(item, control, environment)
            why = why or quicker_than_device(item)
        reason = f"implausible: {why}"
        judged.append(replace(item, status=Status.FAILED, reason=reason, rounds=()) if why else item)
    return judged


def why_slowed(outcomes: Sequence[Outcome]) -> str | None:
    """Return a sentence where a case's baseline took longer beside the variants than where none was ever called, else None."""
    # Quick calls beside them are compared with slow ones alone, so that each has its own spread; what slowed a few calls of one round slowed no quick one.
    baseline = next((item for item in outcomes if item.entry.role == "baseline" and item.entry.mode == "eager"), None)
    if baseline is None or baseline.status is not Status.MEASURED:
        return None
    taken = ((timed, samples_of(timed, baseline.entry)) for timed in baseline.rounds)
    timed = ((timed.alone_ns, timed.beside_ns(samples)) for timed, samples in taken if samples)
    both = [(alone_ns, beside_ns) for alone_ns, beside_ns in timed if alone_ns and beside_ns]
    if not both or not all(itertools.starmap(is_slowed, both)):
        return None
    alone, beside = (percentile([*itertools.chain(*side)], 50) for side in zip(*both, strict=True))
    takes = f"the baseline takes {beside / 1e3:.1f} us beside the variants and {alone / 1e3:.1f} us in a process"
    return f"its speedup is withheld: {takes} where none was called, so one of them slows it"


def why_no_replay(outcome: Outcome) -> str | None:
    """Return a sentence where replays of a captured call have a device latency that cannot be right, else None."""
    of_rounds = samples_of_rounds(outcome)
    if outcome.status is not Status.MEASURED or {samples.device_timer for samples in of_rounds} != {"graph_replay"}:
        return None
    device = percentile([value for samples in of_rounds for value in samples.device_ns or ()], 50)
    streams = [value for samples in of_rounds for value in _known(samples.stream_ns)]
    launches = outcome.profile.launches if outcome.profile else None
    if streams and launches and launches.status == "exact":
        work = max(launches.launches or 0, launches.kernels or 0) + (launches.memcpys or 0) + (launches.memsets or 0)
        stream = percentile(streams, 50)
        own = f"its own launches take {stream / 1e3:.1f} us on the device"
        if stream > OVER * device + LAUNCH_NS * work:
            explained = (OVER - 1) * device / 1e3 + LAUNCH_NS * work / 1e3
            return f"{own}, a replay of the captured call {device / 1e3:.1f} us, and {work} launches explain {explained:.1f} us at most"
        if stream < UNDER * device - TICK_NS:
            return f"{own}, and a replay of the captured call {device / 1e3:.1f} us"
    rounds = [
        tuple(percentile(values, 50) for values in (samples.call_ns, samples.device_ns, samples.host_ns) if values)
        for samples in of_rounds
    ]
    if all(len(each) == 3 and each[0] > CALL_FACTOR * (each[1] + each[2]) + CALL_NS for each in rounds):
        call, on_device, host = (f"{value / 1e3:.1f} us" for value in rounds[0])
        return f"a call takes {call}, although the device needs {on_device} for a replay of it and the host {host} to issue it"
    return None


def _by_stream(outcome: Outcome, why: str | None) -> Outcome:
    """Return an outcome with the latencies of its stream instead of those of the device; `why` is the sentence about its own replay."""

    def changed(samples: EntrySamples) -> EntrySamples:
        if samples.entry != outcome.entry or samples.device_timer != "graph_replay":
            return samples
        if samples.stream_ns is None:
            return replace(samples, device_ns=None, device_timer=None)
        return replace(samples, device_timer="spin")

    if outcome.status is not Status.MEASURED:
        return outcome
    rounds = tuple(replace(timed, entries=tuple(map(changed, timed.entries))) for timed in outcome.rounds)
    instead = "that of its own launches" if any(one.stream_ns for one in samples_of_rounds(outcome)) else "not known"
    reason = f"its device latency is {instead}, for a replay {'is' if why else 'beside it is'} not believed"
    reason = "; ".join(filter(None, [outcome.reason, f"{reason}: {why}" if why else reason]))
    return replace(outcome, rounds=rounds, reason=reason)


def _known(values: Sequence[float | None] | None) -> list[float]:
    return [value for value in values or () if value is not None]


def beyond_hardware(outcome: Outcome, environment: Environment) -> str | None:
    """Return a sentence where a median latency is too short for the declared cost on this hardware, else None."""
    # On a CPU bytes do not count: it is timed with warm caches of unknown bandwidth.
    cost, latency_ns = outcome.operator.costs.get(outcome.case.key), _latency_ns(outcome)
    if cost is None or latency_ns is None:
        return None
    flops, moved = cost
    ceilings = environment.observed.get("ceilings", {})
    gpus = outcome.operator.implementation(outcome.entry.implementation).gpus
    kind = environment.device.kind
    rate = max((value for name, value in ceilings.items() if name.endswith("_tflops")), default=None)
    bandwidth = ceilings.get("copy_gbps")
    cached = environment.rest.get("gpu", {}).get("l2_bytes", 0) * gpus
    if rate and latency_ns * RATE_LIMIT[kind] * gpus < flops / rate / 1e3:
        reached, done = flops / latency_ns / 1e3, f"{flops:.3g} FLOP"
        limit = f"TFLOP/s, {reached / rate / gpus:.3g} times the highest rate measured here, {rate:.3g}"
    elif kind == "cuda" and bandwidth and latency_ns * BANDWIDTH_LIMIT * gpus < (moved - cached) / bandwidth:
        reached, done = moved / latency_ns, f"{moved:.3g} bytes"
        limit = f"GB/s, {reached / bandwidth / gpus:.3g} times the bandwidth of a copy here, {bandwidth:.4g}"
    else:
        return None
    return f"{latency_ns / 1e3:.3g} us for the {done} that are declared as the least cost is {reached:.3g} {limit}; work is left out or not timed, or cost= is too high"


def without_work(outcome: Outcome, control: Outcome | None, environment: Environment) -> str | None:
    """Return a sentence where a call does nothing that can be counted although the baseline's does, else None."""
    # A call that returns a view of its input dispatches an operator for it. On a CPU compiled code and native code that writes into state or an input do neither
    # dispatch nor allocate, so that only eager calls of a baseline that allocates say anything.
    ours, theirs = outcome.profile, control.profile if control else None
    if ours is None or theirs is None or outcome.entry.role == "baseline" or ours.ops != 0 or not theirs.ops:
        return None
    in_place = outcome.operator.implementation(outcome.entry.implementation).consumes
    if environment.device.kind == "cuda":
        exact = (ours.launches.status, theirs.launches.status) == ("exact", "exact")
        if not exact or _device_work(ours.launches) or not _device_work(theirs.launches):
            return None
        own, its = "launches", f"the device does {_device_work(theirs.launches)} pieces of work"
    elif outcome.entry.mode != "eager" or ours.allocations != 0 or not theirs.allocations or in_place:
        return None
    else:
        own, its = "allocates", f"allocates {theirs.allocations} times"
    return f"a call dispatches 0 operators and {own} nothing, where the baseline dispatches {theirs.ops} and {its}; it returns what was computed before"


def quicker_than_device(outcome: Outcome) -> str | None:
    """Return a sentence where calls take less time than the device needs for their work, else None."""
    of_rounds = samples_of_rounds(outcome)
    devices = [value for samples in of_rounds for value in _known(samples.on_device_ns)]
    calls = [value for samples in of_rounds for value in samples.call_ns]
    if not devices or not calls:
        return None
    call, device = percentile(calls, 50), percentile(devices, 50)
    if call >= CALL_UNDER * device - TICK_NS:
        return None
    return f"a call takes {call / 1e3:.3g} us, although the device needs {device / 1e3:.1f} us for its work"


def _device_work(launches: Launches) -> int:
    counts = (launches.launches, launches.kernels, launches.graph_launches, launches.memcpys, launches.memsets)
    return sum(count or 0 for count in counts)


def _latency_ns(outcome: Outcome) -> float | None:
    """Return the median latency of all rounds, of the device where each of them has it; throttled blocks count, they are slower."""
    devices = [samples.on_device_ns for samples in samples_of_rounds(outcome)]
    chosen = [samples.call_ns for samples in samples_of_rounds(outcome)] if None in devices else map(_known, devices)
    values = [*itertools.chain(*chosen)]
    return percentile(values, 50) if values else None


class Run(Value):
    """One invocation of pairbench, as all its records name it."""

    run_id: str
    started_at: str
    commit: Commit | None
    confirms: str | None = None  # the run whose suspects this one measures again


def to_records(
    run: Run, environment: Environment, outcomes: Iterable[Outcome], *, resamples: int = 1000
) -> list[Record]:
    """Return the rows of some outcomes of one case; a variant's speedup needs its baseline's outcome among them."""
    # Impossible outcomes (`believed`) become rows with the status `failed`, without latencies.
    known = believed(tuple(outcomes), environment)
    of_run = _run_columns(run, environment)
    # On a busy host speedups are withheld as they are shown, and it slows what runs for long more than what runs for some ms.
    slowed = None if withheld(environment.device.kind, of_run["environment"]) else why_slowed(known)
    controls = {item.entry.mode: item for item in known if item.entry.role == "baseline"} if slowed is None else {}
    # The precision of one implementation holds for the case: that of compiled calls, replays and Triton's kernels is not seen.
    seen = {item.profile.float32_precision for item in known if item.profile} - {None}
    records = []
    for item in known:
        operator, case, entry = item.operator, item.case, item.entry
        declared = operator.implementation(entry.implementation)
        of_time = slowed if item.status is Status.MEASURED else None
        reasons = (item.reason, of_time, item.profile.reason if item.profile else None)
        own = {"environment": _environment_text(environment, declared.packages)} if declared.packages else {}
        columns = {**of_run, **own, **key_columns(item), **_correctness_columns(item), **_profile_columns(item)}
        columns |= _time_columns(item, controls.get(entry.mode), _alternatives(item, known), environment, resamples)
        columns |= {"definition_hash": operator.definition_hash, "implementation_hash": declared.hash}
        columns |= {"axes": json.dumps(dict(case.axes)), "tier": case.tier, "dtype": case.dtype, "role": entry.role}
        columns |= {"float32_precision": next(iter(seen), None), "consumes": declared.consumes or None}
        columns |= {"status": item.status.value, "reason": "; ".join(filter(None, reasons)) or None}
        records.append(Record(**columns))
    return records


def broken_record(run: Run, environment: Environment, suite: BrokenSuite) -> Record:
    return Record(**_run_columns(run, environment), suite=suite.suite, status=Status.FAILED.value, reason=suite.reason)


def to_samples(run: Run, environment: Environment, outcomes: Iterable[Outcome]) -> list[Samples]:
    rows = []
    device = environment.device
    of_run = {"run_id": run.run_id, "device_name": device.name, "device_uuid": device.uuid}
    names = ("position", "at_ns", "call_ns", "host_ns", "device_ns", "stream_ns")
    for outcome in outcomes:
        for timed in outcome.rounds:
            if (samples := samples_of(timed, outcome.entry)) is None:
                continue
            count = len(samples.call_ns)
            columns = {**of_run, **key_columns(outcome), **{name: getattr(samples, name) for name in names}}
            columns |= {name: getattr(timed, name) for name in ("timer", "round", "stop_reason")}
            columns |= {"block": tuple(range(count)), "throttled": timed.throttled[:count]}
            rows.append(Samples(**columns, outlier=tuple(map(bool, outliers(samples.call_ns)))))
    return rows


def key_columns(outcome: Outcome) -> dict[str, Any]:
    operator, case = outcome.operator, outcome.case
    return {"suite": operator.suite, "operator": operator.name, "case": case.key, **vars(outcome.entry)}


def _run_columns(run: Run, environment: Environment) -> dict[str, Any]:
    columns = {name: name for name in ("branch", "dirty", "pull_request")}
    columns |= {"commit": "sha", "commit_at": "committed_at"}
    columns |= {f"commit_{name}": name for name in ("subject", "author", "number")}
    own = {"run_id": run.run_id, "confirms": run.confirms, "started_at": run.started_at}
    of_commit = {column: getattr(run.commit, name, None) for column, name in columns.items()}
    return {**own, **of_commit, **environment_columns(environment)}


def environment_columns(environment: Environment) -> dict[str, Any]:
    device = environment.device
    names = ("driver", "cuda", "cudnn", "torch", "triton", "python", "hostname", "cpu")
    of_device = {"device_kind": device.kind, "device_name": device.name, "device_uuid": device.uuid}
    whole = {"environment_hash": environment.hash, "environment": _environment_text(environment)}
    return {**of_device, **{name: getattr(environment, name) for name in names}, **whole}


def _environment_text(environment: Environment, packages: Mapping[str, str] | None = None) -> str:
    """Return the rest of an environment as JSON, with the versions of the packages that an implementation needs, if it needs any."""
    rest = environment.rest | ({"packages": packages} if packages else {})
    return json.dumps(plain(rest, canonical=True), sort_keys=True)


def _correctness_columns(outcome: Outcome) -> dict[str, Any]:
    verification = outcome.verification
    if verification is None:
        return {}
    columns: dict[str, Any] = {
        **{name: getattr(verification, name) for name in ("first_call_ns", "reuses_output", "repeat_error")},
        "graph_capturable": verification.capturable,
        "graph_capture_reason": verification.uncapturable,
        "deterministic": None if verification.repeat_error is None else verification.repeat_error == 0,
    }
    if (compilation := verification.compilation) is not None:
        columns |= {name: value for name, value in vars(compilation).items() if name != "notes"}
        columns["compile_notes"] = compilation.notes
    if verification.correctness is not None:
        columns |= vars(verification.correctness)
    return columns


def _alternatives(outcome: Outcome, known: Iterable[Outcome]) -> list[Outcome]:
    """Return what one would use instead of a variant beside the baseline of its mode: compiled baselines, and variants of the kind `library`."""
    own = outcome.entry
    return [
        one
        for one in known
        if one.status is Status.MEASURED
        and one.entry.implementation != own.implementation
        and one.entry.mode in (own.mode, "compile")
        and (one.entry.role == "variant" or one.entry.mode != own.mode)
        and (one.entry.role == "baseline" or one.operator.implementation(one.entry.implementation).kind == LIBRARY)
    ]


def _time_columns(
    outcome: Outcome, control: Outcome | None, others: Iterable[Outcome], environment: Environment, draws: int
) -> dict[str, Any]:
    columns = latency_columns(outcome, control, resamples=draws)
    if not columns:
        return {}
    columns |= best_columns(outcome, columns, control, others, resamples=draws)
    latency_ns = columns.get(DEVICE.p50) or columns[CALL.p50]
    readings = [timed.telemetry for timed in outcome.rounds]
    names = ("sm_clock_mhz", "temperature_c", "power_w")
    clocks, temperatures, powers = (_known([getattr(item, name) for item in readings]) for name in names)
    reasons = [item.throttle_reasons for item in readings if item.throttle_reasons is not None]
    columns |= roofline_columns(outcome, latency_ns=latency_ns, environment=environment)
    clock_mhz, power_w = (percentile(values, 50) if values else None for values in (clocks, powers))
    columns |= {"sm_clock_mhz": clock_mhz, "temperature_c": max(temperatures, default=None), "power_w": power_w}
    columns["throttle_reasons"] = ",".join(sorted(set(itertools.chain(*reasons)))) if reasons else None
    return columns | {"remeasured_blocks": sum(timed.remeasured for timed in outcome.rounds)}


def _profile_columns(outcome: Outcome) -> dict[str, Any]:
    profile = outcome.profile
    if profile is None:
        return {}
    counts = ("launches", "kernels", "graph_launches", "memcpys", "memcpy_bytes", "memsets", "syncs")
    launches = profile.launches
    columns = {f"{name}_per_call": getattr(launches, name) for name in counts}
    columns |= {"launch_status": launches.status, "kernels": launches.kernel_counts}
    columns |= {"kernel_builds": launches.kernel_builds, "saved_bytes": profile.saved_bytes}
    columns |= {"ops_per_call": profile.ops, "allocations_per_call": profile.allocations}
    return columns | {"peak_bytes": profile.peak_bytes}


def roofline_columns(outcome: Outcome, *, latency_ns: float, environment: Environment) -> dict[str, float | None]:
    """Return the columns of an outcome's roofline, by the latency of the device's part of a call; none where no cost is declared."""
    cost = outcome.operator.costs.get(outcome.case.key)
    if cost is None:
        return {}
    flops, moved = cost
    ceilings = environment.observed.get("ceilings", {})
    bandwidth = ceilings.get("copy_gbps")
    rates = {name: rate for name, rate in ceilings.items() if name.endswith("_tflops")}
    # Where no axis says the dtype, the highest ceiling: a fraction may then be too low, and never over the roof.
    rate = rates.get(f"{outcome.case.dtype}_tflops") if outcome.case.dtype else max(rates.values(), default=None)
    floors = [moved / bandwidth if bandwidth else None, flops / rate / 1e3 if rate else None]
    known = [floor for floor in floors if floor is not None]
    # Several GPUs have a roof that is so many times as high.
    gpus = outcome.operator.implementation(outcome.entry.implementation).gpus
    fraction = max(known) / gpus / latency_ns if len(known) == len(floors) else None
    reached = {"tflops": flops / latency_ns / 1e3, "gbps": moved / latency_ns}
    return {"flops": flops, "bytes_moved": moved, **reached, "roofline_fraction": fraction}
