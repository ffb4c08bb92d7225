"""The part of a page of results on one operator and device model: cases, published figures, all measurements, losses, refusals.

Every table is a list of rows, and a row has its cells by their headers.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TypeVar

from pairbench.analyze.facts import ceilings_of, series_facts
from pairbench.features.results.operator import CaseResults, ClaimState, JudgedClaim, ModeResults, OperatorResults, lost
from pairbench.model.case import Claim
from pairbench.model.environment import MODES
from pairbench.model.plain import grouped
from pairbench.model.record import CALL, Record, Series, p50_of, speedup_of
from pairbench.model.site import SeriesStatus
from pairbench.report import rows, units
from pairbench.report.operator_charts import roof_fraction, state_of
from pairbench.report.render import Block, Column, Heading, Items, Line, TableBlock, clean, shorten, table_of
from pairbench.report.units import labels_of, listed

Value = TypeVar("Value")
Cells = dict[str, str]

_TEXTS = {  # the headers of columns of text, which stand on the left
    *("case", "tier", "implementation", "variant", "best variant", "mode", "status", "which", "why", "host-bound"),
    *("published", "about", "on", "by", "measured there", "our case", "ours", "ours is", "why not"),
    *("there", "where it loses", units.SAME_MEMORY),
}
_USUAL = {"mode": "eager", "status": "skipped"}
_FOLD_CASES, _FOLD_RECORDS, _FOLD_LOSSES = 40, 8, 15  # the number of rows above which a table is folded
_NAMED_CASES, _NAMED_GAPS = 3, 6  # the number of cases that a row names, and of names in a sentence


def operator_blocks(results: OperatorResults) -> Iterator[Block]:
    labels = case_names(results)
    yield Heading(text=results.operator.name, level=3)
    summary, source = results.operator.summary, results.operator.source
    sentences = [f"{summary or 'No summary.'} From {results.operator.suite}{f', after {source}' if source else ''}."]
    consuming = [item for item in results.operator.implementations if item.consumes]
    sentences += [f"{one.name} {units.overwrites(one.consumes)}, which its caller loses." for one in consuming]
    yield Line(text=clean(" ".join([*sentences, *(f"{note}." for note in results.notes)])), gap=True)
    runs = []
    for run in results.runs:
        numbers = sorted({record.n_rounds for record in run if record.n_rounds})
        unit = "round" if numbers == [1] else "rounds"
        rounds = f", of {' or '.join(map(str, numbers))} {unit}" if numbers else ""
        runs.append(f"{rows.heading(run[0])}: {len(run)} records{rounds}")
    yield Items(texts=tuple(runs))
    main = [(case, mode) for case in results.cases if (mode := main_mode(case))]
    cases = [_case_cells(labels[case.case.key], case, mode, results.claims) for case, mode in main]
    title = f"All {len(cases)} cases" if len(cases) > _FOLD_CASES else ""
    yield _table(cases, title=title, fold_above=_FOLD_CASES)
    yield from _modes_blocks(results, labels)
    if results.claims:
        yield _table([_claim_cells(one, labels) for one in results.claims], title="Published, and ours beside it:")
    measurements = [
        _measurement_cells(labels[case.case.key], record, mode)
        for case in results.cases
        for mode in case.modes
        for record in (mode.baseline, *mode.variants)
        if record and p50_of(record)
    ]
    title = f"All {len(measurements)} measurements, errors included; a speedup is over the baseline of its own run:"
    yield _table(measurements, title=title, fold_above=_FOLD_RECORDS)
    yield from _losses_blocks(results, labels)
    if results.refused:
        yield _grouped(results.refused, labels, title="Refused (mismatched, failed, out of memory or out of time):")
    if results.skipped:
        yield _grouped(results.skipped, labels, title="Skipped:")
    yield from _gaps(results, labels)


def _table(table: Sequence[Cells], *, title: str = "", fold_above: int | None = None) -> TableBlock:
    columns = [
        Column[Cells](header, itemgetter(header), right=header not in _TEXTS, usual=_USUAL.get(header, ""))
        for header in (table[0] if table else ())
    ]
    return table_of(columns, table, title=title, fold_above=fold_above)


def case_names(results: OperatorResults) -> dict[str, str]:
    """Return short names of an operator's cases by their keys; longer ones than a chart's, for a page has more room."""
    cases = [*(item.case for item in results.cases), *results.missing]
    return labels_of({case.key: dict(case.axes) for case in cases}, fits=80)


def main_mode(case: CaseResults) -> ModeResults | None:
    """Return the mode in which a case is in the main table: eager, or the first that was measured."""
    return next((results for mode in MODES if (results := case.in_mode(mode))), None)


def _case_cells(label: str, case: CaseResults, mode: ModeResults, claims: Iterable[JudgedClaim]) -> Cells:
    both = mode.baseline, mode.best
    named = [(name, record) for name, record in zip(("baseline", "best"), both, strict=True) if record]
    best, latency = mode.best, units.common(*both)
    beside = f" ({mode.mode})" if mode.mode != "eager" else ""
    judged = [one for one in claims if one.case == case.case and one.claim.mode == mode.mode]
    states = [str(one.state) for one in judged]
    over, alternative = mode.over_best or (None, None)
    over_best = units.over(over and over.estimate, alternative, mode.mode)
    if over and over_best and (interval := units.ratio_range(over.low, over.high)):
        over_best += f" ({interval})"
    return {
        "case": label,
        "tier": case.case.tier,
        "baseline": units.p50(mode.baseline, latency),
        "best variant": f"{best.implementation}{beside}" if best else "none was measured",
        "P50": units.p50(best, latency),
        "speedup": units.speedup(best),
        "95 %": units.speedup_range(best),
        "over the best alternative": over_best,
        "as launched": units.as_launched(best),
        "call": "" if latency is CALL else _between(both, units.call),
        "host-bound": "; ".join(
            f"{name}: {units.issuing(record.host_p50_ns, record.device_p50_ns)}"
            for name, record in named
            if record.bound == "host"
        ),
        units.SAME_MEMORY: " and ".join(name for name, record in named if record.reuses_output),
        "launches": _between(both, rows.launches),
        "peak memory": _between(both, lambda record: units.size(record.peak_bytes)),
        "of the roof": _between(both, lambda record: units.percent(part_of_roof(record))),
        "published": "; ".join(_published_briefly(one.claim) for one in judged),
        "ours is": states[0] if len(set(states)) == 1 else "; ".join(states),
    }


def part_of_roof(record: Record) -> float:
    """Return the part of its roof that a record reaches, as on the site; NaN where that is not known."""
    series = Series.of(record)
    assert series is not None
    return roof_fraction(series_facts(record, series, SeriesStatus(state="unchanged")), ceilings_of(record))


def _between(both: Iterable[Value | None], text: Callable[[Value], str]) -> str:
    """Return the text of a value before and after, or of the one of them that is known, such as the baseline and a variant."""
    return " -> ".join(filter(None, [text(value) if value is not None else "" for value in both]))


def _modes_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield a table with each mode beside the others, and when compiling has paid for itself; nothing where only one was measured."""
    modes = [mode for mode in MODES if any(case.in_mode(mode) for case in results.cases)]
    if len(modes) < 2:
        return
    table = []
    for case in (case for case in results.cases if len(case.modes) > 1):
        cells = {"case": labels[case.case.key]}
        for mode in modes:
            baseline, best = _baseline_and_best(case, mode)
            cells[f"{mode}: baseline"] = units.p50(baseline)
            named = f" {best.implementation}, {units.speedup(best)}" if best else ""
            cells[f"{mode}: best"] = f"{units.p50(best)}{named}"
        for name, record in zip(("baseline", "best"), _baseline_and_best(case, "compile"), strict=True):
            cells[f"compiling the {name}"] = _paid(record, case.in_mode("eager"))
        table.append(cells)
    yield _table(
        table,
        title="Modes: baseline, and the best variant with its speedup over the baseline of the same mode. Compiling: "
        "the first call (warm: in a new process that finds what was compiled on disk), after how many calls it has paid for "
        "itself, by the latency of a call, beside the same implementation in eager mode, and how often was compiled where that is not once.",
        fold_above=15,
    )
    for mode in modes:
        bests = [best for case in results.cases if (best := _baseline_and_best(case, mode)[1])]
        states = Counter(state_of(*speedup) for best in bests if (speedup := speedup_of(best)))
        if mode != "eager" and bests:
            yield Line(
                text=f"In mode {mode} the best variant is proven faster than the baseline of that mode in {states['faster']} of "
                f"{len(bests)} cases, slower in {states['slower']}, and not told apart from it in {states['open']}.",
                gap=True,
            )


