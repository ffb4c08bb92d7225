"""The overview and the pages of runs and breakdowns: the store's content, the state of every operator, each run, and two side by side."""

import datetime as dt
import itertools
import math
import shlex
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from pairbench.features.breakdown.breakdown import PROFILED, Rows, sentences, side_by_side, tables, tree_rows
from pairbench.features.breakdown.summary import by_kind, parts_ns, tree_of
from pairbench.model.breakdown import Breakdown, KeptBreakdown
from pairbench.model.plain import grouped
from pairbench.model.plan import BASELINE
from pairbench.model.site import ATTENTION, LIVES, STATES, Event, RunHead, RunVerdicts, SiteFacts
from pairbench.report import units
from pairbench.site import paths
from pairbench.site.event_pages import WINDOWS, changes, event_rows, headline
from pairbench.site.events import TOLD_TOGETHER
from pairbench.site.paths import File, RunFacts, series_anchor
from pairbench.site.payload import beside_result, field_groups, run_payload, script
from pairbench.site.summary import device_summaries, family_of, is_self_test, operator_summaries
from pairbench.site.templates import render, time_of

_EVENTS = 60  # number of open events that the page holds, the worst first; it shows those in the reader's window
_COLUMNS = 3  # number of device models whose column is seen at first; those of others where a reader chooses them
_MOST = 12  # number of device models that have a column at all; groups of others are in the unfolded rows


