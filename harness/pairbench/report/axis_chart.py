"""The values of a chart of one axis: latency, speedup or rate of each implementation against an axis of the cases."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pairbench.errors import SelectionError
from pairbench.model.outcome import Status
from pairbench.model.plain import Value, grouped
from pairbench.model.plan import BASELINE
from pairbench.model.record import LATENCIES, Record, interval_of, p50_of, result_of, speedup_of
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.report.units import AXES, axis_text, is_number, labels_of, shared_names
from pairbench.stats import Interval

SUFFIXES = (".png", ".svg", ".pdf", ".html")  # kinds of files that a chart can be drawn into
MOST_PANELS = 12  # panels that a chart may have; more cannot be read, and need a selection
_LOG_FROM = 8.0  # ratio of the largest to the smallest value from which an axis is logarithmic where nobody says

Axes = Mapping[str, object]


class AxisPoint(Value):
    x: float  # value of the axis; of words the place in their order, counted from 0
    y: float
    low: float  # lower end of the 95 % interval; NaN where it is not known, as `high`
    high: float


class AxisLine(Value):
    name: str  # the implementation, with its mode where there are several
    implementation: str
    points: tuple[AxisPoint, ...]  # those that were measured, from the lowest value of the axis to the highest


class Crossover(Value):
    """Where a variant and its baseline take the same time, between two values of the axis that were measured."""

    name: str  # the variant, with its mode where there are several
    x: float  # value of the axis, by a straight line between the logarithms of both neighbours' speedups
    y: float  # height of the mark in the chart
    faster_above: bool  # whether the variant is the faster one to the right of it


class AxisPanel(Value):
    """The cases of one operator on one device that differ in the axis alone."""

    title: str  # what tells it from the other panels; empty for one alone
    lines: tuple[AxisLine, ...]
    crossovers: tuple[Crossover, ...]


class AxisChart(Value):
    title: str
    x: str  # name of the axis of the cases
    y: str  # what the other axis says, with the unit
    quantity: str  # name of what is drawn, one of QUANTITIES
    words: tuple[str, ...]  # values of an axis that holds words; empty for numbers
    panels: tuple[AxisPanel, ...]
    names: tuple[str, ...]  # implementations in the order that decides their colours
    log_x: bool
    log_y: bool


_LATENCIES = {f"{latency.name}_p50_us": latency for latency in LATENCIES}
QUANTITIES = ("p50_us", *_LATENCIES, "speedup", "gbps", "tflops")
"""What can be drawn; `p50_us` is the result: the device's latency on a GPU."""
_WORDS = {
    **{f"{name}_p50_us": f"{text}, P50 (us)" for name, text in AXES.items()},
    "speedup": "speedup over the baseline",
    "gbps": "GB/s",
    "tflops": "TFLOP/s",
}


def _value(record: Record, quantity: str) -> Interval | None:
    if quantity == "speedup":
        return Interval(1.0, 1.0, 1.0) if record.role == BASELINE else speedup_of(record)
    if (known := p50_of(record, _LATENCIES.get(quantity))) is None:
        return None
    if quantity.endswith("_us"):
        return Interval(*(end / 1e3 for end in known))
    # In units of 1e-9 a second, as latencies are in ns.
    work = record.bytes_moved if quantity == "gbps" else (record.flops or 0.0) / 1e3
    return Interval(work / known.estimate, work / known.high, work / known.low) if work else None


