"""The site for programs: index.json and badges; `feed` stands beside it.

Draws a badge: a name, and beside it a short statement on the colour of a state, as an SVG of its own.
"""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite
from typing import Any
from xml.etree import ElementTree as ET

from pairbench.model.case import TIERS
from pairbench.model.site import Event, Moved, OverviewRow, RunHead, SiteFacts
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.site import paths
from pairbench.site.event_pages import feed
from pairbench.site.paths import File
from pairbench.site.summary import worst
from pairbench.stats import Interval

_HEIGHT = 20
_PAD = 6.0
_LABEL = "#3b4048"
_COLOURS = {
    "failed": "#7a1f1f",
    "regression": "#a83200",
    "undecided": "#6b5600",
    "improvement": "#00664b",
    "new": "#0a5a94",
    "unchanged": "#48515c",
    "skipped": "#5f6368",
}
"""Colours by state. White text on them has a contrast of 4.5 or more; the words repeat what the colour means."""

# Tenths of a pixel of each printable letter of ASCII, from the space on, in DejaVu Sans at 11 px: the widest of the
# fonts that `_FONTS` is likely to find. What is drawn is squeezed to the estimate, so no font runs over the edge.
_WIDTHS = (
    *(35, 44, 51, 92, 70, 105, 86, 30, 43, 43, 55, 92, 35, 40, 35, 37, 70, 70, 70, 70, 70, 70, 70, 70, 70, 70, 37, 37),
    *(92, 92, 92, 58, 110, 75, 75, 77, 85, 70, 63, 85, 83, 32, 32, 72, 61, 95, 82, 87, 66, 87, 76, 70, 67, 81, 75, 109),
    *(75, 67, 75, 43, 37, 43, 92, 55, 55, 67, 70, 60, 70, 68, 39, 70, 70, 31, 31, 64, 31, 107, 70, 67, 70, 70, 45, 57),
    *(43, 70, 65, 90, 65, 65, 58, 70, 37, 70, 92),
)
_OTHER = 75
_WIDE = 110
_FONTS = "Verdana,DejaVu Sans,Geneva,sans-serif"


def draw_badge(name: str, statement: str, state: str, title: str) -> bytes:
    """Return the SVG.

    Args:
        name: On the left. One line, as short as it is to be shown; so is the statement.
        statement: On the right.
        state: One of `model.site.STATES`, or empty where nothing is known; gives the colour.
        title: What is read out in place of the picture, and shown under the pointer.
    """
    left, right = text_width(name) + 2 * _PAD, text_width(statement) + 2 * _PAD
    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": f"{left + right:.1f}",
            "height": str(_HEIGHT),
            "role": "img",
            "aria-label": title,
        },
    )
    ET.SubElement(svg, "title").text = title
    _box(svg, 0, left, _LABEL)
    _box(svg, left, right, _COLOURS.get(state, _COLOURS["skipped"]))
    words = ET.SubElement(svg, "g", {"fill": "#fff", "font-family": _FONTS, "font-size": "11"})
    _words(words, _PAD, name)
    _words(words, left + _PAD, statement)
    return bytes(ET.tostring(svg, encoding="utf-8")) + b"\n"


def text_width(text: str) -> float:
    """Return about how many pixels wide a text is at 11 px."""
    return sum(map(_width, text)) / 10


def _width(letter: str) -> int:
    index = ord(letter) - ord(" ")
    if 0 <= index < len(_WIDTHS):
        return _WIDTHS[index]
    if unicodedata.combining(letter):
        return 0
    return _WIDE if unicodedata.east_asian_width(letter) in "WF" else _OTHER


def _box(svg: ET.Element, start: float, width: float, colour: str) -> None:
    geometry = {"x": f"{start:.1f}", "width": f"{width:.1f}", "height": str(_HEIGHT)}
    ET.SubElement(svg, "rect", {**geometry, "fill": colour})


