"""The newest records of an operator on one device model, its published figures beside them, and where variants lose.

The losses of a variant are described by the one condition on a case that fits them best: a map of many cases in a line.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter, eq, ge, le
from typing import Any, NamedTuple

from pairbench.analyze.facts import environment_of
from pairbench.model.case import Case, Claim
from pairbench.model.environment import MODES, OWN_TIMERS, about_precision, withheld
from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE, LIBRARY, OperatorDescription
from pairbench.model.record import CALL, DEVICE, RESULT_COLUMNS, Record, p50_of, result_of, speedup_of, speedup_over
from pairbench.report.units import axis_text, is_number, ratio, ratio_range, size
from pairbench.stats import Interval, speedup_interval

SIZE = "bytes"  # the name under which conditions speak of the size of a case: the bytes that it demands
_FEWEST = 4  # the number of cases below which any axis would tell them apart
_TELLS = 0.75  # the part of the losing cases that a condition must hold, less the part of the others that it holds
_ENOUGH, _MORE, _MANY = 0.95, 0.1, 20
"""Up to `_ENOUGH`, one bound leaves room for a second; the two must tell `_MORE` more, and of `_MANY` cases."""
_MEETS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, ">=": ge, "<=": le}
COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty", "suite", "operator"),
    *("definition_hash", "case", "axes", "tier", "dtype", "float32_precision", "implementation", "role", "mode"),
    *("device_kind", "device_name", "device_uuid", "hostname"),
    *("driver", "cuda", "cudnn", "torch", "triton", "python", "cpu"),
    *("environment_hash", "environment", "status", "reason", "first_call_ns", "n_rounds"),
    *(*RESULT_COLUMNS, "round_p50_ns", "device_round_p50_ns"),
    *("max_abs_error", "mean_abs_error", "oracle_ratio"),
    *("warm_first_call_ns", "compilations", "recompilations", "graph_breaks"),
    *("launches_per_call", "kernels_per_call", "syncs_per_call", "reuses_output"),
    *("launch_status", "peak_bytes", "flops", "bytes_moved", "gbps", "roofline_fraction"),
)
_Key = tuple[str, str, str]  # case, implementation and mode together name a row of an operator
_timed_with = attrgetter("run_id", "device_uuid", "case", "mode")  # these name what was timed side by side


class ClaimState(StrEnum):
    """How a measurement compares with a claim. Ratios and counts are compared, never times of two devices."""

    BETTER = "better"
    SAME = "same"  # the measured interval holds the claimed speedup, or reaches into the claimed range
    WORSE = "worse"
    UNPROVEN = "not proven"  # the measurement has too few samples for an interval
    UNMEASURED = "not measured"


class JudgedClaim(Value):
    claim: Claim
    case: Case | None  # the case that it was judged in; None where no case comes near
    state: ClaimState
    baseline: Record | None = None
    variant: Record | None = None  # of the claim's variant, or of the best; None where it was not measured


class StepGain(NamedTuple):
    over: str
    gain: Interval  # latency of that variant over its own; the interval's ends are NaN where there was one round

    def __str__(self) -> str:
        within = ratio_range(self.gain.low, self.gain.high)
        return f"{ratio(self.gain.estimate)} {f'({within}) ' if within else ''}over {self.over}"


class ModeResults(Value):
    mode: str
    baseline: Record | None  # of the best variant's run; the newest one where no variant was measured
    best: Record | None  # the measured variant with the largest speedup; None where none was measured
    variants: tuple[Record, ...]  # the newest record of each variant, in the order of declaration, however it ended
    baselines: Mapping[str, Record]  # that of each variant's own run, by the variant's name
    steps: Mapping[str, StepGain]  # by the variant's name, where one run timed it and the variant that it builds on
    over_best: tuple[Interval, str] | None = None
    """How many times as fast the fastest own kernel is as the best alternative, and the alternative's name; None where no variant of the kind
    `library`, or no other variant, was measured."""


class CaseResults(Value):
    case: Case
    bytes_moved: float | None  # bytes that the case moves at least, by its declared cost; None where none is declared
    modes: tuple[ModeResults, ...]

    def in_mode(self, mode: str) -> ModeResults | None:
        return next((results for results in self.modes if results.mode == mode), None)


class AxisBound(NamedTuple):
    axis: str  # name of the axis; `bytes` stands for the size, the bytes that the case moves
    relation: str  # `>=`, `<=` or `=`
    value: object

    def holds(self, axes: Mapping[str, object]) -> bool:
        return self.axis in axes and _MEETS[self.relation](axes[self.axis], self.value)

    def __str__(self) -> str:
        if self.axis == SIZE and isinstance(self.value, int | float):
            return f"{'at least' if self.relation == '>=' else 'at most'} {size(self.value)} moved"
        return f"{self.axis} {self.relation} {axis_text(self.value)}"


class LossCondition(NamedTuple):
    """The cases in which a variant loses, described by one bound, or by two that both hold."""

    terms: tuple[AxisBound, ...]
    inside: tuple[int, int]  # of the cases within the bounds: those in which the variant loses, and all
    outside: tuple[int, int]  # the same of all other cases

    def __str__(self) -> str:
        (lost, among), (others, rest) = self.inside, self.outside
        return f"{' and '.join(map(str, self.terms))}: {lost} of {among}, else {others} of {rest}"


class Losses(NamedTuple):
    """The cases in which one variant in one mode is slower than the baseline by its whole interval."""

    implementation: str
    mode: str
    losing: tuple[Record, ...]  # records of the variant in these cases, the slowest first
    measured: int  # number of cases in which the variant was measured
    where: LossCondition | None  # what these cases have in common; None where no bound describes them


class OperatorResults(Value):
    """The results of an operator on one device model, by the newest record of each series."""

    operator: OperatorDescription
    device_name: str
    runs: tuple[tuple[Record, ...], ...]  # the records that are shown of each run, the newest run first
    notes: tuple[str, ...]  # unusual conditions of measuring that the records mention, in sentences
    cases: tuple[CaseResults, ...]  # the cases ordered by dtype, then from the smallest to the largest
    claims: tuple[JudgedClaim, ...]
    losses: tuple[Losses, ...]
    refused: tuple[Record, ...]  # records that ended as mismatched, failed, timeout or oom
    skipped: tuple[Record, ...]
    outdated: tuple[str, ...]  # keys of cases that have records of an earlier definition only
    missing: tuple[Case, ...]  # cases that are declared and that the store has no record of


def judged(operator: OperatorDescription, cases: Sequence[CaseResults], tiers: Container[str]) -> Iterator[JudgedClaim]:
    """Yield each claim beside each of its cases, in the order of declaration; one without a case beside none."""
    for claim in operator.claims:
        for case in operator.cases:
            if case.tier in tiers and claim.belongs_to(case):
                mode = next((one.in_mode(claim.mode) for one in cases if one.case.key == case.key), None)
                named = [one for one in mode.variants if one.implementation == claim.implementation] if mode else []
                variant = mode.best if mode and claim.implementation is None else next(iter(named), None)
                baseline = mode.baselines.get(str(variant.implementation)) if mode and variant else None
                state = state_of(claim, baseline, variant)
                yield JudgedClaim(claim=claim, case=case, state=state, baseline=baseline, variant=variant)
        if not claim.cases:
            yield JudgedClaim(claim=claim, case=None, state=ClaimState.UNMEASURED)


def state_of(claim: Claim, baseline: Record | None, variant: Record | None) -> ClaimState:
    # Speedups are compared as ratios, whatever the devices; memory, too, for the sizes need not be the same.
    if variant is None or variant.status != Status.MEASURED:
        return ClaimState.UNMEASURED
    if claim.quantity in ("launches", "syncs"):
        count = variant.launches_per_call if claim.quantity == "launches" else variant.syncs_per_call
        most = (claim.pair or (0, 0))[1]
        if count is None:
            return ClaimState.UNMEASURED
        return ClaimState.SAME if count == most else ClaimState.BETTER if count < most else ClaimState.WORSE
    least, most = claim.ratio
    if claim.quantity == "peak_gib":
        before = baseline.peak_bytes if baseline else None
        if not before or variant.peak_bytes is None:
            return ClaimState.UNMEASURED
        low = high = before / variant.peak_bytes if variant.peak_bytes else math.inf
    else:
        speedup = speedup_of(variant)
        if speedup is None:
            return ClaimState.UNMEASURED
        low, high = speedup.low, speedup.high
        if math.isnan(low) or math.isnan(high):
            return ClaimState.UNPROVEN
    return ClaimState.BETTER if low > most else ClaimState.WORSE if high < least else ClaimState.SAME


class CasePoint(NamedTuple):
    axes: Mapping[str, object]  # the case's axes, and its size under SIZE
    loses: bool


def losses_of(cases: Sequence[CaseResults]) -> tuple[Losses, ...]:
    """Return where each variant is proven slower in each mode, those that lose nowhere left out; the most losses first."""
    measured: defaultdict[tuple[str, str], list[tuple[Record, CasePoint]]] = defaultdict(list)
    for case in cases:
        size = {} if case.bytes_moved is None else {SIZE: case.bytes_moved}
        for record in (record for mode in case.modes for record in mode.variants):
            if record.status == Status.MEASURED and speedup_of(record):
                point = CasePoint(axes={**dict(case.case.axes), **size}, loses=lost(record))
                measured[str(record.implementation), str(record.mode)].append((record, point))
    losses = []
    for series, rows in measured.items():
        if losing := sorted((row for row, point in rows if point.loses), key=lambda row: speedup_of(row) or ()):
            losses.append(Losses(*series, tuple(losing), len(rows), condition_of([point for _, point in rows])))
    return tuple(sorted(losses, key=lambda one: (-len(one.losing), one.implementation)))


def lost(record: Record) -> bool:
    """Return whether a variant is proven slower: its whole interval lies below 1."""
    speedup = speedup_of(record)
    return record.status == Status.MEASURED and speedup is not None and speedup.high < 1


def condition_of(points: Sequence[CasePoint]) -> LossCondition | None:
    """Return the condition, of two bounds where that tells much more, that best tells losing cases from the others; None if none does."""
    losing = sum(point.loses for point in points)
    if len(points) < _FEWEST or losing in (0, 1, len(points)):
        return None

    def counted(*terms: AxisBound) -> LossCondition:
        inside = [point.loses for point in points if all(term.holds(point.axes) for term in terms)]
        outside = (losing - sum(inside), len(points) - len(inside))
        return LossCondition(terms, (sum(inside), len(inside)), outside)

    def separation(one: LossCondition) -> float:
        return one.inside[0] / losing - (one.inside[1] - one.inside[0]) / (len(points) - losing)

    terms = list(_terms(points))
    best = max(map(counted, terms), key=separation, default=None)
    if best is None:
        return None
    if separation(best) < _ENOUGH and len(points) >= _MANY:
        pairs = (counted(*pair) for pair in itertools.combinations(terms, 2) if pair[0].axis != pair[1].axis)
        second = max(pairs, key=separation, default=best)
        best = second if separation(second) >= separation(best) + _MORE else best
    return best if separation(best) >= _TELLS and best.inside[0] > 1 else None


def _terms(points: Sequence[CasePoint]) -> Iterator[AxisBound]:
    """Yield every bound there is, on a case's own axes before its size."""
    names = sorted({name for point in points for name in point.axes}, key=lambda name: (name == SIZE, name))
    for name in names:
        values = list(dict.fromkeys(point.axes[name] for point in points if name in point.axes))
        if len(numbers := sorted(filter(is_number, values))) == len(values):
            yield from (AxisBound(name, relation, value) for relation in (">=", "<=") for value in numbers)
        else:
            yield from (AxisBound(name, "=", value) for value in values)


