"""The likely cause of a change, the outcome of a change with that cause at a gate, and the sentences about the change of a latency.

The pair is the experiment: a variant's control is its baseline, measured in the same blocks; a baseline's control is
its variants. A change of both is not in the code of one.

    another GPU of the model                                      machine: GPUs of a model differ by some percent
    an era field changed    control moved too    its source changed    attribution
    yes                     no                   yes                   code: the environment left the control alone
    yes                     any other                                  environment
    no                      yes                  any                   machine
    no                      no, or none there    any                   code

A machine cannot change a count, so of exact metrics and failures only the first two and the last line hold.
"""

import contextlib
import functools
import json
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pairbench.analyze.compare.exact import bad
from pairbench.analyze.compare.rounds import MeasuredSides, mean_log, usable
from pairbench.model.breakdown import KernelCount
from pairbench.model.comparison import DEFAULT, Attribution, EraChange, GateOutcome, Judgement, KernelChange, Verdict
from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.record import CALL, DEVICE, HOST, Record
from pairbench.stats import Interval

FIELDS = ("driver", "cuda", "cudnn", "torch", "triton", "python", "cpu")
"""The columns of a record's environment; the rest is the JSON in `environment`, without observations of the run."""


Cause = tuple[Attribution, str]  # and the sentence that says why
_era = attrgetter(*FIELDS, "environment")


def era_changes(reference: Record, current: Record) -> tuple[EraChange, ...]:
    return _changes(_era(reference), _era(current))


def elsewhere(reference: Record, current: Record) -> str:
    """Return a phrase where two runs were made on different machines or GPUs, which is no change of era; else ""."""
    if reference.hostname != current.hostname:
        return f"another machine, {reference.hostname} -> {current.hostname}"
    return another_gpu(reference.device_uuid, current.device_uuid)


def another_gpu(reference: str | None, current: str | None) -> str:
    """Return a phrase where two runs were made on different GPUs of a model, which differ by some percent; "" where a GPU is not known."""
    if reference is None or current is None or reference == current:
        return ""
    return f"another GPU of the model, {reference} -> {current}"


def source_changed(before: Record | None, after: Record | None) -> bool | None:
    hashes = [record and record.implementation_hash for record in (before, after)]
    return None if None in hashes else hashes[0] != hashes[1]


@functools.lru_cache(maxsize=1024)
def _changes(reference: tuple[str | None, ...], current: tuple[str | None, ...]) -> tuple[EraChange, ...]:
    before, now = _flat(reference[-1]), _flat(current[-1])
    rest = ((name, before.get(name), now.get(name)) for name in dict.fromkeys([*before, *now]))
    fields = (*zip(FIELDS, reference, current, strict=False), *rest)
    return tuple(EraChange(field=name, reference=old, current=new) for name, old, new in fields if old != new)


def _flat(text: str | None) -> dict[str, str]:
    rest = None
    with contextlib.suppress(ValueError):
        rest = json.loads(text or "{}")
    if not isinstance(rest, dict):
        return {"environment": text or ""}
    return dict(_leaves({key: value for key, value in rest.items() if key != "observed"}, ""))


def _leaves(value: Any, name: str) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return [(name, value if isinstance(value, str) else json.dumps(value))]
    names = ((f"{name}.{key}" if name else str(key), item) for key, item in sorted(value.items()))
    return [leaf for each, item in names for leaf in _leaves(item, each)]


_NOTICEABLE_NS = 500.0  # least difference that counts: profiled times of all kernels differ by this much between runs


def kernel_changes(reference: Record, current: Record) -> tuple[KernelChange, ...]:
    """Return the kernels that are new, gone, run more or less often, or take noticeably longer or less long; what matters most to the latency first."""
    if reference.kernels is None or current.kernels is None:
        return ()
    before, now = _by_name(reference.kernels), _by_name(current.kernels)
    changes = []
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name, (0, 0.0)), now.get(name, (0, 0.0))
        if what := _what(old, new):
            counts = {"reference_count": old[0], "current_count": new[0]}
            changes.append(KernelChange(name=name, what=what, **counts, reference_ns=old[1], current_ns=new[1]))
    return tuple(sorted(changes, key=lambda change: -abs(change.current_ns - change.reference_ns)))


def _by_name(kernels: Sequence[KernelCount]) -> dict[str, tuple[int, float]]:
    by_name: dict[str, tuple[int, float]] = {}
    for kernel in kernels:
        count, total = by_name.get(kernel.name, (0, 0.0))
        by_name[kernel.name] = (count + kernel.count, total + kernel.total_ns)
    return by_name


def _what(old: tuple[int, float], new: tuple[int, float]) -> str | None:
    if not old[0]:
        return "new"
    if not new[0]:
        return "gone"
    if new[0] != old[0]:
        return "more often" if new[0] > old[0] else "less often"
    moved = new[1] - old[1]
    if abs(moved) <= max(DEFAULT.kernel_part * old[1], _NOTICEABLE_NS):
        return None
    return "slower" if moved > 0 else "faster"


