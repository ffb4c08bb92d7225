"""Sentences that say what became of a latency."""

import math
from dataclasses import dataclass

from pairbench.analyze.compare.rounds import MeasuredSides, latency_of_runs, mean_log
from pairbench.model.comparison import DEFAULT, Policy, Verdict
from pairbench.model.latency import CALL, DEVICE, HOST
from pairbench.stats import Interval

WORDS = {
    DEVICE.p50: "median device latency",
    DEVICE.p95: "95th percentile on the device",
    CALL.p50: "median latency",
    CALL.p95: "95th percentile",
    HOST.p50: "host time",
}


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far one latency of a series moved, and what that was called."""

    metric: str
    verdict: Verdict
    ratio: float
    """Current over reference."""
    interval: Interval | None
    """`ratio` with the ends of its 95 % interval; None where nothing tells how far rounds spread."""
    minimum: float
    """The smallest relative change that counts."""
    chance: float | None
    """The p value, adjusted for the whole comparison, where the whole interval is beyond the minimum; else None."""
    relative: Interval | None
    """The change relative to the baseline, where only that one is large enough to count; else None."""
    relative_to_baseline: bool
    """Whether `ratio` and `interval` themselves are relative to the baseline."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The latencies of both sides of a series in ns: as they are shown, and as means of the rounds, which were judged."""

    reference: float
    current: float
    reference_rounds: float
    current_rounds: float

    @classmethod
    def of(cls, measured: MeasuredSides, metric: str) -> "Shown":
        """Return those of one series."""
        sides = (measured.reference, measured.current)
        reference, current = (latency_of_runs(records, metric) for records in sides)
        of_rounds = [math.exp(mean_log(metric, records)) for records in sides]
        return cls(reference=reference, current=current, reference_rounds=of_rounds[0], current_rounds=of_rounds[1])

    @property
    def ratio(self) -> float:
        """Current over reference, as they are shown."""
        return self.current / self.reference


def reason_of(moved: Moved, shown: Shown, policy: Policy = DEFAULT) -> str:
    """Return what became of a latency, in words."""
    words = WORDS[moved.metric]
    if moved.relative_to_baseline:
        return _of_ratio(moved, shown, words, policy)
    parts = [_of_own(moved, words)]
    if moved.interval is not None:
        if moved.metric == HOST.p50 and moved.verdict in (Verdict.SLOWER, Verdict.FASTER):
            parts = [_issuing(shown.current - shown.reference, f"{percent(moved.ratio)}, {_span(moved.interval)}")]
        elif moved.relative is not None:
            own = f"{words} {percent(moved.ratio)} ({_span(moved.interval)})"
            parts = [f"{own}, and {_changed(moved.relative, moved.verdict)} relative to its baseline"]
    if levels_differ(shown.ratio, moved.ratio, moved.minimum):
        parts.append(_why_levels_differ(moved, shown))
    return "; ".join(parts)


def _why_levels_differ(moved: Moved, shown: Shown) -> str:
    if moved.metric == HOST.p50:
        return "the change is that of a geometric mean, and the times that are shown are those of the quietest rounds"
    return (
        f"the rounds of a side disagree: the change is that of their geometric mean, {micros(shown.reference_rounds)} "
        f"-> {micros(shown.current_rounds)}, and the latencies are medians of all samples, "
        f"{micros(shown.reference)} -> {micros(shown.current)}"
    )


def _of_ratio(moved: Moved, shown: Shown, words: str, policy: Policy) -> str:
    if moved.interval is not None:
        if moved.verdict in (Verdict.SLOWER, Verdict.FASTER):
            # Of what it took before: the time now is that of another minute, in which the baseline, too, took more or less.
            more_ns = shown.reference * (moved.ratio - 1)
            return _issuing(more_ns, f"{percent(moved.ratio)} relative to its baseline, {_span(moved.interval)}")
        if moved.chance is not None and moved.chance <= policy.false_discovery_rate:
            relative = f"{percent(moved.ratio)} ({_span(moved.interval)}) relative to its baseline"
            return f"{words} {relative}, but {percent(shown.ratio)} by itself, so it may be the baseline that moved"
    return _of_own(moved, f"{words} relative to its baseline")


def _of_own(moved: Moved, words: str) -> str:
    ratio, interval = moved.ratio, moved.interval
    if interval is None:
        return (
            f"{words} {percent(ratio)}, but one round a side tells nothing of how far rounds spread, and neither does "
            "anything else; measure three rounds or more"
        )
    if moved.verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"{words} {_changed(interval, moved.verdict)}"
    span = _span(interval)
    if moved.verdict is Verdict.SAME:
        return f"{words} the same: {percent(ratio)} ({span}), within the {_part(moved.minimum)} that count"
    if moved.chance is not None:
        unproven = (
            f"it looks changed, but chance is not ruled out (p = {moved.chance:.2g} among all latencies compared)"
        )
    else:
        unproven = f"neither a change nor its absence is proven at {_part(moved.minimum)}"
    return f"{words} {percent(ratio)} ({span}): {unproven}"


def _issuing(more_ns: float, change: str) -> str:
    return f"issuing the call takes {micros(abs(more_ns))} {'more' if more_ns > 0 else 'less'} ({change})"


def levels_differ(shown: float, judged: float, minimum_effect: float) -> bool:
    """Return whether the ratio of the latencies that are shown differs from the judged change by as much as counts."""
    return abs(math.log(shown / judged)) >= math.log1p(minimum_effect)


def micros(value_ns: float) -> str:
    """Return a latency like `12.34 us`."""
    return f"{value_ns / 1e3:.4g} us"


def percent(ratio: float) -> str:
    """Return a change like `+2.1 %`."""
    part = 100 * (ratio - 1)
    return f"{part:+.1f} %" if abs(part) >= 0.05 else "0.0 %"


def _changed(change: Interval, verdict: Verdict) -> str:
    return f"{_part(abs(change.estimate - 1))} {verdict.value} ({_span(change)})"


def _span(change: Interval) -> str:
    return f"{percent(change.low)} to {percent(change.high)}"


def _part(part: float) -> str:
    return f"{100 * part:.1f} %"