def _baseline_and_best(case: CaseResults, mode: str) -> tuple[Record | None, Record | None]:
    results = case.in_mode(mode)
    return (results.baseline, results.best) if results else (None, None)


def _paid(record: Record | None, eager: ModeResults | None) -> str:
    """Return the first call of a compiled implementation, after how many calls that is paid back, and unusual counts of compilations."""
    if record is None or record.first_call_ns is None:
        return ""
    warm = f" ({units.duration(record.warm_first_call_ns)} warm)" if record.warm_first_call_ns is not None else ""
    records = [eager.baseline, *eager.variants] if eager else []
    before = next((one.call_p50_ns for one in records if one and one.implementation == record.implementation), None)
    calls = "not measured in eager mode"
    if before is not None and record.call_p50_ns is not None:
        saved = before - record.call_p50_ns
        calls = f"{math.ceil(record.first_call_ns / saved):,} calls" if saved > 0 else "never"
    counts = ((record.compilations, "compiled"), (record.recompilations, "again"), (record.graph_breaks, "breaks"))
    usual = record.compilations is None or (record.compilations == 1 and not record.graph_breaks)
    compiled = "" if usual else "; " + ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{units.duration(record.first_call_ns)}{warm}, {calls}{compiled}"


def _claim_cells(judged: JudgedClaim, labels: Mapping[str, str]) -> Cells:
    claim, proven = judged.claim, judged.state in (ClaimState.SAME, ClaimState.BETTER)
    mode = claim.mode if claim.mode != "eager" else ""
    return {
        "published": _published(claim),
        "about": ", ".join(filter(None, [claim.implementation, mode])),
        "on": claim.device,
        "by": claim.source,
        "measured there": claim.shape,
        "our case": labels[judged.case.key] if judged.case else "none here",
        "ours": _ours(judged),
        "ours is": str(judged.state),
        "why not": "" if proven else claim.unmet,
    }