_NONE = (None, None)


def build_changes(reference: Record, current: Record) -> str:
    """Return phrases on the first kernel, and on configurations of the autotuner, that differ; "" where none does, or none is known."""
    phrases = []
    if reference.autotuned and current.autotuned and reference.autotuned != current.autotuned:
        phrases.append(f"autotuned {'; '.join(current.autotuned)} instead of {'; '.join(reference.autotuned)}")
    before = {build.name: build for build in reference.kernel_builds or ()}
    changed = [(before[one.name], one) for one in current.kernel_builds or () if before.get(one.name, one) != one]
    for was, now in changed[:1]:
        how = f"({was.words} -> {now.words})" if was.words != now.words else "(other machine code)"
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        phrases.append(f"{str(now.name)[:80]} was compiled otherwise {how}{more}")
    return "; ".join(phrases)


class Circumstances(Value):
    """Facts about a series besides its own change."""

    era: tuple[EraChange, ...]
    implementation_changed: bool | None
    control_changed: bool | None
    built: str = ""
    """A phrase about kernels that were compiled or tuned otherwise; empty where the source changed, which explains that."""
    elsewhere: str = ""
    another_gpu: str = ""
    """`elsewhere` and `another_gpu` are phrases about another machine, and another GPU of the model; empty where there is none."""
    interleaved: bool = False  # whether both sides were measured interleaved: then the machine was the same for both

    @classmethod
    def between(
        cls, before: Record, now: Record, controls: Sequence[Record | None] = _NONE, gpus: Sequence[str | None] = _NONE
    ) -> "Circumstances":
        """Return the facts about two runs of a series, with its controls and GPUs in them as far as these are known."""
        own, control = source_changed(before, now), source_changed(*controls)
        built = "" if own else build_changes(before, now)
        known = functools.partial(cls, era=era_changes(before, now), implementation_changed=own, built=built)
        return known(control_changed=control, elsewhere=elsewhere(before, now), another_gpu=another_gpu(*gpus))

    @property
    def environment(self) -> str:
        """The changes of the environment in words, three of them at most; empty without any."""
        more = f" and {len(self.era) - 3} more" if len(self.era) > 3 else ""
        return f"environment changed: {', '.join(map(str, self.era[:3]))}{more}" if self.era else ""

    @property
    def source(self) -> str:
        words = {True: "its source changed", False: "its source did not change, so look at what it calls", None: ""}
        return words[self.implementation_changed]

    def cause_of_latency(self, change: Interval, control: Interval | None, *, relative: bool = False) -> Cause:
        """Return the likely cause of a change of latency, and a sentence with the reason; `relative` says that the change is that of the ratio to the control."""
        moved = control is not None and moved_along(change, control)
        beside = "" if control is None else f"its control moved {100 * (control.estimate - 1):+.1f} %"
        alone_changed = self.built and control is not None and not moved
        if self.another_gpu and not self.interleaved and not alone_changed:
            cause, parts = Attribution.MACHINE, [self.another_gpu, self.environment, beside]
        elif self.era and not (self.implementation_changed and control is not None and not moved):
            cause, parts = Attribution.ENVIRONMENT, [self.environment, beside]
        elif moved and not self.interleaved:
            both = "the sources of both changed" if self.implementation_changed and self.control_changed else ""
            cause, parts = Attribution.MACHINE, [beside, self.elsewhere, both]
        else:
            alone = "" if self.interleaved or relative else "there is no control to tell"
            cause, parts = Attribution.CODE, [beside or alone, self.source, self.elsewhere]
        return cause, "; ".join(filter(None, [self.built, *parts]))

    def cause_of_failure(self, before: Record | None, current: Sequence[Record]) -> tuple[Attribution | None, str]:
        """Return the likely cause of the last failure and the sentence that says why: of none that was never seen to work."""
        if next(record.status for record in reversed(current) if bad(record)) == Status.OOM:
            return Attribution.MEMORY, ""
        return self.cause_of_count() if before is not None and usable(before) else (None, "")

    def cause_of_count(self) -> Cause:
        if self.era and not self.implementation_changed:
            return Attribution.ENVIRONMENT, self.environment
        return Attribution.CODE, self.source


def outcome_of_move(change: float, attribution: Attribution | None) -> GateOutcome:
    """Return the gate's outcome of a moved latency, after over before, for `compare`, `trend` and the site; 1.02 is 2 % slower."""
    # A machine or an environment is no fault of the code, so slower is a regression only where the code is the likely cause.
    if change > 1:
        return GateOutcome.REGRESSION if attribution is Attribution.CODE else GateOutcome.UNDECIDED
    better = (Attribution.CODE, Attribution.ENVIRONMENT)
    return GateOutcome.IMPROVEMENT if attribution in better else GateOutcome.UNDECIDED


def moved_along(change: Interval, control: Interval) -> bool:
    """Return whether a control moved in the same direction by a comparable part, and not by chance."""
    if change.estimate >= 1:
        return control.low > 1 and control.estimate >= change.estimate**DEFAULT.control_part
    return control.high < 1 and control.estimate <= change.estimate**DEFAULT.control_part