def results_of(
    operator: OperatorDescription, records: Sequence[Record], tiers: Container[str]
) -> OperatorResults | None:
    """Return what is known of an operator; None where no case in these tiers was ever tried."""
    declared = {case.key: case for case in operator.cases if case.tier in tiers}
    known = [record for record in records if record.case in declared and record.implementation and record.mode]
    if not known:
        return None
    definition, by_run = operator.definition_hash, attrgetter("run_id")
    newest = _newest(known, definition)
    baselines = {_timed_with(record): record for record in known if record.implementation == BASELINE}
    tried = {(case, mode) for case, _, mode in newest}
    libraries = {item.name for item in operator.implementations if item.kind == LIBRARY}
    names = [item.name for item in operator.implementations]

    def in_mode(case: str, mode: str) -> ModeResults:
        variants = tuple(newest[key] for name in names if name != BASELINE and (key := (case, name, mode)) in newest)
        measured = [record for record in variants if record.status == Status.MEASURED and speedup_of(record)]
        best = max(measured, key=lambda record: speedup_of(record) or (), default=None)
        pairs = ((str(record.implementation), baselines.get(_timed_with(record))) for record in variants)
        own = {name: baseline for name, baseline in pairs if baseline}
        return ModeResults(
            mode=mode,
            baseline=own.get(str(best.implementation) if best else "") or newest.get((case, BASELINE, mode)),
            best=best,
            variants=variants,
            baselines=own,
            steps=steps_of(variants, {item.name: item.builds_on for item in operator.implementations}),
            over_best=_over_best(measured, libraries),
        )

    cases = tuple(
        CaseResults(
            case=case,
            bytes_moved=operator.costs.get(case.key, (None, None))[1],
            modes=tuple(in_mode(case.key, mode) for mode in MODES if (case.key, mode) in tried),
        )
        for case in sorted(declared.values(), key=lambda case: _size(case, operator.costs))
        if any(key == case.key for key, _ in tried)
    )
    # In the order of cases, and of implementations in each, as everything on the page.
    modes = [mode for case in cases for mode in case.modes]
    shown = [one for mode in modes for one in (mode.baseline, *mode.variants) if one and one.implementation in names]
    return OperatorResults(
        operator=operator,
        device_name=known[0].device_name,
        runs=tuple(tuple(run) for _, run in itertools.groupby(sorted(shown, key=by_run, reverse=True), by_run)),
        notes=_notes(shown),
        cases=cases,
        claims=tuple(judged(operator, cases, tiers)),
        losses=losses_of(cases),
        refused=tuple(record for record in shown if Status(record.status).bad),
        skipped=tuple(record for record in shown if record.status == Status.SKIPPED),
        outdated=tuple(dict.fromkeys(str(record.case) for record in shown if record.definition_hash != definition)),
        missing=tuple(case for key, case in declared.items() if key not in {found.case.key for found in cases}),
    )