def axis_chart(
    records: Sequence[Record], x: str | None = None, y: str | None = None, *, log: bool | None = None
) -> AxisChart:
    """Return the chart of some records; of each series and value of the axis the last record counts."""
    # The axis `x` is the only one that varies where it is not given, the quantity `y` is the latency that is the
    # result, and the values decide whether axes are logarithmic.
    if (quantity := y or "p50_us") not in QUANTITIES:
        raise SelectionError(f"y={y!r} is unknown, expected one of {', '.join(QUANTITIES)}")
    measured = [(one, _axes(one)) for one in records if one.status == Status.MEASURED and one.case is not None]
    if not measured:
        raise SelectionError("nothing was measured, so there is nothing to draw")
    x = x or _only_axis([axes for _, axes in measured])
    known = {name for _, axes in measured for name in axes}
    if x not in known:
        raise SelectionError(f"x={x!r} is no axis of these cases, expected one of {', '.join(sorted(known))}")
    measured = [(record, axes) for record, axes in measured if x in axes and _value(record, quantity) is not None]
    if not measured:
        lacking = _LACKING.get(quantity, "it was not measured")
        raise SelectionError(f"y={quantity!r} has no value in these records: {lacking}")
    cases = [axes for _, axes in measured]
    places, words = _places([axes[x] for axes in cases])
    groups = _groups(measured, x)
    if len(groups) > MOST_PANELS:
        others = sorted(set(itertools.chain(*cases)) - {x})
        many = f"a chart along {x!r} would have {len(groups)} panels, expected {MOST_PANELS} at most"
        raise SelectionError(f"{many}; select fewer cases, by the operator or by {', '.join(others) or 'the device'}")
    names = dict.fromkeys(itertools.chain(*cases))
    others = [name for name in names if name != x and len({axis_text(case.get(name)) for case in cases}) > 1]
    alone = all(len({axis_text(axes[x]) for _, axes in group}) == 1 for group in groups.values())
    if len(places) > 1 and alone and others:
        nothing = f"no two of these cases differ in {x!r} alone, so there is no line to draw"
        as_well = f"they differ in {', '.join(others)} as well"
        raise SelectionError(f"{nothing}: {as_well}; select cases that share these, or draw along one of them")
    drawn = [record for record, _ in measured]
    modes = len({record.mode for record in drawn}) > 1
    panels = tuple(
        _panel(title, [(record, places[axis_text(axes[x])]) for record, axes in group], quantity, modes=modes)
        for title, group in groups.items()
    )
    points = [point for panel in panels for line in panel.lines for point in line.points]
    values, at = [point.y for point in points], [point.x for point in points]
    lines = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    result = result_of(drawn[0]).name
    # The title names what all lines share, panels and lines what differs.
    operators = shorten(", ".join(dict.fromkeys(str(record.operator) for record in drawn)), 100)
    shared = ", ".join(shared_names((record.device_name, record.dtype, record.mode) for record in drawn))
    chart = partial(AxisChart, x=x, y=_WORDS.get(quantity, _WORDS[f"{result}_p50_us"]), quantity=quantity, words=words)
    log_x, log_y = (_wide(several) if log is None else log for several in (at, values))
    return chart(
        title=f"{operators} ({shared})" if shared else operators,
        panels=panels,
        names=tuple(sorted(lines, key=lambda name: not name.startswith(BASELINE))),
        log_x=not words and min(at) > 0 and log_x,
        log_y=log_y,
    )


_LACKING = {
    "device_p50_us": "a CPU has the latency of a call alone, call_p50_us",
    "host_p50_us": "a CPU has the latency of a call alone, call_p50_us",
    "gbps": "the operator declares no cost=",
    "tflops": "the operator declares no cost= with operations",
    "speedup": "no variant was measured beside its baseline",
}


def _axes(record: Record) -> Axes:
    found = json.loads(record.axes) if record.axes else {}
    return found if isinstance(found, dict) else {}


def _only_axis(cases: Sequence[Axes]) -> str:
    """Return the axis that varies, an axis of numbers before one of words; raise SelectionError where none or several do."""
    names = dict.fromkeys(name for case in cases for name in case)
    several = [name for name in names if len({axis_text(case[name]) for case in cases if name in case}) > 1]
    numbers = [name for name in several if all(is_number(case[name]) for case in cases if name in case)]
    choice = numbers or several or list(names)
    if not choice:
        raise SelectionError("these cases have no axis to draw along")
    if len(choice) == 1 or not several:
        return choice[0]
    asked = f"x={choice[0]!r}, or one of {', '.join(several)}"
    raise SelectionError(f"which axis to draw along is not said, and several vary: {asked}")


