"""The page of results, device by device and operator by operator, losses included.

It holds no time of writing, so that equal stores and suites give equal pages.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from pairbench.model.case import TIERS
from pairbench.model.latency import speedup_of
from pairbench.model.plan import OperatorDescription
from pairbench.model.results import ClaimState, ModeResults, OperatorResults
from pairbench.report import units
from pairbench.report.charts.speedup import state_of
from pairbench.report.layout import Column
from pairbench.report.render import Terminal, to_json
from pairbench.report.results.blocks import Block, Heading, Items, Paragraph, table_of, to_markdown, to_terminal
from pairbench.report.results.document import plain
from pairbench.report.results.operator import main_mode, operator_blocks

_ROWS = (
    "Each row is a case, the smallest first: the median latency of the baseline and of the variant with the largest speedup, "
    "both of the same run (on a GPU the latency on the device, with the host's work hidden, wherever it could be taken; beside it "
    "the time of one call as its caller sees it, and a call that the host limits says so), the speedup with its 95 % interval over rounds, launches per call (kernels in brackets where "
    "they are others), peak memory of a call (what an implementation keeps from call to call, as a graph of its own does, is not "
    "in it), and which part of what the device was measured to be capable of both reach, in the dtype of the case: 100 % is passed by "
    "computing in another one. Of each series the newest record counts. Of a run of one round the intervals know nothing of how processes differ."
)
_CLAIMS = (
    "Published figures were mostly measured on other devices: their ratios and counts are compared, and their times are not. "
    "Better and worse are proven by the interval; same is what it cannot tell from the figure, or within its range, "
    "and not proven is what was sampled too seldom to have an interval."
)


def results_page(
    results: Sequence[OperatorResults],
    unmeasured: Sequence[OperatorDescription],
    output: str,
    *,
    command: str,
    tiers: Sequence[str],
    terminal: Terminal | None = None,
) -> str:
    """Return the page in one of the formats.

    Args:
        results: by device model and then operator, in the order of the page.
        unmeasured: operators that the store holds nothing of, in these tiers.
        output: table, markdown or json.
        command: that makes it.
        tiers: of the cases on it.
        terminal: stdout where not given.
    """
    if output == "json":
        return to_json(
            {
                "tiers": tiers,
                "results": [plain(one) for one in results],
                "unmeasured": [_name(one) for one in unmeasured],
            }
        )
    blocks = list(_blocks(results, unmeasured, command, [tier for tier in TIERS if tier in tiers]))
    return to_markdown(blocks) if output == "markdown" else to_terminal(blocks, terminal)


def _blocks(
    results: Sequence[OperatorResults], unmeasured: Sequence[OperatorDescription], command: str, tiers: Sequence[str]
) -> Iterator[Block]:
    yield Heading(text="Results", level=1)
    yield Paragraph(
        text=f"Made by {command}, and never by hand. Cases of the tier{'s' if len(tiers) > 1 else ''} {' and '.join(tiers)}."
    )
    if results:
        yield Paragraph(text=_ROWS)
        yield Paragraph(text=_CLAIMS)
    else:
        yield Paragraph(text="The store holds no measurement of these tiers: pairbench run makes some.")
    for device, several in groupby(results, key=lambda one: one.device_name):
        on_device = list(several)
        yield Heading(text=device, level=2)
        yield table_of(_GLANCE, on_device)
        for one in on_device:
            yield from operator_blocks(one)
    if unmeasured:
        yield Heading(text="Not measured yet", level=2)
        yield Items(texts=tuple(_unmeasured_line(one, tiers) for one in unmeasured))


def _unmeasured_line(operator: OperatorDescription, tiers: Sequence[str]) -> str:
    cases = sum(case.tier in tiers for case in operator.cases)
    claims = len(operator.claims)
    suffix = f", {claims} published figure{'' if claims == 1 else 's'}" if claims else ""
    return f"{_name(operator)}: {cases} case{'' if cases == 1 else 's'}{suffix}"


def _name(operator: OperatorDescription) -> str:
    return f"{operator.suite}::{operator.name}"


def _main(one: OperatorResults) -> list[ModeResults]:
    return [mode for case in one.cases if (mode := main_mode(case)) and mode.best]


def _best_is(one: OperatorResults) -> str:
    intervals = [speedup for mode in _main(one) if (speedup := speedup_of(mode.best))]
    states = Counter("unknown" if math.isnan(speedup.low) else state_of(*speedup) for speedup in intervals)
    words = {
        "faster": "faster",
        "open": "not told apart",
        "slower": "slower",
        "unknown": "of one round, without an interval,",
    }
    return ", ".join(f"{words[state]} in {states[state]}" for state in words if states[state])


def _range(one: OperatorResults) -> str:
    speedups = [speedup.estimate for mode in _main(one) if (speedup := speedup_of(mode.best))]
    return " to ".join(dict.fromkeys([units.ratio(min(speedups)), units.ratio(max(speedups))])) if speedups else ""


def _losing(one: OperatorResults) -> str:
    names = [loss.implementation for loss in one.losses]
    return ", ".join(dict.fromkeys(names))


def _claims(one: OperatorResults) -> str:
    states = Counter(judged.state for judged in one.claims)
    return ", ".join(f"{states[state]} {state}" for state in ClaimState if states[state])


_GLANCE: tuple[Column[OperatorResults], ...] = (
    Column(header="operator", text=lambda one: one.operator.name, right=False),
    Column(header="cases", text=lambda one: units.count(len(one.cases))),
    Column(header="the best variant is", text=_best_is, right=False),
    Column(header="speedups", text=_range),
    Column(header="variants that lose somewhere", text=_losing, right=False),
    Column(header="refused", text=lambda one: units.count(len(one.refused)) if one.refused else ""),
    Column(header="beside what was published", text=_claims, right=False),
)