def _published(claim: Claim) -> str:
    if claim.pair is None:
        return _ratio(claim)
    match claim.quantity:
        case "latency_ms":
            return f"{_between(claim.pair, lambda ms: units.duration(ms * 1e6))} ({_ratio(claim)})"
        case "peak_gib":
            return _between(claim.pair, lambda gib: units.size(gib * 2**30))
        case quantity:
            return f"{_between(claim.pair, units.count)} {quantity}"


def _published_briefly(claim: Claim) -> str:
    # Our latencies stand beside it, so that its ratio is enough.
    figure = _ratio(claim) if claim.quantity == "latency_ms" else _published(claim)
    return f"{claim.implementation} {figure}" if claim.implementation else figure


def _ratio(claim: Claim) -> str:
    least, most = claim.ratio
    return units.ratio(least) if least == most else f"{units.ratio_range(least, most)}x"


def _ours(judged: JudgedClaim) -> str:
    """Return what was measured here of the quantity that a claim is about; empty where nothing was."""
    if judged.variant is None or judged.state is ClaimState.UNMEASURED:
        return ""
    both, by = (judged.baseline, judged.variant), f", {judged.variant.implementation}"
    match judged.claim.quantity:
        case "launches":
            return _between(both, rows.launches) + by
        case "syncs":
            return _between(both, lambda record: units.count(record.syncs_per_call)) + by
        case "peak_gib":
            return _between(both, lambda record: units.size(record.peak_bytes)) + by
    latency, variant = units.common(*both), judged.variant
    speedup = ", ".join(filter(None, [units.speedup(variant), units.speedup_range(variant)]))
    return f"{_between(both, lambda record: units.p50(record, latency))} ({speedup}){by}"


