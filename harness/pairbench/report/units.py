"""Numbers as people read them, with four significant digits and a unit that fits; latencies of a record as text; and short labels for cases and modules."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeGuard

from pairbench.analyze.compare.exact import COUNTS, LAUNCHES
from pairbench.model import record as stored
from pairbench.model.case import OUTPUT_GRADIENTS, SAVED
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.record import CALL, DEVICE, HOST, Latency, Record
from pairbench.model.site import SeriesFacts
from pairbench.report.render import shorten
from pairbench.stats import Interval

_TIMES = ((1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"))
_SIZES = ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB"))
_WIDEST = 10.0
_NARROWEST = 1e-4
"""Part below which an interval's width is given as a bound: no clock is that exact, and files of other tools give intervals of any width."""


def duration(ns: float | None, digits: int = 4) -> str:
    """Return nanoseconds like `12.35 us`."""
    return _scaled(ns, _TIMES, digits)


def size(n_bytes: float | None) -> str:
    """Return bytes like `1.5 GiB`; whole bytes are exact."""
    return f"{n_bytes:.0f} B" if n_bytes is not None and abs(n_bytes) < 2**10 else _scaled(n_bytes, _SIZES)


def ratio(value: float | None) -> str:
    """Return a speedup like `2.034x` or `0.507x`."""
    text = _ratio(value)
    return f"{text}x" if text else ""


def ratio_range(low: float | None, high: float | None) -> str:
    ends = (_ratio(low), _ratio(high))
    return "-".join(ends) if all(ends) else ""


def between(interval: Interval | None, text_of: Callable[[float | None], str] = ratio) -> str:
    """Return the ends of an interval like `2.468x to 2.494x`; empty where they are not known."""
    ends = (text_of(interval.low), text_of(interval.high)) if interval else ()
    return " to ".join(ends) if all(ends) else ""


def percent(part: float | None) -> str:
    return "" if part is None or not math.isfinite(part) else f"{significant(100 * part, 2)}%"


def change(ratio: float | None) -> str:
    """Return current over reference like `+2.03%`, or like `12.3x` where percent would be hard to read."""
    if ratio is None or not math.isfinite(ratio):
        return ""
    part = ratio - 1
    if part >= _WIDEST:
        return f"{significant(ratio, 3)}x"
    digits = 2 if abs(part) < 0.1 else 1 if abs(part) < 1 else 0
    return f"{round(100 * part, digits) + 0.0:+.{digits}f}%"  # adding zero takes the sign from -0.00


def count(value: float | None) -> str:
    """Return a count, which may come as a float from a column that holds nulls."""
    return "" if value is None or not math.isfinite(value) else f"{value:.0f}"


def error(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2g}"


def spread(estimate: float | None, low: float | None, high: float | None) -> str:
    """Return the wider half of an interval as a part of the estimate, like `±0.21%`, or `>±` and `±<` with the limit where it is beyond the widest or the narrowest that is shown; empty without an interval."""
    if estimate is None or low is None or high is None or not estimate > 0:
        return ""
    sides = (estimate - low, high - estimate)
    if not all(map(math.isfinite, sides)):
        return ""
    part = max(sides) / estimate
    if 0 < part < _NARROWEST:
        return f"±<{percent(_NARROWEST)}"
    return f"±{percent(part)}" if part <= _WIDEST else f">±{percent(_WIDEST)}"


def significant(value: float | None, digits: int = 4) -> str:
    """Return a number with so many digits that count, never in exponent form: 1234.5 -> 1234, 0.5 -> 0.5000."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _scaled(value: float | None, units: tuple[tuple[float, str], ...], digits: int = 4) -> str:
    if value is None or math.isnan(value):
        return ""
    scale, unit = scale_of(value, units, digits)
    return f"{significant(value / scale, digits)} {unit}"


def scale_of(value: float, units: tuple[tuple[float, str], ...] = _TIMES, digits: int = 4) -> tuple[float, str]:
    """Return the unit that fits a quantity: how many nanoseconds or bytes it has, and its name."""
    # Chosen after rounding, so that 999.97 ns is 1.000 us and not 1000 ns.
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    return next((entry for entry in reversed(units) if rounded >= entry[0]), units[0])


def _ratio(value: float | None) -> str:
    return significant(value, 4 if value is not None and value >= 1 else 3)


NAMES = {
    **LAUNCHES,
    **COUNTS,
    "peak_bytes": "peak memory",
    "margin": "tolerance left",
    "oracle_ratio": "error beside the baseline's",
    "status": "status",
}
_ORDER = list(NAMES)


def count_change(metric: str, before: float | str | None, after: float | str | None) -> str:
    """Return a change like `launches 1 → 3`."""
    return f"{NAMES.get(metric, metric)} {_value(metric, before)} → {_value(metric, after)}"


def axis(metric: str) -> str:
    """Return what the axis of a count says, like `launches a call`."""
    if metric == "peak_bytes":
        return "peak memory (MiB)"
    return f"{NAMES[metric]} a call" if metric in LAUNCHES or metric in COUNTS else NAMES.get(metric, metric)


def order(metric: str) -> int:
    """Return the position of a metric in tables, from 0; metrics without a fixed position come last."""
    return _ORDER.index(metric) if metric in _ORDER else len(_ORDER)


def _value(metric: str, value: float | str | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if metric == "peak_bytes":
        return size(value)
    if metric == "margin":
        return percent(value)
    return f"{value:.3g}" if metric == "oracle_ratio" else f"{value:,.0f}"


def outermost(names: Iterable[str]) -> list[str]:
    known = dict.fromkeys(names)
    return [one for one in known if known.keys().isdisjoint(itertools.accumulate(one.split(".")[:-1], "{}.{}".format))]


def merge_numbered(names: Iterable[str]) -> list[str]:
    """Return names, those that differ in numbers alone merged into one such as `blocks.*.ffn`."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        shape = ".".join("*" if part.isdecimal() else part for part in name.split("."))
        groups.setdefault(shape, []).append(name)
    return [shape if len(group) > 1 else group[0] for shape, group in groups.items()]


