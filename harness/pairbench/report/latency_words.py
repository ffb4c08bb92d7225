"""A record's latencies as text: the result first, what lies beside it, and a sentence where the host limits the call."""

from collections.abc import Sequence

from pairbench.model.latency import CALL, DEVICE, HOST, Latency, p50_of, p95_of, result_of, speedup_is_of, speedup_of
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record
from pairbench.report import units

AXES = {
    "device": "latency on the device",
    "stream": "latency of its own launches",
    "call": "latency of a call",
    "host": "time to issue a call",
}
"""What the axis of a chart says, by the name of the latency."""
_OTHER_STORY = 1.1  # factor between a speedup by replays and the same by streams from which both are shown
LEGEND = (
    "P50, P95 and speedup: on a GPU of the device, with the host's work hidden, wherever that could be taken; "
    "call: as the caller of one call sees it; host: to issue it"
)
"""What a table of records from a GPU shows; on a CPU there is the call's latency alone."""


SAME_MEMORY = "returns the same memory in each call"
"""The remark on a call whose result of before changes, which saves it an allocation; it is legal, and the reader has to know."""

# Each is empty where nothing is known.


def p50(record: Record | None, latency: Latency | None = None) -> str:
    """Return a median, that of the result if no latency is named."""
    known = p50_of(record, latency) if record else None
    return units.duration(known.estimate) if known else ""


def p95(record: Record) -> str:
    known = p95_of(record)
    return units.duration(known.estimate) if known else ""


def spread(record: Record) -> str:
    known = p50_of(record)
    return units.spread(*known) if known else ""


def speedup(record: Record | None) -> str:
    known = speedup_of(record)
    return units.ratio(known.estimate) if known else ""


def speedup_range(record: Record | None) -> str:
    known = speedup_of(record)
    return units.ratio_range(known.low, known.high) if known else ""


def over_best(record: Record) -> str:
    """Return the speedup over the best alternative, like `1.93x over compiled`; empty where that is the baseline."""
    return over(record.speedup_over_best if speedup_of(record) else None, record.best_alternative, record.mode)


def over(speedup: float | None, best: str | None, mode: str | None) -> str:
    """Return a speedup over an alternative, like `1.93x over compiled`; empty where the alternative is the baseline of the mode."""
    known = speedup and best not in (None, BASELINE, f"{BASELINE} ({mode})")
    return f"{units.ratio(speedup)} over {best}" if known else ""


def call(record: Record) -> str:
    """Return the median latency of a call where that is not the result already."""
    return p50(record, CALL) if result_of(record) != CALL else ""


def host(record: Record) -> str:
    """Return the median time that it takes the host to issue the call; empty on a CPU."""
    return p50(record, HOST) if record.device_kind != "cpu" else ""


def common(*records: Record | None) -> Latency:
    """Return the latency that records share: that of the device where all have it, else that of the call."""
    return DEVICE if all(result_of(one) == DEVICE for one in records if one) else CALL


def as_launched(record: Record | None) -> str:
    return _as_launched(_of_replays(record), record.stream_speedup) if record else ""


def _of_replays(record: Record) -> float | None:
    known = speedup_of(record) if record.device_timer == "graph_replay" and speedup_is_of(record) == DEVICE else None
    return known.estimate if known else None


def _as_launched(device: float | None, stream: float | None) -> str:
    differ = device and stream and not 1 / _OTHER_STORY < stream / device < _OTHER_STORY
    return units.ratio(stream) if stream and differ else ""


def both_speedups(device: float | None, stream: float | None, mode: str | None) -> str:
    """Return the speedups by replays and by launches, like `4.1x by kernels alone, 5.7x as eager code launches them`; empty where they are about equal."""
    launched, code = _as_launched(device, stream), "compiled" if mode == "compile" else mode
    return f"{units.ratio(device)} by kernels alone, {launched} as {code} code launches them" if launched else ""


def issuing(host_ns: float | None, device_ns: float | None) -> str:
    """Return both times, like `88 us to issue 18 us of work`; empty where one is not known."""
    if not host_ns or not device_ns:
        return ""
    return f"{units.duration(host_ns, 2)} to issue {units.duration(device_ns, 2)} of work"


def overwrites(consumes: Sequence[str] | None) -> str:
    return f"overwrites its input{'s' if len(consumes) > 1 else ''} {', '.join(consumes)}" if consumes else ""


def remark(record: Record) -> str:
    """Return remarks on the latency of a record, and on the inputs that it overwrites."""
    consumes = overwrites(record.consumes)
    measured = record.device_kind != "cpu" and record.status == Status.MEASURED
    if measured and result_of(record) == CALL and p50_of(record):
        return "; ".join(filter(None, [consumes, "P50 is the call's: the latency on the device could not be taken"]))
    other = ""
    of_call = speedup_of(record) and speedup_is_of(record) == CALL
    if record.role == "variant" and result_of(record) == DEVICE and of_call:
        other = "the speedup is of the call: the baseline's latency on the device could not be taken"
    if record.device_speedup and record.device_speedup == record.stream_speedup and not record.reason:
        other = "the speedup is of the calls' own launches: baseline and variant cannot both be replayed"
    both = both_speedups(_of_replays(record), record.stream_speedup, record.mode)
    work = issuing(record.host_p50_ns, record.device_p50_ns)
    host_bound = ": ".join(filter(None, ["host-bound", work])) if record.bound == "host" else ""
    return "; ".join(filter(None, [consumes, both, host_bound, other]))


def repeats_otherwise(record: Record, baseline: Record | None) -> str:
    """Return a remark where calls on the same inputs differ and the baseline's do not, or the other way round; empty elsewhere."""
    both = (record.deterministic, baseline.deterministic) if baseline else (None, None)
    if baseline is None or None in both or both[0] == both[1]:
        return ""
    if record.deterministic:
        return f"repeats to the bit, where the baseline's calls are up to {units.error(baseline.repeat_error)} apart"
    return f"calls on the same inputs are up to {units.error(record.repeat_error)} apart, where the baseline repeats to the bit"


def same_memory(record: Record) -> str:
    return SAME_MEMORY if record.reuses_output else ""
