"""A comparison in words: its headline, its sides, and remarks on each change."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pairbench.analyze.compare.attribute import levels_differ
from pairbench.model.comparison import Change, Comparison, GateOutcome, Judgement, KernelChange, Side, Verdict, moves_of
from pairbench.model.record import Series
from pairbench.report import units
from pairbench.report.render import clean, shorten

OUTCOME_STYLES = {  # on a terminal, the worst first; other outcomes have none
    GateOutcome.FAILED: "red",
    GateOutcome.REGRESSION: "red",
    GateOutcome.IMPROVEMENT: "green",
    GateOutcome.UNDECIDED: "yellow",
}
_COMPARED = tuple(map(GateOutcome, ("failed", "regression", "improvement", "unchanged", "undecided")))
_ORDER = (*_COMPARED, GateOutcome.NEW, GateOutcome.MISSING, GateOutcome.INCOMPARABLE)
_COUNTED = {GateOutcome.REGRESSION: "regressions", GateOutcome.IMPROVEMENT: "improvements"}
_FIELDS = 4  # number of changed fields of an environment that one line names
_SOURCES = 3  # number of sentences on reference runs of another source
_KERNELS = 6  # number of changed kernels that one line names


def headline(comparison: Comparison) -> str:
    return f"{verdict(comparison.outcomes)} against {side(comparison.reference)}"


def verdict(outcomes: Counter[GateOutcome]) -> str:
    counts = [counted(outcome, outcomes[outcome]) for outcome in _ORDER if outcomes[outcome]]
    if not any(outcomes[outcome] for outcome in _COMPARED):
        return ": ".join(filter(None, ["nothing was compared", ", ".join(counts)]))
    bad = outcomes[GateOutcome.FAILED] or outcomes[GateOutcome.REGRESSION]
    return ", ".join(counts if bad else ["no regression", *counts])


def counted(outcome: GateOutcome, number: int) -> str:
    """Return a number of series with their outcome, like `2 regressions`."""
    return f"{number:,} {_COUNTED.get(outcome, outcome) if number != 1 else outcome}"


def moves(changes: Iterable[Change]) -> list[str]:
    """Return how many series moved and how far, a line each: regressions, improvements, and all series whose medians were compared."""
    lines = []
    for name, one in moves_of(changes).items():
        what = f"all {one.series:,} compared" if name == "all" else counted(GateOutcome(name), one.series)
        among = f" of {one.known:,}" if one.known != one.series else ""
        mean, *ends = (units.change(ratio) for ratio in (one.geometric_mean, one.smallest, one.largest))
        if one.known:
            several = one.known > 1
            what += f": geometric mean of P50{among} {mean}, {' to '.join(ends)}" if several else f": P50{among} {mean}"
        lines.append(what)
    return lines


def side(one: Side) -> str:
    if not one.runs and not one.commits:
        return clean(f"no run ({one.asked})")
    commits = list(dict.fromkeys(commit[:7] for commit in one.commits))
    among = "..".join([*commits[:1], *commits[1:][-1:]])
    if not one.runs:  # two commits side by side, of which nothing is stored
        return shorten(f"{one.asked} ({among})", 200)
    asked = "" if one.asked in one.runs else one.asked
    if len(one.runs) == 1:
        known = ", ".join(filter(None, [asked, among]))
        return shorten(f"run {one.runs[0]}{f' ({known})' if known else ''}", 200)
    whole = f"{len(one.runs)} runs{f' of {asked}' if asked else ''}"
    return shorten(f"{whole}{f' ({among})' if among else ''}", 200)


def name(series: Series) -> str:
    """Return a series' name with its device; of a suite that could not be loaded there is no more than the suite."""
    return f"{series.name if series.case else series.suite} ({series.device_name})"


def metric(judgement: Judgement, *, of: Change) -> str:
    """Return the name of a metric for readers: P50 or P95 for the latency that decides the change, for others the full name."""
    column = judgement.metric
    deciding = of.p50.metric if of.p50 else ""
    if deciding and column in (deciding, deciding.replace("p50", "p95")):
        return "P95" if "p95" in column else "P50"
    if column == "peak_bytes":
        return "peak memory"
    words = column.removesuffix("_per_call").removesuffix("_ns").replace("_", " ")
    return words.replace("p50", "P50").replace("p95", "P95")


def value(judgement: Judgement, quantity: float | str | None) -> str:
    if quantity is None or isinstance(quantity, str):
        return quantity or ""
    if judgement.metric.endswith("_ns"):
        return units.duration(quantity)
    if "bytes" in judgement.metric:
        return units.size(quantity)
    return units.count(quantity) if float(quantity).is_integer() else units.significant(quantity, 3)


def change(judgement: Judgement) -> str:
    """Return by how much a metric moved: latencies and bytes in percent, counts as numbers."""
    if judgement.change is not None:
        return units.change(judgement.change.estimate)
    before, after = judgement.reference, judgement.current
    if isinstance(before, str) or isinstance(after, str) or before is None or after is None or before == after:
        return ""
    if "bytes" in judgement.metric or judgement.metric.endswith("_ns"):
        return units.change(after / before) if before > 0 else ""
    difference = after - before
    return f"{difference:+.0f}" if float(difference).is_integer() else f"{difference:+.2g}"


def era(fields: Sequence[object]) -> str:
    """Return the heading of changes across an environment that changed, or empty."""
    changes = [shorten(str(one), 60) for one in fields[:_FIELDS]]
    if len(fields) > _FIELDS:
        changes.append(f"and {(more := len(fields) - _FIELDS)} more field{'' if more == 1 else 's'}")
    return f"environment changed: {', '.join(changes)}" if changes else ""