def listed(names: Sequence[str], shown: int = 8, between: str = ", ") -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return between.join(names[:shown]) + more


def shared_names(rows: Iterable[tuple[str | None, ...]]) -> list[str]:
    """Return of each column the name that all rows share, where they do."""
    return [next(iter(names)) or "" for names in map(set, zip(*rows, strict=True)) if len(names) == 1 and any(names)]


WIDTH = 60  # number of letters that a label may have
_FITS = 44  # up to so many letters a label has all axes that differ; longer ones leave out what other axes imply
_ABSENT = object()


def case_labels(series: Sequence[SeriesFacts]) -> dict[str, str]:
    """Return the label of each case of some series: by dtype, other words, then by numbers, the smallest first."""
    return labels_of({one.series.case: one.axes for one in series})


def labels_of(cases: Mapping[str, Mapping[str, object]], *, fits: int = _FITS) -> dict[str, str]:
    """Return the labels of cases, given as axes by the key, in the order of `case_labels`; `fits` is their number of letters."""
    width = WIDTH + fits - _FITS
    axes = _differing(list(cases.values()))
    shown = _fitting(list(cases.values()), axes, fits)
    # In the order of what is read, and only then of what is left out.
    ranked = [*shown, *(axis for axis in axes if axis not in shown)]
    ordered = sorted(cases, key=lambda case: (*(_rank(cases[case].get(axis, _ABSENT)) for axis in ranked), case))
    # One case alone differs from no other.
    texts = {case: _axes_text(cases[case], shown or sorted(cases[case])) for case in ordered}
    labels = {case: shorten(text, width) or shorten(case, width) for case, text in texts.items()}
    # Two labels may be the same after shortening; then the whole key is used.
    doubled = {label for label in labels.values() if list(labels.values()).count(label) > 1}
    return {case: shorten(case, width) if label in doubled else label for case, label in labels.items()}