def _words(group: ET.Element, start: float, text: str) -> None:
    geometry = {"x": f"{start:.1f}", "y": "14", "textLength": f"{text_width(text):.1f}"}
    ET.SubElement(group, "text", {**geometry, "lengthAdjust": "spacingAndGlyphs"}).text = text


__all__ = ["SCHEMA", "badges", "feed", "index_json"]

SCHEMA = 1
"""Version of index.json. A key that goes, or means something else, raises it; a new key does not."""
STATE_BADGE = "badges/state.svg"

# Attributes that index.json has under their own names. Named here rather than taken from the values, so that the document
# does not change with them.
_RUN = (
    *("run_id", "started_at", "device_name", "device_uuids", "hostname", "commit", "commit_at", "branch", "dirty"),
    *("confirms", "environment_hash", "versions", "statuses", "timers", "subject", "author", "number", "pull_request"),
)
_ROW = (
    *("device_name", "suite", "operator", "dtype", "tier", "mode", "cases", "variant", "latency", "speedup"),
    *(
        "least",
        "most",
        "host_bound",
        "losing",
        "statuses",
        "margin",
        "launches_before",
        "launches_after",
        "spark",
        "state",
        "newest_run",
    ),
)
_EVENT = ("key", "kind", "direction", "outcome", "accepted", "device_name", "life", "ended", "commits")
_MOVED = (
    *("change", "relative", "before_ns", "after_ns", "control", "attribution", "outcome", "reason", "kernels"),
    *("accepted", "life", "ended"),
)
_COUNT = ("metric", "before", "after", "reason")


def index_json(facts: SiteFacts) -> File:
    """Return index.json: what the overview and the regressions show, for programs.

    Keys of the document, in this order; the same facts always give the same bytes:

    - `schema`: the number above. `store`, `repository`: where the runs were read, and the sources' address or null.
    - `runs`: newest first; `run_id`, `started_at` (ISO 8601, UTC), `device_name`, `device_uuids`, `hostname`, `commit`,
      `commit_at`, `branch`, `dirty`, `confirms`, `environment_hash`, `versions`, `statuses`, `timers`,
      and of the commit `subject`, `author`, `number` (of commits in its history) and `pull_request`, or null; `href` is its
      page, relative to index.json.
    - `rows`: what the overview's table holds, by `device_name`, `suite`, `operator`, `dtype`, `tier` and `mode`; `cases`,
      `variant` (the best), `latency` (what the speedups are of: device or call), `speedup` ([estimate, low, high] of baseline over variant, or null), `least` and `most` over
      the cases, `host_bound` (cases in which issuing a call takes the host longer than the work takes the device), `losing` (cases), `statuses`, `margin`, `launches_before` and `launches_after` ([fewest, most] or null),
      `spark` (speedups of the newest runs, oldest first), `state`, `newest_run`, `href` of the operator's page, `badge`.
    - `events`: newest first; `key`, `kind`, `direction`, `outcome`, `accepted`, `device_name`, `before` and `after` (ids
      of runs; `before` may be null), `era`, `life` (still there, accepted, recovered or superseded) and `ended` (the run with
      which it did, or null), `commits` (how many are in question, or null), `href`, and in `elsewhere` the same step on other device models; `moved` lists the series: `series`,
      `change` (after over before), `relative` (to the control), `before_ns`, `after_ns`, `control`, `attribution`, `outcome`,
      `reason`, `counts` (`metric`, `before`, `after`, `reason`), `kernels`, `accepted`, `life`, `ended`.
    - `problems`: what could not be read, in sentences.
    """
    rows = sorted(facts.rows, key=_identity)
    lists: dict[str, Iterable[object]] = {
        "runs": map(_run, facts.runs),
        "rows": map(_row, rows),
        "events": map(_event, facts.events),
        "problems": facts.problems,
    }
    lines = [f'{{"schema": {SCHEMA}', f'"store": {_line(facts.store)}', f'"repository": {_line(facts.repository)}']
    # One line an item, so that a difference of two builds shows what changed.
    for name, items in lists.items():
        body = ",\n".join(map(_line, items))
        lines.append(f'"{name}": [\n{body}\n]' if body else f'"{name}": []')
    return File(path="index.json", content=(",\n".join(lines) + "}\n").encode(errors="replace"))


