"""Results that cannot be: faster than the hardware, without any work where the baseline needs some, or latencies that contradict one another."""

from collections.abc import Sequence
from dataclasses import replace

from pairbench.model.environment import Environment
from pairbench.model.outcome import EntrySamples, Launches, Outcome, Status
from pairbench.stats import percentile

BANDWIDTH_LIMIT = 1.5
"""Highest believable multiple of the measured copy bandwidth on a GPU, for the bytes that cannot stay in its L2.

Among the 2880 records of results/reference with a declared cost the highest is 1.025, of a plain addition of 1.6 GB. What a copy
leaves of an H200's nominal bandwidth is 1.13; the rest is for ceilings that were measured on a GPU that was warmer, or shared.
"""
RATE_LIMIT = {"cuda": 5.0, "cpu": 20.0}
"""Highest believable multiple of the fastest measured matrix rate, whatever the dtype, by device kind.

In results/reference the highest is 0.93, of a projection in bfloat16. Not measured are float8 (2 times bfloat16), float4 (4 times) and
sparse tiles, nor on a CPU bfloat16 and int8 (16 times float32 where there are tiles for them); a convolution may also need fewer
operations than its definition has (2.25 times by Winograd's method in two dimensions).
"""

LAUNCH_NS, OVER = 2e3, 1.05
"""What a stream may take longer than a replay: these ns for each launch, copy and memset, and this factor. A launch takes 0.7 to 1.2 us on an H100."""
UNDER, TICK_NS = 0.97, 500.0
"""A stream is no quicker than this part of a replay less a tick of the clock."""
CALL_FACTOR, CALL_NS = 2.0, 50e3
"""How much longer than the device and the host together a call may take, in each round: what runs beside slows single rounds of the host."""


def believed(outcomes: Sequence[Outcome], environment: Environment) -> list[Outcome]:
    """Return the outcomes of one case, those that cannot be as failed ones without rounds.

    Where the latency of a replay contradicts the others, the device latencies of all that stand beside it are those of their streams.

    Args:
        outcomes: The baseline's of each mode among them, as far as it is known.
        environment: Whose measured ceilings count.
    """
    doubts = {item.entry: why for item in outcomes if (why := why_no_replay(item))}
    modes = {entry.mode for entry in doubts}
    known = [_by_stream(item, doubts.get(item.entry)) if item.entry.mode in modes else item for item in outcomes]
    controls = {item.entry.mode: item for item in known if item.entry.role == "baseline"}
    return [_believed(item, controls.get(item.entry.mode), environment) for item in known]


def why_no_replay(outcome: Outcome) -> str | None:
    """Return a sentence where the device latency that replays of a captured call have is not believed, else None."""
    taken = _taken(outcome)
    if outcome.status is not Status.MEASURED or not taken or any(one.device_timer != "graph_replay" for one in taken):
        return None
    device = percentile([value for one in taken for value in one.device_ns or ()], 50)
    streams = [value for one in taken for value in _known(one.stream_ns)]
    launches = outcome.profile.launches if outcome.profile else None
    if streams and launches and launches.status == "exact":
        work = max(launches.launches or 0, launches.kernels or 0) + (launches.memcpys or 0) + (launches.memsets or 0)
        stream = percentile(streams, 50)
        if stream > OVER * device + LAUNCH_NS * work:
            return (
                f"its own launches take {stream / 1e3:.1f} us on the device, a replay of the captured call {device / 1e3:.1f} us, and {work} "
                f"launches explain {(OVER - 1) * device / 1e3 + LAUNCH_NS * work / 1e3:.1f} us at most"
            )
        if stream < UNDER * device - TICK_NS:
            return f"its own launches take {stream / 1e3:.1f} us on the device, and a replay of the captured call {device / 1e3:.1f} us"
    rounds = [
        tuple(percentile(values, 50) for values in (one.call_ns, one.device_ns, one.host_ns) if values) for one in taken
    ]
    if all(len(of) == 3 and of[0] > CALL_FACTOR * (of[1] + of[2]) + CALL_NS for of in rounds):
        call, on_device, host = rounds[0]
        return (
            f"a call takes {call / 1e3:.1f} us, although the device needs {on_device / 1e3:.1f} us for a replay of it and the host {host / 1e3:.1f} us "
            "to issue it"
        )
    return None


def _by_stream(outcome: Outcome, why: str | None) -> Outcome:
    """Return an outcome with the latencies of its stream in the place of those of the device.

    Args:
        outcome: Of a case with a replay that is not believed.
        why: Why, where it is this one's.
    """

    def changed(samples: EntrySamples) -> EntrySamples:
        if samples.entry != outcome.entry or samples.device_timer != "graph_replay":
            return samples
        if samples.stream_ns is None:
            return replace(samples, device_ns=None, device_timer=None)
        return replace(samples, device_timer="spin")

    if outcome.status is not Status.MEASURED:
        return outcome
    rounds = tuple(replace(timed, entries=tuple(map(changed, timed.entries))) for timed in outcome.rounds)
    instead = "that of its own launches" if any(one.stream_ns for one in _taken(outcome)) else "not known"
    reason = f"its device latency is {instead}, for a replay {'is' if why else 'beside it is'} not believed"
    reason = "; ".join(filter(None, [outcome.reason, f"{reason}: {why}" if why else reason]))
    return replace(outcome, rounds=rounds, reason=reason)