def _places(values: Sequence[object]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the place of each value on the axis, by its text, and the words of an axis that holds some."""
    numbers = [value for value in values if is_number(value)]
    if len(numbers) == len(values):
        return {axis_text(value): float(value) for value in numbers}, ()
    ordered = list(labels_of({axis_text(value): {"": value} for value in values}))
    return {word: float(number) for number, word in enumerate(ordered)}, tuple(ordered)


def _groups(records: Sequence[tuple[Record, Axes]], x: str) -> dict[str, list[tuple[Record, Axes]]]:
    """Return the records of each panel, with their axes, by its title: those that differ in `x`, or in what follows from it, alone."""
    cases = [axes for _, axes in records]

    def follows(name: str) -> bool:
        """Return whether an axis varies in proportion to `x`: M = N = K / 2 is one axis, not three. Any other would join cases that are not of one line."""
        both = [(at, value) for case in cases if is_number(at := case[x]) and at and is_number(value := case.get(name))]
        ratios = {round(value / at, 6) for at, value in both}
        return len(both) == len(cases) and len(set(both)) > 1 and len(ratios) == 1

    split = [name for name in dict.fromkeys(itertools.chain(*cases)) if name != x and not follows(name)]
    keys = [
        (str(one.operator), one.suite, one.device_name, *(f"{name}={axis_text(case.get(name, ''))}" for name in split))
        for one, case in records
    ]
    varying = [len(set(values)) > 1 for values in zip(*keys, strict=True)]
    titles = (", ".join(itertools.compress(key, varying)) for key in keys)
    return grouped(zip(titles, records, strict=True))


def _panel(title: str, group: Sequence[tuple[Record, float]], quantity: str, *, modes: bool) -> AxisPanel:
    lines: dict[tuple[str, str], dict[float, AxisPoint]] = {}
    ratios: dict[tuple[str, str], dict[float, float]] = {}
    for record, x in group:
        key = (record.implementation or "", record.mode or "")
        if (value := _value(record, quantity)) is not None:
            lines.setdefault(key, {})[x] = AxisPoint(x=x, y=value.estimate, low=value.low, high=value.high)
        latency = _LATENCIES.get(quantity)  # they cross by the speedup of the latency that is drawn
        speedup = interval_of(record, latency.speedup) if latency else speedup_of(record)
        if record.role != BASELINE and speedup and speedup.estimate:
            ratios.setdefault(key, {})[x] = speedup.estimate
    made: list[AxisLine] = []
    crossovers: list[Crossover] = []
    for key in sorted(lines, key=lambda key: key[0] != BASELINE):
        points, name = lines[key], f"{key[0]} ({key[1]})" if modes else key[0]
        made.append(AxisLine(name=name, implementation=key[0], points=tuple(points[x] for x in sorted(points))))
        crossovers += _crossings(name, ratios.get(key, {}), {x: point.y for x, point in points.items()})
    return AxisPanel(title=shorten(title, 70), lines=tuple(made), crossovers=tuple(crossovers))


def _crossings(name: str, ratios: Mapping[float, float], heights: Mapping[float, float]) -> Iterator[Crossover]:
    for left, right in itertools.pairwise(sorted(set(ratios) & set(heights))):
        before, after = math.log(ratios[left]), math.log(ratios[right])
        if before * after >= 0:
            continue
        part = before / (before - after)

        def between(low: float, high: float, part: float = part) -> float:
            return low + part * (high - low)

        at = math.exp(between(math.log(left), math.log(right))) if left > 0 else between(left, right)
        y = math.exp(between(math.log(heights[left]), math.log(heights[right])))
        yield Crossover(name=name, x=at, y=y, faster_above=after > 0)


def _wide(values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    return len(positive) == len(values) and max(positive, default=1.0) / min(positive, default=1.0) >= _LOG_FROM


def crossover_sentences(chart: AxisChart) -> list[str]:
    return [
        f"{one.name} {'overtakes' if one.faster_above else 'falls behind'} the baseline at {chart.x} of about {units.significant(one.x, 3)}"
        + (f" ({panel.title})" if len(chart.panels) > 1 else "")
        for panel in chart.panels
        for one in panel.crossovers
        if not chart.words
    ]


def chart_rows(chart: AxisChart) -> list[dict[str, object]]:
    """Return a row for each value of the axis in each panel, with a column for each implementation; None where there is none."""
    rows = []
    for panel in chart.panels:
        for x in sorted({point.x for line in panel.lines for point in line.points}):
            values = {line.name: next((one.y for one in line.points if one.x == x), None) for line in panel.lines}
            shown: object = chart.words[int(x)] if chart.words else int(x) if x.is_integer() else x
            rows.append({**({"case": panel.title} if len(chart.panels) > 1 else {}), chart.x: shown, **values})
    return rows
