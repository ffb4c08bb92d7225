"""The page of results, device by device and operator by operator, losses included; as text, or as plain objects for programs.

It holds no time of writing, so that equal stores and suites give equal pages.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pairbench.config import Config
from pairbench.errors import SelectionError
from pairbench.execute.garbage import collector_at_rest
from pairbench.features.results.operator import COLUMNS, ClaimState, ModeResults, OperatorResults, results_of
from pairbench.features.results.operator_page import case_names, main_mode, operator_blocks, part_of_roof
from pairbench.model.case import TIERS
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record, interval_columns, speedup_of
from pairbench.report import units
from pairbench.report.operator_charts import state_of
from pairbench.report.render import Block, Column, Heading, Items, Line, clean, render_page, table_of, to_markdown
from pairbench.stats import Interval
from pairbench.store.reader import WholeStore
from pairbench.workflow.setup import choose, open_context, store_of

_NUMBERS = (
    *("run_id", "implementation", "mode", "status", "reason", "timer", "device_p50_ns", "call_p50_ns"),
    *("host_p50_ns", "bound", "first_call_ns", "device_speedup", "device_speedup_low", "device_speedup_high"),
    *("speedup", "speedup_low", "speedup_high", "launches_per_call", "kernels_per_call", "syncs_per_call"),
    *("launch_status", "peak_bytes"),
)
_ROWS = (
    "Each row is a case, the smallest first: the median latency of the baseline and of the variant with the largest speedup, "
    "both of the same run (on a GPU the latency on the device, with the host's work hidden, wherever it could be taken; beside it "
    "the time of one call as its caller sees it, and a call that the host limits says so), the speedup with its 95 % interval over rounds, how many times as fast the "
    "fastest own kernel is as the best alternative (the fastest of the baseline and of what one would use instead, such as PyTorch's own function), launches per call (kernels in brackets where "
    "they are others), peak memory of a call (what an implementation keeps from call to call, as a graph of its own does, is not "
    "in it), and which part of what the device was measured to be capable of both reach, in the dtype of the case: 100 % is passed by "
    "computing in another one. Of each series the newest record counts. Of a run of one round the intervals know nothing of how processes differ."
)
_CLAIMS = (
    "Published figures were mostly measured on other devices: their ratios and counts are compared, and their times are not. "
    "Better and worse are proven by the interval; same is what it cannot tell from the figure, or within its range, "
    "and not proven is what was sampled too seldom to have an interval."
)
_SUMMARY = (
    "Each row is an operator: in how many cases its best variant is proven faster or slower than the baseline, the smallest and the largest "
    "speedup of those variants over the baseline of the same run (on a GPU of latencies on the device, with the host's work hidden, wherever they could be taken), "
    "how many times as fast the fastest own kernel is as the best alternative, which is the fastest of the baseline and of what one would use instead, such as PyTorch's own function, "
    "variants that are proven slower somewhere, variants that were refused, and how published figures compare. Of each series the newest record "
    "counts. The page of an operator has every measurement, with its interval and its errors."
)


def plain(one: OperatorResults) -> dict[str, Any]:
    """Return an operator's results as one object, each record once, with the columns that the page shows."""
    labels, cases, claims, losses = case_names(one), [], [], []
    for case in one.cases:
        key, modes = case.case.key, [_plain_mode(mode) for mode in case.modes]
        named = {"case": key, "label": labels[key], "tier": case.case.tier}
        cases.append({**named, "bytes_moved": case.bytes_moved, "modes": modes})
    for judged in one.claims:
        here, variant = judged.case and judged.case.key, judged.variant and judged.variant.implementation
        claims.append({"claim": judged.claim, "case": here, "state": judged.state, "implementation": variant})
    for loss in one.losses:
        by_mode = {"implementation": loss.implementation, "mode": loss.mode}
        lost = [record.case for record in loss.losing]
        losses.append({**by_mode, "cases": lost, "measured": loss.measured, "where": loss.where})
    return {
        "device_name": one.device_name,
        "suite": one.operator.suite,
        "operator": one.operator.name,
        "summary": one.operator.summary,
        "source": one.operator.source,
        "runs": [{name: getattr(run[0], name) for name in ("run_id", "started_at", "commit")} for run in one.runs],
        "cases": cases,
        "claims": claims,
        "losses": losses,
        "missing": [case.key for case in one.missing],
        "outdated": one.outdated,
    }


def _plain_mode(mode: ModeResults) -> dict[str, Any]:
    steps = mode.steps.items()
    return {
        "mode": mode.mode,
        "best": mode.best.implementation if mode.best else None,
        "baseline": _numbers(mode.baseline) if mode.baseline else None,
        "variants": [_numbers(record) for record in mode.variants],
        "steps": [
            {"implementation": name, "over": one.over, **interval_columns("speedup", one.gain)} for name, one in steps
        ],
    }


def _numbers(record: Record) -> dict[str, Any]:
    return {**{name: getattr(record, name) for name in _NUMBERS}, "part_of_roof": part_of_roof(record)}


class StoredResults(NamedTuple):
    measured: tuple[OperatorResults, ...]  # device model by device model, GPUs first, in the order of the suites
    unmeasured: tuple[OperatorDescription, ...]  # operators with cases of the tiers and no record at all
    problems: tuple[str, ...]  # what could not be read of the store
    broken: tuple[str, ...]  # why suites could not be loaded