def _measurement_cells(label: str, record: Record, mode: ModeResults) -> Cells:
    name = str(record.implementation)
    latency = units.common(record, mode.baselines.get(name))  # in which it stands beside its baseline
    return {
        "case": label,
        "implementation": name,
        "mode": record.mode or "",
        "P50": units.p50(record, latency),
        "speedup": units.speedup(record),
        "95 %": units.speedup_range(record),
        "call": units.call(record) if latency != CALL else "",
        "host": units.host(record),
        "the step alone": str(mode.steps.get(name, "")),
        "launches": rows.launches(record),
        "peak memory": units.size(record.peak_bytes),
        units.SAME_MEMORY: "yes" if record.reuses_output else "",
        "max error": units.error(record.max_abs_error),
        "mean error": units.error(record.mean_abs_error),
        "oracle ratio": units.significant(record.oracle_ratio, 3),
    }


def _losses_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    if not results.losses:
        if any(mode.best for case in results.cases for mode in case.modes):
            yield Line(text="Where variants lose: no variant is proven slower than the baseline in any case.", gap=True)
        return
    table = []
    for one in results.losses:
        number, slowest = len(one.losing), one.losing[0]
        cells = {"variant": one.implementation, "mode": one.mode, "loses in": f"{number} of {one.measured}"}
        cells |= {"slowest": _speedup(slowest), "there": labels.get(str(slowest.case), "")}
        table.append({**cells, "where it loses": "everywhere" if number == one.measured else str(one.where or "")})
    yield _table(table, title="Where variants lose:")
    # The speedups of all variants that lose anywhere, in the cases and modes in which one of them does.
    names = [item.name for item in results.operator.implementations]
    losing = sorted({one.implementation for one in results.losses}, key=names.index)
    several = len({one.mode for one in results.losses}) > 1
    table = []
    for case in results.cases:
        for mode in (mode for mode in case.modes if any(map(lost, mode.variants))):
            variants = {record.implementation: record for record in mode.variants}
            label = labels[case.case.key] + (f", {mode.mode}" if several else "")
            table.append({"case": label, **{name: _outcome(variants.get(name)) for name in losing}})
    title = "Their speedups, case by case, wherever one of them loses (slower: its whole interval lies below 1)"
    yield _table(table, title=title, fold_above=_FOLD_LOSSES)


def _outcome(record: Record | None) -> str:
    """Return the speedup of a record, marked where it is slower, or else its status."""
    if record is None or not units.speedup(record):
        return str(record.status) if record is not None and record.status != "measured" else ""
    return f"slower, {_speedup(record)}" if lost(record) else units.speedup(record)


def _speedup(record: Record) -> str:
    interval = units.speedup_range(record)
    return f"{units.speedup(record)}{f' ({interval})' if interval else ''}"


def _grouped(records: Sequence[Record], labels: Mapping[str, str], *, title: str) -> TableBlock:
    """Return records in which the same happened to the same implementation as one row."""
    alike = attrgetter("implementation", "mode", "status", "reason")
    groups = grouped((alike(record), labels[str(record.case)]) for record in records)
    table = []
    for (implementation, mode, status, reason), cases in groups.items():
        cells = {"implementation": implementation or "", "mode": mode or "", "status": status or ""}
        cells |= {"cases": units.count(len(cases)), "which": listed(cases, _NAMED_CASES, "; ")}
        table.append({**cells, "why": shorten(reason or "", 140)})
    return _table(table, title=title, fold_above=_FOLD_LOSSES)


def _gaps(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield the variants and cases that have no record, or only of an earlier definition."""
    tried = {str(record.implementation) for case in results.cases for mode in case.modes for record in mode.variants}
    variants = results.operator.implementations[1:]
    gaps = {
        "No measurement of the variants": [item.name for item in variants if item.name not in tried],
        "No measurement of the cases": [labels[case.key] for case in results.missing],
        "Measured with an earlier definition of the operator": [labels[key] for key in results.outdated],
    }
    if sentences := [f"{words}: {listed(names, _NAMED_GAPS, '; ')}." for words, names in gaps.items() if names]:
        yield Items(texts=tuple(sentences))