def _known(values: Sequence[float | None] | None) -> list[float]:
    return [value for value in values or () if value is not None]


def _taken(outcome: Outcome) -> list[EntrySamples]:
    return [samples for timed in outcome.rounds for samples in timed.entries if samples.entry == outcome.entry]


def _believed(outcome: Outcome, control: Outcome | None, environment: Environment) -> Outcome:
    if outcome.status is not Status.MEASURED:
        return outcome
    why = beyond_hardware(outcome, environment) or without_work(outcome, control, environment)
    if why is None:
        return outcome
    return replace(outcome, status=Status.FAILED, reason=f"implausible: {why}", rounds=())


def beyond_hardware(outcome: Outcome, environment: Environment) -> str | None:
    """Return a sentence where a median latency is below what the declared cost needs on this hardware, else None.

    On a CPU bytes do not count: it is timed with warm caches, of whose bandwidth nothing is known.
    """
    cost, latency_ns = outcome.operator.costs.get(outcome.case.key), _latency_ns(outcome)
    if cost is None or latency_ns is None:
        return None
    flops, moved = cost
    ceilings = environment.rest.get("observed", {}).get("ceilings", {})
    gpus = outcome.operator.implementation(outcome.entry.implementation).gpus
    kind = environment.device.kind
    rate = max((value for name, value in ceilings.items() if name.endswith("_tflops")), default=None)
    if rate and latency_ns * RATE_LIMIT[kind] * gpus < flops / rate / 1e3:
        return (
            f"{latency_ns / 1e3:.3g} us for the {flops:.3g} FLOP that are declared as the least cost is "
            f"{flops / latency_ns / 1e3:.3g} TFLOP/s, {flops / latency_ns / 1e3 / rate / gpus:.3g} times the highest rate measured here, {rate:.3g}; "
            "work is left out or not timed, or cost= is too high"
        )
    bandwidth = ceilings.get("copy_gbps")
    cached = environment.rest.get("gpu", {}).get("l2_bytes", 0) * gpus
    if kind == "cuda" and bandwidth and latency_ns * BANDWIDTH_LIMIT * gpus < (moved - cached) / bandwidth:
        return (
            f"{latency_ns / 1e3:.3g} us for the {moved:.3g} bytes that are declared as the least cost is "
            f"{moved / latency_ns:.3g} GB/s, {moved / latency_ns / bandwidth / gpus:.3g} times the bandwidth of a copy here, {bandwidth:.4g}; "
            "work is left out or not timed, or cost= is too high"
        )
    return None


def without_work(outcome: Outcome, control: Outcome | None, environment: Environment) -> str | None:
    """Return a sentence where a call does nothing that can be counted although the baseline's does, else None.

    A call that returns a view of its input dispatches an operator for it. On a CPU compiled code and native code that writes into state
    do neither dispatch nor allocate, so that only eager calls of a baseline that allocates say anything.
    """
    ours, theirs = outcome.profile, control.profile if control else None
    if ours is None or theirs is None or outcome.entry.role == "baseline" or ours.ops != 0 or not theirs.ops:
        return None
    if environment.device.kind == "cuda":
        if (ours.launches.status, theirs.launches.status) != ("exact", "exact"):
            return None
        if _device_work(ours.launches) or not _device_work(theirs.launches):
            return None
        return (
            f"a call dispatches 0 operators and launches nothing, where the baseline dispatches {theirs.ops} and the device does "
            f"{_device_work(theirs.launches)} pieces of work; it returns what was computed before"
        )
    if outcome.entry.mode != "eager" or ours.allocations != 0 or not theirs.allocations:
        return None
    return (
        f"a call dispatches 0 operators and allocates nothing, where the baseline dispatches {theirs.ops} and allocates "
        f"{theirs.allocations} times; it returns what was computed before"
    )


def _device_work(launches: Launches) -> int:
    counts = (launches.launches, launches.kernels, launches.graph_launches, launches.memcpys, launches.memsets)
    return sum(count or 0 for count in counts)


def _latency_ns(outcome: Outcome) -> float | None:
    """Return the median latency of all rounds, of the device where each of them has it; throttled blocks count, they are slower."""
    taken = _taken(outcome)
    devices = [_known(samples.on_device_ns) for samples in taken if samples.on_device_ns is not None]
    chosen = devices if len(devices) == len(taken) else [samples.call_ns for samples in taken]
    values = [value for of_round in chosen for value in of_round]
    return percentile(values, 50) if values else None