def _over_best(measured: Sequence[Record], libraries: Container[str]) -> tuple[Interval, str] | None:
    def fastest(records: Iterable[Record]) -> tuple[Record, Interval] | None:
        timed = ((one, speedup) for one in records if (speedup := speedup_of(one)))
        return max(timed, key=lambda pair: pair[1], default=None)

    own = fastest(one for one in measured if one.implementation not in libraries)
    library = fastest(one for one in measured if one.implementation in libraries)
    if own is None or library is None:
        return None
    if library[1].estimate <= 1:
        return own[1], BASELINE
    over = speedup_over(own[0], library[0])
    return (over, str(library[0].implementation)) if over else None


def _newest(records: Iterable[Record], definition: str) -> dict[_Key, Record]:
    """Return the newest record of each series."""
    # One of the definition that is declared now goes before all others; what measured, or failed to, before a skip, for an
    # interrupted run skips what it did not come to; and our own clocks before Triton's, which is there to be compared with.

    def place(record: Record) -> tuple[bool, bool, bool, str]:
        own_clock = record.timer is None or record.timer in OWN_TIMERS.values()
        return record.definition_hash == definition, record.status != Status.SKIPPED, own_clock, record.run_id

    newest: dict[_Key, Record] = {}
    for record in records:
        key = (str(record.case), str(record.implementation), str(record.mode))
        newest[key] = max(newest.get(key, record), record, key=place)
    return newest