def badges(facts: SiteFacts) -> Iterator[File]:
    """Yield a badge for each operator on each device model, and one for all of them together."""
    states = []
    for (device, suite, operator), group in groupby(
        sorted(facts.rows, key=_identity), key=lambda row: _identity(row)[:3]
    ):
        rows = list(group)
        states.append(worst([row.state for row in rows]))
        yield File(path=paths.badge(device, suite, operator), content=_badge(rows, states[-1]))
    yield File(path=STATE_BADGE, content=_whole(states))


def _badge(rows: Sequence[OverviewRow], state: str) -> bytes:
    name, device = shorten(rows[0].operator, 40), shorten(rows[0].device_name, 60)
    best = _best(rows)
    if best is None or best.speedup is None:
        return draw_badge(name, state, state, f"{name} on {device}: no speedup measured, {state}")
    speedup = units.ratio(best.speedup.estimate)
    over = units.ratio_range(best.least, best.most) if best.cases > 1 else ""
    interval = units.ratio_range(best.speedup.low, best.speedup.high)
    how = shorten(", ".join(filter(None, [best.dtype, best.tier, best.mode])), 60)
    cases = f", {over} over {best.cases} cases" if over else ""
    title = f"{name} on {device}: {shorten(best.variant or '', 40)} {speedup} (95 % interval {interval}{cases}; {how}; latency: {best.latency}), {state}"
    return draw_badge(name, f"{speedup} ({over or interval}) {state}", state, title)


def _best(rows: Sequence[OverviewRow]) -> OverviewRow | None:
    """Return the largest speedup among the rows of the most telling tier that has any."""
    known = [(row, row.speedup.estimate) for row in rows if row.speedup is not None]
    return max(known, key=lambda one: (_weight(one[0].tier), one[1]), default=(None, 0.0))[0]


def _weight(tier: str) -> int:
    return TIERS.index(tier) if tier in TIERS else -1


def _whole(states: Sequence[str]) -> bytes:
    if not states:
        return draw_badge("pairbench", "no runs yet", "", "pairbench: no runs yet")
    state = worst(states)
    text = f"{state}: {states.count(state)} of {len(states)} operator{'' if len(states) == 1 else 's'}"
    return draw_badge("pairbench", text, state, f"pairbench: {text}")


def _identity(row: OverviewRow) -> tuple[str, ...]:
    return (row.device_name, row.suite, row.operator, row.dtype, row.tier, row.mode)


def _run(run: RunHead) -> dict[str, object]:
    return {**{name: getattr(run, name) for name in _RUN}, "href": paths.run_page(run.run_id, run.device_name)}


def _row(row: OverviewRow) -> dict[str, object]:
    where = (row.device_name, row.suite, row.operator)
    return {
        **{name: getattr(row, name) for name in _ROW},
        "href": paths.operator_page(*where),
        "badge": paths.badge(*where),
    }


def _event(event: Event) -> dict[str, object]:
    return {
        **{name: getattr(event, name) for name in _EVENT},
        "before": event.before.run_id if event.before else None,
        "after": event.after.run_id,
        "era": event.era,
        "href": f"{paths.REGRESSIONS}#{paths.anchor(event.key)}",
        "moved": [_moved(one) for one in event.moved],
        "elsewhere": [_event(other) for other in event.elsewhere],
    }


def _moved(one: Moved) -> dict[str, object]:
    counts = [{name: getattr(count, name) for name in _COUNT} for count in one.counts]
    return {"series": one.series.name, **{name: getattr(one, name) for name in _MOVED}, "counts": counts}


def _line(value: object) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return what JSON can hold: lists for tuples, keys in order, null for what is no finite number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    if isinstance(value, Interval | tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    return value
