"""Marks that pages draw without scripts: small lines of values over runs, the heat map of an operator, and strips of speedups."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from types import SimpleNamespace

from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.site import Moved, OverviewRow, SeriesFacts
from pairbench.report import units
from pairbench.report.operator_charts import state_of
from pairbench.report.units import case_labels
from pairbench.site.paths import series_anchor
from pairbench.site.summary import implementations, tier_rank

_WIDTH, _HEIGHT, _EDGE = 100.0, 24.0, 3.0


def spark(
    values: Sequence[float | None],
    what: str = "Speedup in the newest",
    say: Callable[[float], str] = units.ratio,
    mark: int | None = None,
) -> SimpleNamespace | None:
    """Return the line of some values, oldest first, in a box of 100 x 24; None for fewer than two positive values."""
    # `what` and `say` describe the values and one of them to readers who do not see the line, and `mark` is the index of a change.
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if len(known) < 2:
        return None
    # Ratios are seen as ratios: half is as far from one as double.
    logs = [math.log(value) if value is not None and 0 < value < math.inf else None for value in values]
    low, high = math.log(min(known)), math.log(max(known))
    middle, reach = (low + high) / 2, max(high - low, 0.05)  # a line that hardly moves should look like one

    def across(at: int) -> float:
        return round(_EDGE + (_WIDTH - 2 * _EDGE) * at / (len(values) - 1), 1)

    def down(log: float) -> float:
        return round(_HEIGHT / 2 - (_HEIGHT - 2 * _EDGE) * (log - middle) / reach, 1)

    points = [None if log is None else (across(at), down(log)) for at, log in enumerate(logs)]
    lines = [list(filter(None, line)) for known, line in groupby(points, key=bool) if known]
    one, newest = down(0.0), lines[-1][-1]
    return SimpleNamespace(
        lines=tuple(" ".join(f"{x:g},{y:g}" for x, y in line) for line in lines if len(line) > 1),
        dots=tuple(dict.fromkeys([*(line[0] for line in lines if len(line) == 1), newest])),
        one=one if 0 <= one <= _HEIGHT else None,
        mark=across(mark) if mark is not None else None,
        trend=known[-1] / known[0],
        words=f"{what} {len(known)} runs: first {say(known[0])}, least {say(min(known))}, "
        f"most {say(max(known))}, newest {say(known[-1])}",
    )


def event_spark(moved: Moved) -> SimpleNamespace | None:
    """Return the line of what moved in the runs around an event, with a mark at the first run that has it."""
    what, say = ("Latency", units.duration) if not moved.counts or moved.change is not None else ("Count", units.count)
    return spark(moved.history, f"{what} in the {len(moved.history)} runs around it, of", say, mark=moved.place)


_STEPS = 5  # number of shades on either side of 1x
_LARGEST = math.log(8)  # the logarithm of the speedup from which the shade is the strongest


def heat_map(series: Sequence[SeriesFacts]) -> SimpleNamespace | None:
    variants = tuple(name for name in implementations(series) if name != BASELINE)
    if not variants:
        return None
    labels = {case: (place, label) for place, (case, label) in enumerate(case_labels(series).items())}
    groups: dict[tuple[str, str], dict[str, SeriesFacts]] = {}
    for one in series:
        if one.series.implementation != BASELINE:
            groups.setdefault((one.series.case, one.series.mode), {})[one.series.implementation] = one
    rows = []
    for (case, mode), group in groups.items():
        cells = tuple(_cell(group[name]) if name in group else None for name in variants)
        named = {"case": case, "mode": mode, "tier": next(iter(group.values())).tier, "label": labels[case][1]}
        rows.append(SimpleNamespace(**named, cells=cells))
    rows.sort(key=lambda row: (-tier_rank(row.tier), row.mode != "eager", row.mode, labels[row.case][0]))
    moved = any(cell and cell.moved.lasting for row in rows for cell in row.cells)
    modes, tiers = ({getattr(row, name) for row in rows} for name in ("mode", "tier"))
    several = {"modes": len(modes) > 1, "tiers": len(tiers) > 1}
    return SimpleNamespace(variants=variants, rows=tuple(rows), moved=moved, **several)


def _cell(one: SeriesFacts) -> SimpleNamespace:
    speedup, low, high = (one.numbers.get(name, math.nan) for name in ("speedup", "speedup_low", "speedup_high"))
    state = state_of(speedup, low, high)
    if one.status != Status.MEASURED:
        text = "–" if one.status == Status.SKIPPED else one.status  # noqa: RUF001
        title = f"{one.status}: {one.reason or 'no reason was stored'}"
    elif state == "none":
        text, title = "?", one.texts.get("withheld") or "measured, but the baseline was not"
    else:
        text = units.ratio(speedup)
        ends = units.ratio_range(low, high)
        told = {"faster": "faster", "slower": "slower", "open": "not shown either way"}[state]
        title = f"{text}, {f'{ends}, ' if ends else ''}{told}"
    shade, bound = 0, one.texts.get("bound") == "host"
    if state != "none":
        part = min(abs(math.log(speedup)) / _LARGEST, 1.0)
        shade = int(math.copysign(math.ceil(part * _STEPS - 0.05) if part > 0.01 else 0, math.log(speedup)))
    shown = {"text": text, "shade": shade, "state": state, "title": f"{title}; host-bound" if bound else title}
    return SimpleNamespace(**shown, host_bound=bound, moved=one.gate_status, id=series_anchor(one.series))


_BINS = 90
_HIGHEST = 12  # number of dots that fit on each other; more are drawn over the highest
_FAR = 8.0  # how many times further than the median from 1x a group lies that is named
_FAR_NAMED = 4
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def strip(
    groups: Sequence[OverviewRow], median: float | None, among: Sequence[OverviewRow] = ()
) -> SimpleNamespace | None:
    """Return dots of speedups in a box of 100 x 40, stacked where they lie close; None for fewer than three."""
    # Speedups far from the median are named. The scale holds those of `among`, too, so that strips can be compared; then one is enough.
    known = [(row, row.speedup) for row in groups if row.speedup is not None and row.speedup.estimate > 0]
    if len(known) < (1 if among else 3) or median is None:
        return None
    values = [speedup.estimate for _, speedup in known]
    scale = [*values, *(row.speedup.estimate for row in among if row.speedup is not None and row.speedup.estimate > 0)]
    low, high = math.log(min(*scale, 0.9)), math.log(max(*scale, 1.1))
    reach = 1.04 * (high - low)
    start = low - 0.02 * (high - low)

    def place(value: float) -> float:
        return round(100 * (math.log(value) - start) / reach, 2)

    stacked: Counter[int] = Counter()
    dots = []
    for _, speedup in sorted(known, key=lambda pair: pair[1].estimate):
        own = int(place(speedup.estimate) * _BINS / 100)
        height = min(stacked[own], _HIGHEST)
        dots.append((round(100 * (own + 0.5) / _BINS, 2), round(38 - 3.0 * height, 1), state_of(*speedup)))
        stacked[own] += 1
    ticks = [(place(tick), f"{tick:g}x") for tick in _TICKS if low <= math.log(tick) <= high]
    step = max(1, math.ceil(len(ticks) / 6))
    middle = next((number for number, (_, label) in enumerate(ticks) if label == "1x"), 0)
    far = sorted(known, key=lambda pair: -abs(math.log(pair[1].estimate) - math.log(median)))
    limit = max(math.log(_FAR), abs(math.log(median)) * 2)
    return SimpleNamespace(
        dots=tuple(dots),
        ticks=tuple(tick for number, tick in enumerate(ticks) if (number - middle) % step == 0),
        one=place(1.0),
        far=tuple(row for row, value in far if abs(math.log(value.estimate) - math.log(median)) > limit)[:_FAR_NAMED],
        words=f"{len(known)} speedups from {units.ratio(min(values))} to {units.ratio(max(values))}, median {units.ratio(median)}",
    )