def _size(case: Case, costs: Mapping[str, tuple[float, float]]) -> tuple[object, ...]:
    """Return what sorts cases of one dtype beside one another, the smallest first."""
    flops, moved = costs.get(case.key, (0.0, 0.0))
    numbers = tuple(float(value) for _, value in case.axes if isinstance(value, int | float))
    return case.dtype or "", moved, flops, numbers, case.key


def _notes(records: Sequence[Record]) -> tuple[str, ...]:
    flags = [environment_of(record).get("flags") or {} for record in records]
    # Of records before schema version 9 only the setting is known.
    precisions = [one.float32_precision for one in records if one.device_kind == "cuda"]
    tf32 = sum(
        one.float32_precision == "tf32" or (one.float32_precision is None and bool(flag.get("matmul.allow_tf32")))
        for one, flag in zip(records, flags, strict=True)
    )
    others = sorted({record.timer for record in records if record.timer and record.timer not in OWN_TIMERS.values()})
    line = f"{tf32} of {len(records)} records were made with TF32 on" if tf32 else about_precision(precisions)
    notes = [line] if line else []
    reasons = {withheld(one.device_kind, one.environment) for one in records}
    notes += sorted(f"speedups withheld: {why}" for why in reasons if why)
    return (*notes, *(f"some were timed by {timer}" for timer in others))


def steps_of(variants: Sequence[Record], builds_on: Mapping[str, str]) -> dict[str, StepGain]:
    """Return the step of each variant that builds on another of the same run, by the variant's name."""
    sure = [one for one in variants if p50_of(one) and not withheld(one.device_kind, one.environment)]
    timed = {str(record.implementation): record for record in sure}
    pairs = {name: (timed.get(builds_on.get(name, "")), record) for name, record in timed.items()}
    return {
        name: StepGain(over=builds_on[name], gain=_gain(before, record))
        for name, (before, record) in pairs.items()
        if before is not None and before.run_id == record.run_id
    }


def _gain(before: Record, record: Record) -> Interval:
    """Return how many times as fast a step is, by its rounds, each a process that timed both; of one round, without an interval."""
    latency = DEVICE if {result_of(before), result_of(record)} == {DEVICE} else CALL
    ours, theirs = (getattr(one, latency.rounds[0]) or () for one in (record, before))
    if len(ours) == len(theirs) > 1:
        return speedup_interval([[value] for value in theirs], [[value] for value in ours])
    medians = (p50_of(one, latency) for one in (before, record))
    slower, faster = (math.nan if median is None else median.estimate for median in medians)
    return Interval(slower / faster, math.nan, math.nan)