WORDS = {
    DEVICE.p50: "median device latency",
    DEVICE.p95: "95th percentile on the device",
    CALL.p50: "median latency",
    CALL.p95: "95th percentile",
    HOST.p50: "host time",
}


class Moved(NamedTuple):
    """The change of one latency of a series, and its verdict, which its judgement without a reason has."""

    judgement: Judgement
    measured: MeasuredSides
    shown: tuple[float, float]  # the latencies of both sides in ns, as they are shown
    ratio: float  # current over reference, which is known also where nothing tells how far rounds spread
    minimum: float
    chance: float | None
    """The p value, adjusted for the whole comparison, where the whole interval is beyond the minimum; else None."""
    relative: Interval | None  # change relative to the baseline, where only that is large enough to count; else None


_MOVED = (Verdict.SLOWER, Verdict.FASTER)


def reason_of(moved: Moved) -> str:
    judgement, interval, (before, now) = moved.judgement, moved.judgement.change, moved.shown
    words = WORDS[judgement.metric]
    if judgement.relative_to_baseline:
        return _of_ratio(moved, words)
    reason, host = _of_own(moved, words), judgement.metric == HOST.p50
    if interval is not None and host and judgement.verdict in _MOVED:
        reason = _issuing(now - before, f"{percent(moved.ratio)}, {_span(interval)}")
    elif interval is not None and moved.relative is not None:
        own = f"{words} {percent(moved.ratio)} ({_span(interval)})"
        reason = f"{own}, and {_changed(moved.relative, judgement.verdict)} relative to its baseline"
    if not levels_differ(now / before, moved.ratio, moved.minimum):
        return reason
    if host:
        why = "the change is that of a geometric mean, and the times that are shown are those of the quietest rounds"
        return f"{reason}; {why}"
    sides = (moved.measured.reference, moved.measured.current)
    of_rounds = " -> ".join(micros(math.exp(mean_log(judgement.metric, records))) for records in sides)
    means = f"the change is that of their geometric mean, {of_rounds}"
    medians = f"the latencies are medians of all samples, {micros(before)} -> {micros(now)}"
    return f"{reason}; the rounds of a side disagree: {means}, and {medians}"


def _of_ratio(moved: Moved, words: str) -> str:
    (before, now), interval = moved.shown, moved.judgement.change
    if interval is not None:
        change = f"{percent(moved.ratio)} relative to its baseline"
        if moved.judgement.verdict in _MOVED:
            # Of the time before: the time now is that of another minute, in which the baseline, too, took more or less.
            return _issuing(before * (moved.ratio - 1), f"{change}, {_span(interval)}")
        if moved.chance is not None and moved.chance <= DEFAULT.false_discovery_rate:
            relative = f"{percent(moved.ratio)} ({_span(interval)}) relative to its baseline"
            return f"{words} {relative}, but {percent(now / before)} by itself, so it may be the baseline that moved"
    return _of_own(moved, f"{words} relative to its baseline")


def _of_own(moved: Moved, words: str) -> str:
    change, interval, verdict = f"{words} {percent(moved.ratio)}", moved.judgement.change, moved.judgement.verdict
    if interval is None:
        return f"{change}, but one round a side tells nothing of how far rounds spread, and neither does anything else; measure three rounds or more"
    if verdict in _MOVED:
        return f"{words} {_changed(interval, verdict)}"
    if verdict is Verdict.SAME:
        return f"{words} the same: {percent(moved.ratio)} ({_span(interval)}), within the {_part(moved.minimum)} that count"
    doubt = f"neither a change nor its absence is proven at {_part(moved.minimum)}"
    if moved.chance is not None:
        doubt = f"it looks changed, but chance is not ruled out (p = {moved.chance:.2g} among all latencies compared)"
    return f"{change} ({_span(interval)}): {doubt}"


def _issuing(more_ns: float, change: str) -> str:
    return f"issuing the call takes {micros(abs(more_ns))} {'more' if more_ns > 0 else 'less'} ({change})"


def levels_differ(shown: float, judged: float, minimum_effect: float) -> bool:
    """Return whether the ratio of the latencies that are shown differs from the judged change by the minimum effect."""
    return abs(math.log(shown / judged)) >= math.log1p(minimum_effect)


def micros(value_ns: float) -> str:
    return f"{value_ns / 1e3:.4g} us"


def percent(ratio: float) -> str:
    """Return a change like `+2.1 %`."""
    part = 100 * (ratio - 1)
    return f"{part:+.1f} %" if abs(part) >= 0.05 else "0.0 %"


def _changed(change: Interval, verdict: Verdict | None) -> str:
    return f"{_part(abs(change.estimate - 1))} {verdict} ({_span(change)})"


def _span(change: Interval) -> str:
    return f"{percent(change.low)} to {percent(change.high)}"


def _part(part: float) -> str:
    return f"{100 * part:.1f} %"