def stored_results(config: Config, select: list[str], tiers: tuple[str, ...]) -> StoredResults:
    """Return what a store says of the operators that are selected, by those cases of theirs that are."""
    with open_context(config, describes=True) as context:
        chosen = choose(config, context, select)
    operators = chosen.operators()
    if not operators and not chosen.survey.broken:
        raise SelectionError(f"{' '.join(select)!r} selects nothing; `pairbench list` shows everything")
    with collector_at_rest():
        columns = {*COLUMNS, "device_kind"}
        whole = WholeStore(store_of(config), columns, samples=True)
        records = dict(whole.by_operator(columns))
        devices = {(rows[0].device_kind != "cuda", device) for (device, _, _), rows in records.items() if rows}
        measured = tuple(
            results
            for _, device in sorted(devices)
            for operator in operators
            if (results := results_of(operator, records.get((device, operator.suite, operator.name), ()), tiers))
        )
    known = {_name(results.operator) for results in measured}
    unmeasured = (one for one in operators if _name(one) not in known and any(case.tier in tiers for case in one.cases))
    broken = tuple(suite.reason for suite in chosen.survey.broken)
    return StoredResults(measured, tuple(unmeasured), whole.problems, broken)


def results_page(
    found: StoredResults, output: str, *, command: str, tiers: Sequence[str], summary: bool = False
) -> str:
    """Return the page in one of the formats; a summary leaves out what `operator_pages` have."""

    def blocks() -> list[Block]:
        named = [tier for tier in TIERS if tier in tiers]
        shown = f"tier{'s' if len(named) > 1 else ''} {' and '.join(named)}"
        texts = [f"Made by {command}, and never by hand. Cases of the {shown}."]
        if found.measured:
            texts += [_SUMMARY] if summary else [_ROWS, _CLAIMS]
        else:
            texts.append("The store holds no measurement of these tiers: pairbench run makes some.")
        page: list[Block] = [Heading(text="Results", level=1), *(Line(text=clean(text), gap=True) for text in texts)]
        for device, several in groupby(found.measured, key=lambda one: one.device_name):
            on_device = list(several)
            page += [Heading(text=device, level=2), table_of(_GLANCE, on_device)]
            page += [block for one in on_device if not summary for block in operator_blocks(one)]
        lines = []
        for operator in found.unmeasured:
            cases, claims = sum(case.tier in named for case in operator.cases), len(operator.claims)
            suffix = f", {claims} published figure{'' if claims == 1 else 's'}" if claims else ""
            lines.append(f"{_name(operator)}: {cases} case{'' if cases == 1 else 's'}{suffix}")
        return [*page, Heading(text="Not measured yet", level=2), Items(texts=tuple(lines))] if lines else page

    def document() -> dict[str, Any]:
        measured, unmeasured = list(map(plain, found.measured)), list(map(_name, found.unmeasured))
        return {"tiers": tiers, "results": measured, "unmeasured": unmeasured}

    return render_page(output, document, blocks, None)


def operator_pages(results: Sequence[OperatorResults], *, command: str) -> dict[str, str]:
    """Return a Markdown page for each operator, by the operator's name, with all device models that measured it."""
    pages = {}
    for name in dict.fromkeys(one.operator.name for one in results):
        texts = (f"Made by {command}, and never by hand.", _ROWS, _CLAIMS)
        blocks: list[Block] = [Heading(text=name, level=1), *(Line(text=text) for text in texts)]
        for one in results:
            if one.operator.name == name:
                blocks += [Heading(text=one.device_name, level=2), *list(operator_blocks(one))[1:]]
        pages[name] = to_markdown(blocks)
    return pages


def _name(operator: OperatorDescription) -> str:
    return f"{operator.suite}::{operator.name}"


def _speedups(one: OperatorResults) -> list[Interval]:
    """Return the speedup of the best variant of each case in the mode of the main table."""
    bests = [mode.best for case in one.cases if (mode := main_mode(case))]
    return [speedup for best in bests if (speedup := speedup_of(best))]


def _best_is(one: OperatorResults) -> str:
    states = Counter("unknown" if math.isnan(speedup.low) else state_of(*speedup) for speedup in _speedups(one))
    unproven = {"open": "not told apart", "unknown": "of one round, without an interval,"}
    order = ("faster", "open", "slower", "unknown")
    return ", ".join(f"{unproven.get(state, state)} in {states[state]}" for state in order if states[state])


def _range(ratios: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys([units.ratio(min(ratios)), units.ratio(max(ratios))])) if ratios else ""


def _over_best(one: OperatorResults) -> list[float]:
    modes = [mode for case in one.cases if (mode := main_mode(case))]
    return [mode.over_best[0].estimate for mode in modes if mode.over_best]


def _claims(one: OperatorResults) -> str:
    states = Counter(judged.state for judged in one.claims)
    return ", ".join(f"{states[state]} {state}" for state in ClaimState if states[state])


_GLANCE: tuple[Column[OperatorResults], ...] = (
    Column("operator", lambda one: one.operator.name, right=False),
    Column("cases", lambda one: units.count(len(one.cases))),
    Column("the best variant is", _best_is, right=False),
    Column("speedups", lambda one: _range([speedup.estimate for speedup in _speedups(one)])),
    Column("over the best alternative", lambda one: _range(_over_best(one))),
    Column(
        "variants that lose somewhere",
        lambda one: ", ".join(dict.fromkeys(loss.implementation for loss in one.losses)),
        right=False,
    ),
    Column("refused", lambda one: units.count(len(one.refused)) if one.refused else ""),
    Column("beside what was published", _claims, right=False),
)