def _differing(cases: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the axes with several values: the dtype, then words, for they make groups, then numbers."""
    names = dict.fromkeys(axis for case in cases for axis in case)
    varying = [axis for axis in names if len({axis_text(case.get(axis, _ABSENT)) for case in cases}) > 1]
    numbers = {axis for axis in varying if all(is_number(case[axis]) for case in cases if axis in case)}
    return sorted(varying, key=lambda axis: (axis != "dtype", axis in numbers, axis))


def _fitting(cases: Sequence[Mapping[str, object]], differing: Sequence[str], fits: int) -> list[str]:
    """Return the axes that labels have room for: sizes that only follow others go first, the dtype stays."""
    kept = list(differing)

    def distinct(axes: Sequence[str]) -> int:
        return len({tuple(axis_text(case.get(axis, _ABSENT)) for axis in axes) for case in cases})

    whole = distinct(kept)
    for axis in sorted(kept, key=lambda axis: (axis == "dtype", distinct([axis]), axis)):
        if max((len(_axes_text(case, kept)) for case in cases), default=0) <= fits:
            break
        less = [other for other in kept if other != axis]
        kept = less if distinct(less) == whole else kept
    return kept


def _axes_text(axes: Mapping[str, object], shown: Sequence[str]) -> str:
    here = [axis for axis in shown if axis in axes]
    return ", ".join(axis_text(axes[axis]) if axis == "dtype" else f"{axis}={axis_text(axes[axis])}" for axis in here)


def _rank(value: object) -> tuple[int, float, str]:
    """Return a sort key: absent values first, then numbers by size, then words."""
    if value is _ABSENT:
        return (0, 0.0, "")
    if is_number(value):
        return (1, float(value), "")
    if isinstance(value, list | tuple) and all(is_number(item) for item in value):
        return (1, float(math.prod(value)), axis_text(value))
    return (2, 0.0, axis_text(value))


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def axis_text(value: object) -> str:
    if value is _ABSENT:
        return ""
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
    known = stored.p50_of(record, latency) if record else None
    return duration(known.estimate) if known else ""


def p95(record: Record) -> str:
    known = stored.p95_of(record)
    return duration(known.estimate) if known else ""


def spread_of(record: Record) -> str:
    known = stored.p50_of(record)
    return spread(*known) if known else ""


def speedup(record: Record | None) -> str:
    known = stored.speedup_of(record)
    return ratio(known.estimate) if known else ""


def speedup_range(record: Record | None) -> str:
    known = stored.speedup_of(record)
    return ratio_range(known.low, known.high) if known else ""


def over_best(record: Record) -> str:
    """Return the speedup over the best alternative, like `1.93x over compiled`; empty where that is the baseline."""
    return over(record.speedup_over_best if stored.speedup_of(record) else None, record.best_alternative, record.mode)


def over(speedup: float | None, best: str | None, mode: str | None) -> str:
    """Return a speedup over an alternative, like `1.93x over compiled`; empty where the alternative is the baseline of the mode."""
    known = speedup and best not in (None, BASELINE, f"{BASELINE} ({mode})")
    return f"{ratio(speedup)} over {best}" if known else ""


def call(record: Record) -> str:
    """Return the median latency of a call where that is not the result already."""
    return p50(record, CALL) if stored.result_of(record) != CALL else ""


def host(record: Record) -> str:
    """Return the median time that it takes the host to issue the call; empty on a CPU."""
    return p50(record, HOST) if record.device_kind != "cpu" else ""


def common(*records: Record | None) -> Latency:
    """Return the latency that records share: that of the device where all have it, else that of the call."""
    return DEVICE if all(stored.result_of(one) == DEVICE for one in records if one) else CALL


def as_launched(record: Record | None) -> str:
    return _as_launched(_of_replays(record), record.stream_speedup) if record else ""


def _of_replays(record: Record) -> float | None:
    replayed = record.device_timer == "graph_replay" and stored.speedup_is_of(record) == DEVICE
    known = stored.speedup_of(record) if replayed else None
    return known.estimate if known else None


def _as_launched(device: float | None, stream: float | None) -> str:
    differ = device and stream and not 1 / _OTHER_STORY < stream / device < _OTHER_STORY
    return ratio(stream) if stream and differ else ""


def both_speedups(device: float | None, stream: float | None, mode: str | None) -> str:
    """Return the speedups by replays and by launches, like `4.1x by kernels alone, 5.7x as eager code launches them`; empty where they are about equal."""
    launched, code = _as_launched(device, stream), "compiled" if mode == "compile" else mode
    return f"{ratio(device)} by kernels alone, {launched} as {code} code launches them" if launched else ""


def issuing(host_ns: float | None, device_ns: float | None) -> str:
    """Return both times, like `88 us to issue 18 us of work`; empty where one is not known."""
    if not host_ns or not device_ns:
        return ""
    return f"{duration(host_ns, 2)} to issue {duration(device_ns, 2)} of work"


_OF_BACKWARD = {OUTPUT_GRADIENTS: "the gradients of its outputs", SAVED: "its saved tensors"}


def overwrites(consumes: Sequence[str] | None) -> str:
    inputs = [name for name in consumes or () if name not in _OF_BACKWARD]
    said = [f"its input{'s' if len(inputs) > 1 else ''} {', '.join(inputs)}"] if inputs else []
    said += [words for name, words in _OF_BACKWARD.items() if name in (consumes or ())]
    return f"overwrites {', '.join(said[:-1])}{' and ' * (len(said) > 1)}{said[-1]}" if said else ""


def remark(record: Record) -> str:
    """Return remarks on the latency of a record, and on the inputs that it overwrites."""
    consumes = overwrites(record.consumes)
    measured = record.device_kind != "cpu" and record.status == Status.MEASURED
    if measured and stored.result_of(record) == CALL and stored.p50_of(record):
        return "; ".join(filter(None, [consumes, "P50 is the call's: the latency on the device could not be taken"]))
    other = ""
    of_call = stored.speedup_of(record) and stored.speedup_is_of(record) == CALL
    if record.role == "variant" and stored.result_of(record) == DEVICE and of_call:
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
        return f"repeats to the bit, where the baseline's calls are up to {error(baseline.repeat_error)} apart"
    calls = f"calls on the same inputs are up to {error(record.repeat_error)} apart"
    return f"{calls}, where the baseline repeats to the bit"