def overview(facts: SiteFacts) -> File:
    opened = sorted((event for event in facts.events if event.open), key=lambda event: ATTENTION.index(event.worst))
    rows, new = facts.rows, event_rows((event for event in opened if event.is_new), facts)
    choices = {
        "family": sorted({family_of(row.suite) for row in rows}),
        "device": sorted({row.device_name for row in rows}),
        "dtype": sorted({row.dtype for row in rows} - {""}),
        "tier": sorted({row.tier for row in rows}),
        "mode": sorted({row.mode for row in rows}),
        "state": sorted({row.state for row in rows}, key=STATES.index),
    }
    known = event_rows((event for event in opened if not event.is_new), facts)
    shown: dict[str, Any] = {"attention": _attention(new), "known": known, "events": new[:_EVENTS]}
    shown |= {"worst_moves": _worst_moves(opened), "closed": len(facts.events) - len(opened), "windows": WINDOWS}
    # The few device models that measured most have a column in the order of their names, then come all others.
    counts = Counter(device for device, *_ in {(row.device_name, row.suite, row.operator) for row in rows})
    ordered = [device for device, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
    matrix = sorted(ordered[:_COLUMNS]) + sorted(ordered[_COLUMNS:_MOST])
    shown |= {"night": newest_night(facts), "matrix": matrix, "columns": _COLUMNS}
    shown |= {"summaries": operator_summaries(rows), "headlines": device_summaries(rows, facts.self_tests)}
    shown |= {"left_out": sorted({row.suite for row in rows if is_self_test(row.suite, facts.self_tests)})}
    shown |= {"choices": choices, "varies": {name: len(values) > 1 for name, values in choices.items()}}
    shown |= {"devices": sorted({run.device_name for run in facts.runs})}
    shown |= {"measured": any(row.statuses.get("measured") for row in rows)}
    return render(paths.OVERVIEW, facts, **shown, ranks={state: rank for rank, state in enumerate(STATES)})


def _worst_moves(opened: Iterable[Event]) -> dict[tuple[str, str, str], SimpleNamespace]:
    """Return the largest open move for the worse by suite, operator and state, those of new events first."""
    found: dict[tuple[str, str, str], SimpleNamespace] = {}
    parts = [(whole, part) for whole in opened for part in whole.everywhere if part.kind not in TOLD_TOGETHER]
    for whole, part, moved in ((*pair, moved) for pair in parts for moved in pair[1].moved):
        if moved.life != LIVES[0] or moved.outcome not in ATTENTION[:3]:
            continue
        key = moved.series.suite, moved.series.operator, str(moved.outcome)
        rank = not whole.is_new, -math.inf if moved.size is None else -abs(moved.size - 1)
        if key not in found or rank < found[key].rank:
            told = {"changes": changes(moved, part.kind), "since": part.after.started_at[:10]}
            found[key] = SimpleNamespace(rank=rank, event=whole, moved=moved, **told)
    return found


def _attention(opened: Sequence[SimpleNamespace]) -> dict[str, dict[str, int]]:
    """Return how many events of each outcome are open, in all (by the empty name) and in each window."""
    names = ("", *WINDOWS)
    worst = Counter((one.event.worst, name) for one in opened for name in ("", *one.windows))
    return {str(outcome): {name: worst[outcome, name] for name in names} for outcome in ATTENTION}


_TOGETHER = dt.timedelta(hours=24)  # runs of one night are less apart than this, and than half the usual interval
_HISTORY = 10  # number of runs before the newest from which the usual interval and number of series are taken
_FEWEST = 4  # number of intervals from which on they can be called regular
_IRREGULAR = 0.25  # part by which an interval may differ from the median of all
_LATE = 0.05  # part of the interval, and at least half an hour, from which on a run is called late
_LEAST_LATE = dt.timedelta(minutes=30)
_COMPLETE = 0.9  # part of the usual number of series below which a run is called incomplete


def newest_night(facts: SiteFacts) -> SimpleNamespace | None:
    """Return the newest run of each device model, whether it was on time, and how many of the usual series it measured."""
    # Runs that confirm another run do not count; None where no run has a time.
    begun = [(time_of(head.started_at), head) for head in facts.runs if head.confirms is None]
    runs_of = grouped((head.device_name, (at, head)) for at, head in begun if at is not None)
    if not runs_of:
        return None
    newest = max(runs[0][0] for runs in runs_of.values())
    times = {name: [at for at, _ in runs] for name, runs in runs_of.items()}
    tonight, absent = [], []
    for name, runs in runs_of.items():
        age, usual = newest - runs[0][0], _interval(times[name][1:])
        if age < min(_TOGETHER, (usual or 2 * _TOGETHER) / 2):
            tonight.append(runs[0])
        # It used to run at regular times, a run of it is due, and fewer than 14 have been missed.
        elif (usual := _interval(times[name])) and usual < age < 14 * usual:
            absent.append(runs[0][1])
    heads = [head for _, head in sorted(tonight, key=itemgetter(0), reverse=True)]
    earlier = {head.device_name: runs_of[head.device_name][1 : _HISTORY + 1] for head in heads}
    usual_series = {
        name: round(statistics.median(_series(head) for _, head in runs)) if len(runs) >= _FEWEST else 0
        for name, runs in earlier.items()
    }
    keys = {(head.run_id, head.device_name) for head in heads}
    opened = [event for event in facts.events if event.open]
    began = [at for event in opened if (at := time_of(event.after.started_at)) is not None]
    skipped, late, due = 0, "", None
    of_newest = times[heads[0].device_name]
    if interval := _interval(of_newest[1:]):
        gap, allowed = newest - of_newest[1], max(_LATE * interval, _LEAST_LATE)
        skipped = max(round(gap / interval) - 1, 0)
        after_due = gap - (skipped + 1) * interval
        hours = after_due / dt.timedelta(hours=1)
        late = (f"{hours:.0f} h" if hours >= 1 else f"{60 * hours:.0f} min") if after_due > allowed else ""
        due = (newest + interval + allowed).isoformat()
    recovered = [event for event in facts.events if event.standing == "recovered"]
    return SimpleNamespace(
        heads=heads,
        new=sum(any((one.after.run_id, one.device_name) in keys for one in event.everywhere) for event in opened),
        open=len(opened),
        recovered=sum(any((one.ended, one.device_name) in keys for one in event.everywhere) for event in recovered),
        oldest_days=(newest - min(began)).days if began else None,
        measured=sum(head.statuses.get("measured", 0) for head in heads),
        series=sum(max(_series(head), usual_series[head.device_name]) for head in heads),  # those that were expected
        incomplete=[head.device_name for head in heads if _series(head) < _COMPLETE * usual_series[head.device_name]],
        absent=absent,
        late=late,  # how much later than usual the newest run began
        skipped=skipped,  # runs that were due between the newest two
        due=due,  # when the next run is late
    )


def _series(head: RunHead) -> int:
    return sum(number for status, number in head.statuses.items() if status != "skipped")


def _interval(times: Sequence[dt.datetime]) -> dt.timedelta | None:
    """Return the usual time between two runs, the newest first; None where runs do not come at regular times."""
    gaps = [after - before for after, before in itertools.pairwise(times[: _HISTORY + 1])]
    if len(gaps) < _FEWEST:
        return None
    usual = sorted(gaps)[len(gaps) // 2]
    regular = [gap for gap in gaps if abs(gap - usual) <= _IRREGULAR * usual]
    return usual if len(regular) > len(gaps) / 2 and usual > dt.timedelta(hours=1) else None


_REASONS = 200  # number of series without a measurement that a run's page lists with reasons; its table has all
_CASES = 40  # number of new cases of an operator that a run's page lists

_BAD = ("failed", "mismatched", "timeout", "oom")
_VERDICTS = ("regression", "failed", "improvement", "new", "undecided")


def runs(facts: SiteFacts, verdicts: Mapping[tuple[str, str], RunVerdicts]) -> File:
    return render(
        paths.RUNS,
        facts,
        verdicts=verdicts,
        choices={
            "device": sorted({head.device_name for head in facts.runs}),
            "branch": sorted({head.branch for head in facts.runs if head.branch}),
            "host": sorted({head.hostname for head in facts.runs}),
            "environment": list(dict.fromkeys(head.environment_hash for head in facts.runs)),
        },
        bad=lambda head: sum(head.statuses.get(status, 0) for status in _BAD),
        told=lambda counts: {name: counts[name] for name in _VERDICTS if name in counts},
    )


def run(facts: SiteFacts, one: RunFacts) -> tuple[File, File]:
    """Return the page of a run, and the script with its numbers, which `compare` loads too."""
    key, verdicts = (one.head.run_id, one.head.device_name), one.verdicts
    path = paths.run_page(*key)
    source, name = paths.data_of(path), path.removesuffix(".html")
    references = list(verdicts.references) if verdicts else []
    added: dict[tuple[str, str], dict[str, list[tuple[str, str]]]] = {}
    for new in verdicts.new if verdicts else ():
        cases = added.setdefault((new.suite, new.operator), {})
        cases.setdefault(new.case, []).append((new.implementation, series_anchor(new)))
    operators = Counter((series.series.suite, series.series.operator) for series in one.series)
    here = [event for event in facts.events if event.device_name == one.head.device_name]
    troubled = [series for series in one.series if series.status != "measured"]
    ranks = {status: rank - len(_BAD) for rank, status in enumerate(_BAD)}
    troubled.sort(key=lambda one: (ranks.get(one.status, 0), one.series.suite, one.series.case))
    counts = [(*name, number) for name, number in sorted(operators.items())]
    shown: dict[str, object] = {
        "there": one.pages,
        "run": one,
        "groups": field_groups(one.environment),
        "operators": counts,
    }
    shown |= {"troubled": troubled[:_REASONS], "troubles": len(troubled), "added": added, "most": _CASES}
    shown |= {"beside": beside_result(one.series), "data": name, "source": source}
    changed = [(move, series_anchor(move.series)) for move in (verdicts.changes if verdicts else ())[:_REASONS]]
    shown |= {"ends": dict.fromkeys([*references[:1], *references[-1:]]), "changed": changed}
    shown |= {"began": [(event, headline(event)) for event in here if event.after.run_id == one.head.run_id]}
    shown |= {"ended": [(event, headline(event)) for event in here if event.ended == one.head.run_id]}
    payload = run_payload(one, facts.beside.get(key))
    return render(path, facts, "run.html.j2", **shown), File(path=source, content=script(name, payload))


def compare(facts: SiteFacts) -> File:
    devices = grouped((head.device_name, head) for head in facts.runs)
    return render(paths.COMPARE, facts, options=shlex.join(facts.options), devices=devices)


_COLOURS = 8  # number of parts with a colour of their own; the rest of a bar is one part
_REST = "all else"


def stacked(parts: Sequence[Breakdown]) -> tuple[SimpleNamespace, ...]:
    """Return the bars by kind and, where there are modules, by module; nothing where nothing took any time."""
    kinds = _bars("By kind of work", parts, [{row.name: row.ns for row in by_kind(part)} for part in parts])
    modules = _bars("By module", parts, list(map(_modules, parts))) if any(part.modules for part in parts) else None
    return tuple(filter(None, (kinds, modules)))


def beside_baseline(parts: Sequence[Breakdown]) -> tuple[str, ...]:
    """Return for each variant in a sentence how its launches and its time compare with the baseline's in the same mode."""
    sentences = []
    baselines = {part.entry.mode: part for part in reversed(parts) if part.entry.implementation == BASELINE}
    for part in parts:
        base = baselines.get(part.entry.mode, part)
        if part is base:
            continue
        before, after = (sum(piece.launches for piece in side.pieces) + side.graph_launches for side in (base, part))
        then, now = parts_ns(base), parts_ns(part)
        launches = _times(before, after, "many launches", "fewer", f"{before:,} → {after:,}")
        times = f"{units.duration(then)} → {units.duration(now)}"
        sentences.append(f"{part.entry}: {launches}, {_times(then, now, 'much time in kernels', 'less', times)}")
    return tuple(sentences)


def _times(before: float, after: float, much: str, less: str, ends: str) -> str:
    what = much.partition(" ")[2]
    if before == after:
        return f"as {much} ({ends})"
    if not before or not after:
        return f"{what} {ends}"
    ratio = before / after
    return f"{max(ratio, 1 / ratio):.3g}x {less if ratio > 1 else 'more'} {what} ({ends})"


def _modules(part: Breakdown) -> dict[str, float]:
    root = tree_of(part)
    times: defaultdict[str, float] = defaultdict(float)
    for node in root.children:
        times[node.label or "outside of modules"] += node.ns
    rest = root.ns - sum(times.values())
    return {**times, "outside of modules": rest} if rest > 0 else dict(times)


def _bars(title: str, parts: Sequence[Breakdown], tables: Sequence[Mapping[str, float]]) -> SimpleNamespace | None:
    longest = max((sum(table.values()) for table in tables), default=0.0)
    if not longest:
        return None
    together = dict.fromkeys(itertools.chain(*tables))
    names = sorted(together, key=lambda name: -max(table.get(name, 0.0) for table in tables))
    colours = {name: place for place, name in enumerate(names[: _COLOURS - 1])}
    key = [*colours.items(), *([(_REST, _COLOURS - 1)] if len(names) > len(colours) else [])]
    bars = []
    for part, table in zip(parts, tables, strict=True):
        shown = {name: table.get(name, 0.0) for name in colours}
        shown[_REST] = sum(table.values()) - sum(shown.values())
        segments = []
        for name, ns in shown.items():
            if ns > 1e-4 * longest:
                colour, width = colours.get(name, _COLOURS - 1), round(100 * ns / longest, 2)
                segments.append(SimpleNamespace(name=name, colour=colour, width=width, text=units.duration(ns)))
        total = units.duration(sum(table.values()))
        bars.append(SimpleNamespace(name=str(part.entry), total=total, segments=segments))
    return SimpleNamespace(title=title, bars=bars, key=key)


def breakdowns(facts: SiteFacts, kept: tuple[KeptBreakdown, ...]) -> Iterator[File]:
    if not kept:
        return
    yield render(paths.BREAKDOWNS, facts)
    for one in kept:
        parts = [(str(part.entry), sentences(part), _tables(part)) for part in one.parts]
        shown = {"kept": one, "note": PROFILED, "parts": parts, "bars": stacked(one.parts)}
        together = _table("Side by side, in us", side_by_side(one.parts)) if len(one.parts) > 1 else None
        shown |= {"beside": beside_baseline(one.parts), "together": together}
        yield render(paths.breakdown_page(one.breakdown_id, one.device_name), facts, "breakdown.html.j2", **shown)


def _tables(part: Breakdown) -> list[SimpleNamespace]:
    return [_table(title, rows) for title, rows in [("Modules", tree_rows(part)), *tables(part)] if rows]


def _table(title: str, rows: Rows) -> SimpleNamespace:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = tuple((name, all(isinstance(row.get(name), int | float | None) for row in rows)) for name in names)
    return SimpleNamespace(title=title[:1].upper() + title[1:], columns=columns, rows=rows)
