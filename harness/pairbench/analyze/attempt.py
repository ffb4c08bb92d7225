"""Whether a quick look shows a change: two medians of one process each, so this is no verdict."""

import math

from pairbench.model.attempt import Beside
from pairbench.model.latency import p50_of, result_of, speedup_of
from pairbench.model.load import withheld
from pairbench.model.policy import DEFAULT
from pairbench.model.record import Record
from pairbench.stats import Interval

_BETWEEN_PROCESSES = {"cuda": DEFAULT.minimum_effect, "cpu": 0.05}
"""Part of a latency by which it may differ between two processes of the same code, by device kind. On a CPU addresses play a part."""
_BETWEEN_PROCESSES_NS = 200.0
"""Time in ns by which a short latency may differ so: on an H200 the medians of calls of 4 to 50 us move by 50 to 180 ns."""


def beside(record: Record, earlier: Record) -> Beside:
    """Compare a result with an earlier one of the same series.

    A change is clear where it is larger than processes differ anyway, and the two intervals, which know nothing of that, lie apart.
    """
    elsewhere = record.environment_hash != earlier.environment_hash
    if why := _why_not(record, earlier):
        return Beside(record=earlier, elsewhere=elsewhere, why_not=why)
    now, then = p50_of(record), p50_of(earlier)
    if now is None or then is None or withheld(record.device_kind, record.environment):
        return Beside(record=earlier, elsewhere=elsewhere)
    ratio = now.estimate / then.estimate
    least = math.log1p(max(_BETWEEN_PROCESSES[record.device_kind], _BETWEEN_PROCESSES_NS / then.estimate))
    clear = _differ(now, then, least)
    shared = clear and _shared(record, earlier, least)
    return Beside(record=earlier, change=ratio, clear=clear, shared=shared, elsewhere=elsewhere)


def _why_not(record: Record, earlier: Record) -> str:
    if withheld(earlier.device_kind, earlier.environment):
        return "its host was busy"
    if record.definition_hash != earlier.definition_hash:
        return "the operator's definition was another"
    if record.timer != earlier.timer or result_of(record) != result_of(earlier):
        return "its latency was taken in another way"
    return ""


def _shared(record: Record, earlier: Record, least: float) -> bool:
    """Tell whether the speedup stayed although the latency changed: then the baseline changed alike."""
    now, then = speedup_of(record), speedup_of(earlier)
    return record.role != "baseline" and now is not None and then is not None and not _differ(now, then, least)


def _differ(one: Interval, other: Interval, least: float) -> bool:
    return abs(math.log(one.estimate / other.estimate)) >= least and _apart(one, other)


def _apart(one: Interval, other: Interval) -> bool:
    """Tell whether two intervals have no value in common; where the ends are not known the estimate stands for them."""
    (low, high), (least, most) = (_ends(interval) for interval in (one, other))
    return low > most or high < least


def _ends(interval: Interval) -> tuple[float, float]:
    low, high = (interval.estimate if math.isnan(end) else end for end in interval[1:])
    return low, high