def eras(changes: Sequence[Change]) -> list[str]:
    """Return one line of how the environment changed, what most series met first, and of how many series; none where it is the same."""
    fields = Counter(field for change in changes for field in change.era)
    met = sum(bool(change.era) for change in changes)
    heading = era([field for field, _ in fields.most_common()])
    return [f"{heading}, in {met:,} of {len(changes):,} series"] if met else []


def left_out(comparison: Comparison) -> list[str]:
    """Return which reference runs measured another source than the newest of them, and of how many series."""
    counts = Counter(
        f"left out of the reference: {', '.join(change.left_out_runs)}, of another source than the newest reference run"
        for change in comparison.changes
        if change.left_out_runs
    )
    whole = len(comparison.changes)
    lines = [f"{told}, in {number:,} of {whole:,} series" for told, number in counts.most_common(_SOURCES)]
    return [*lines, *([f"and in {len(counts) - _SOURCES:,} more ways"] if len(counts) > _SOURCES else [])]


def legend(comparison: Comparison) -> str:
    """Return what the latencies and their changes are computed from."""
    several, change = ", of several runs their median", "geometric mean of the rounds, current over reference"
    if not comparison.current.runs:  # interleaved
        several, change = "", "geometric mean of the rounds' ratios"
    return f"P50 and P95: of all samples, as `pairbench show` prints them{several}; change: {change}"


def across(change: Change) -> str:
    """Return the latencies on both device models, to stand behind a name; empty for a series of one model."""
    if (beside := change.across) is None:
        return ""
    times = f"{units.duration(beside.reference_ns)} -> {units.duration(beside.current_ns)}"
    speedups = ""
    if beside.reference_speedup and beside.current_speedup:
        speedups = f", speedup {units.ratio(beside.reference_speedup)} -> {units.ratio(beside.current_speedup)}"
    return f": {times}, {units.ratio(beside.ratio)} of the time{speedups}"


def remarks(one: Change) -> list[str]:
    """Return remarks on a change beside its numbers, a line each; none where the numbers are enough."""
    if _numbers_say_it(one):
        return []
    lines = [shorten(one.reason, 400)]
    if one.kernels:
        kernels = [kernel(difference) for difference in one.kernels[:_KERNELS]]
        if len(one.kernels) > _KERNELS:
            kernels.append(f"and {len(one.kernels) - _KERNELS} more")
        lines.append(f"kernels: {'; '.join(kernels)}")
    source = "its source changed" if one.implementation_changed else "its source did not change"
    # The reason of a failure names the source where an earlier success can be compared with it.
    if one.implementation_changed is None or one.outcome is GateOutcome.FAILED or source in one.reason:
        source = ""
    moved = one.outcome in (GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT)
    latency = bool(one.judgements) and one.judgements[0].verdict in (Verdict.SLOWER, Verdict.FASTER)
    confirmed = "not measured a second time" if moved and latency else ""
    if one.confirmed is not None:
        confirmed = "confirmed by a second measurement" if one.confirmed else "a second measurement did not confirm it"
    lines.append("; ".join(filter(None, [source, confirmed])))
    lines += [f"accepted: {shorten(one.accepted, 400)}"] if one.accepted is not None else []
    return [line for line in lines if line]


def _numbers_say_it(one: Change) -> bool:
    """Tell whether the reason is only that the interval lies within the band, or reaches across its end."""
    if one.accepted is not None or one.attribution is not None or one.confirmed is not None or not one.judgements:
        return False
    for judgement in one.judgements:
        # The latencies that are shown may say something else than the change that was judged.
        change, least, shown = judgement.change, judgement.minimum_effect, judgement.shown_ratio
        if change is None or least is None or shown is None or judgement.relative_to_baseline:
            continue
        if levels_differ(shown, change.estimate, least):
            return False
    first = one.judgements[0]
    judged = first.change is not None and first.minimum_effect is not None
    return one.outcome is GateOutcome.UNCHANGED or (first.verdict is Verdict.UNDECIDED and judged)


def kernel(difference: KernelChange) -> str:
    """Return a change of a kernel like `new 2 x gemm (3.100 us)`; the times are profiled and only indicate."""
    what, kernel_ = difference.what, kernel_name(difference.name)
    counts = (difference.reference_count, difference.current_count)
    before, after = (units.duration(ns) for ns in (difference.reference_ns, difference.current_ns))
    if not all(counts):
        return f"{what} {counts[1] or counts[0]} x {kernel_} ({before if counts[0] else after})"
    if counts[0] != counts[1]:
        return f"{what} {kernel_} ({counts[0]} -> {counts[1]} a call)"
    return f"{what} {kernel_} ({before} -> {after})"


def kernel_name(whole: str, width: int = 80) -> str:
    """Return a C++ kernel's name without return type, namespaces and parameters; what is left may be shortened."""
    text = clean(whole).replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "<[{") - (letter in ">]}")
        if letter == "(" and depth <= 0 and index:
            text = text[:index]
            break
    # A part of a class template is nothing without the template.
    return shorten(re.sub(r"\w+::|(?<!>)::", "", text) or clean(whole), width)


def short_commit(commit: str | None, dirty: bool | None, letters: int = 7) -> str:
    """Return a commit like `abc1234`, or `abc1234+` where there were uncommitted changes; empty outside of git."""
    return f"{commit[:letters]}{'+' if dirty else ''}" if commit else ""
