"""The modes side by side: baseline and best variant in each, and when compiling has paid for itself."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pairbench.features.results.values import CaseResults, OperatorResults
from pairbench.model.latency import speedup_of
from pairbench.model.record import Record
from pairbench.model.settings import MODES
from pairbench.report import latency_words, units
from pairbench.report.blocks import Block, Paragraph, table_of
from pairbench.report.operator_charts import state_of
from pairbench.report.render import Column

EAGER, COMPILE = "eager", "compile"


def modes_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield a table with each mode beside the others; nothing where only one was measured."""
    modes = [mode for mode in MODES if any(case.in_mode(mode) for case in results.cases)]
    if len(modes) < 2:
        return
    columns: list[Column[CaseResults]] = [Column(header="case", text=lambda case: labels[case.case.key], right=False)]
    for mode in modes:
        columns += [
            Column(header=f"{mode}: baseline", text=partial(_baseline, mode=mode)),
            Column(header=f"{mode}: best", text=partial(_best, mode=mode)),
        ]
    columns += [
        Column(header="compiling the baseline", text=partial(_paid, best=False)),
        Column(header="compiling the best", text=partial(_paid, best=True)),
    ]
    several = [case for case in results.cases if len(case.modes) > 1]
    yield table_of(
        columns,
        several,
        title="Modes: baseline, and the best variant with its speedup over the baseline of the same mode. Compiling: "
        "the first call (warm: in a new process that finds what was compiled on disk), after how many calls it has paid for "
        "itself, by the latency of a call, beside the same implementation in eager mode, and how often was compiled where that is not once.",
        fold_above=15,
    )
    for mode in modes:
        if mode != EAGER and (sentence := _wins_sentence(results.cases, mode)):
            yield Paragraph(text=sentence)


def _baseline(case: CaseResults, mode: str) -> str:
    results = case.in_mode(mode)
    return latency_words.p50(results.baseline) if results else ""


def _best(case: CaseResults, mode: str) -> str:
    results = case.in_mode(mode)
    best = results.best if results else None
    return f"{latency_words.p50(best)} {best.implementation}, {latency_words.speedup(best)}" if best else ""


def _paid(case: CaseResults, *, best: bool) -> str:
    """Return the first call in compile mode, and how many calls it takes until that is paid back."""
    compiled = case.in_mode(COMPILE)
    record = (compiled.best if best else compiled.baseline) if compiled else None
    if record is None or record.first_call_ns is None:
        return ""
    warm = f" ({units.duration(record.warm_first_call_ns)} warm)" if record.warm_first_call_ns is not None else ""
    return f"{units.duration(record.first_call_ns)}{warm}, {_calls(case, record)}{_compiled(record)}"


def _compiled(record: Record) -> str:
    if record.compilations is None:
        return ""
    counts = ((record.compilations, "compiled"), (record.recompilations, "again"), (record.graph_breaks, "breaks"))
    if record.compilations == 1 and not record.graph_breaks:
        return ""
    return "; " + ", ".join(f"{count} {what}" for count, what in counts if count)


def _calls(case: CaseResults, compiled: Record) -> str:
    mode = case.in_mode(EAGER)
    records = [mode.baseline, *mode.variants] if mode else []
    eager = next((one.call_p50_ns for one in records if one and one.implementation == compiled.implementation), None)
    if eager is None or compiled.call_p50_ns is None or compiled.first_call_ns is None:
        return "not measured in eager mode"
    saved = eager - compiled.call_p50_ns
    return f"{math.ceil(compiled.first_call_ns / saved):,} calls" if saved > 0 else "never"


def _wins_sentence(cases: Sequence[CaseResults], mode: str) -> str:
    """Return in how many cases the best variant wins against the baseline of a mode."""
    compared = [one.best for case in cases if (one := case.in_mode(mode)) and one.best]
    states = Counter(state_of(*speedup) for best in compared if (speedup := speedup_of(best)))
    if not compared:
        return ""
    return (
        f"In mode {mode} the best variant is proven faster than the baseline of that mode in {states['faster']} of "
        f"{len(compared)} cases, slower in {states['slower']}, and not told apart from it in {states['open']}."
    )
