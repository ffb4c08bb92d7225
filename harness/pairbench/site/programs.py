"""The site for programs: index.json, and badges, which show a name and a short statement on the colour of a state."""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import groupby
from math import isfinite
from typing import Any
from xml.etree import ElementTree as ET

from pairbench.model.record import Series
from pairbench.model.site import Event, OverviewRow, RunHead, SiteFacts
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.site import paths
from pairbench.site.paths import File
from pairbench.site.summary import tier_rank, worst
from pairbench.stats import Interval

_HEIGHT = 20
_PAD = 6.0
_LABEL = "#3b4048"
_COLOURS = {  # by state. White text on them has a contrast of 4.5 or more; the words repeat what the colour means
    "failed": "#7a1f1f",
    "regression": "#a83200",
    "undecided": "#6b5600",
    "improvement": "#00664b",
    "new": "#0a5a94",
    "unchanged": "#48515c",
    "skipped": "#5f6368",
}

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
    """Return the SVG of a badge: a name on the left, a statement on the colour of a state on the right, and a title that is read out."""
    left, right = (text_width(text) + 2 * _PAD for text in (name, statement))
    size = {"width": f"{left + right:.1f}", "height": str(_HEIGHT)}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "role": "img", "aria-label": title})
    ET.SubElement(svg, "title").text = title
    boxes = [(0.0, left, _LABEL, name), (left, right, _COLOURS.get(state, _COLOURS["skipped"]), statement)]
    for start, width, colour, _ in boxes:
        place = {"x": f"{start:.1f}", "width": f"{width:.1f}", "height": str(_HEIGHT)}
        ET.SubElement(svg, "rect", {**place, "fill": colour})
    words = ET.SubElement(svg, "g", {"fill": "#fff", "font-family": _FONTS, "font-size": "11"})
    for start, _, _, text in boxes:
        place = {"x": f"{start + _PAD:.1f}", "y": "14", "textLength": f"{text_width(text):.1f}"}
        ET.SubElement(words, "text", {**place, "lengthAdjust": "spacingAndGlyphs"}).text = text
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


SCHEMA = 1  # version of index.json. A key that goes, or means something else, raises it; a new key does not.
STATE_BADGE = "badges/state.svg"


def index_json(facts: SiteFacts) -> File:
    """Return index.json: what the overview and the regressions show, for programs; the same facts give the same bytes."""
    # Its keys are `schema`, `store`, `repository` (or null), `runs` and `events` (the newest first), `rows` and `problems`
    # (sentences). Runs, rows and events, and in events `moved` and its `counts`, have the fields of `RunHead`, `OverviewRow`,
    # `Event`, `Moved` and `CountStep` of `model.site`, but for these: `href` and `badge` are files of the site, `series` is a
    # name, an event's `before` and `after` are ids of runs, charts of `Moved` are left out, and an interval is a list.
    rows = sorted(facts.rows, key=_identity)
    lists = {"runs": facts.runs, "rows": rows, "events": facts.events, "problems": facts.problems}
    lines = [f'{{"schema": {SCHEMA}', f'"store": {_line(facts.store)}', f'"repository": {_line(facts.repository)}']
    for name, items in lists.items():  # one line an item, so that a difference of two builds shows what changed
        body = ",\n".join(_line(item) for item in items)
        lines.append(f'"{name}": [\n{body}\n]' if body else f'"{name}": []')
    return File(path="index.json", content=(",\n".join(lines) + "}\n").encode(errors="replace"))


def _line(value: object) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return what JSON can hold: lists for tuples, keys in order, null for what is no finite number."""
    if isinstance(value, Series):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        named = {**vars(value), **_instead(value)}
        return _plain({name: item for name, item in named.items() if name not in ("history", "place")})
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    if isinstance(value, Interval | tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    return value


def _instead(value: Any) -> dict[str, object]:
    """Return index.json's own keys of a value, which come beside its fields or in their place."""
    match value:
        case RunHead():
            return {"href": paths.run_page(value.run_id, value.device_name)}
        case OverviewRow():
            where = (value.device_name, value.suite, value.operator)
            return {"href": paths.operator_page(*where), "badge": paths.badge(*where)}
        case Event():
            heads = {"before": value.before, "after": value.after, "last": value.last}
            return {
                **{name: head.run_id if head else None for name, head in heads.items()},
                "href": f"{paths.REGRESSIONS}#{paths.anchor(value.key)}",
                "accepted": value.accepted,
                "commits": value.commits,
            }
    return {}


def badges(facts: SiteFacts) -> Iterator[File]:
    states = []
    for key, group in groupby(sorted(facts.rows, key=_identity), key=lambda row: _identity(row)[:3]):
        rows = list(group)
        states.append(worst(row.state for row in rows))
        yield File(path=paths.badge(*key), content=_badge(rows, states[-1]))
    state, text = worst(states) if states else "", "no runs yet"
    if states:
        text = f"{state}: {states.count(state)} of {len(states)} operator{'' if len(states) == 1 else 's'}"
    yield File(path=STATE_BADGE, content=draw_badge("pairbench", text, state, f"pairbench: {text}"))


def _badge(rows: Sequence[OverviewRow], state: str) -> bytes:
    name, device = shorten(rows[0].operator, 40), shorten(rows[0].device_name, 60)
    # The largest speedup of the most telling tier that has any.
    known = (row for row in rows if row.speedup is not None)
    best = max(known, key=lambda row: (tier_rank(row.tier), row.speedup.estimate if row.speedup else 0.0), default=None)
    if best is None or best.speedup is None:
        return draw_badge(name, state, state, f"{name} on {device}: no speedup measured, {state}")
    speedup = units.ratio(best.speedup.estimate)
    over = units.ratio_range(best.least, best.most) if best.cases > 1 else ""
    interval = units.ratio_range(best.speedup.low, best.speedup.high)
    how = shorten(", ".join(filter(None, [best.dtype, best.tier, best.mode])), 60)
    cases = f", {over} over {best.cases} cases" if over else ""
    title = f"{name} on {device}: {shorten(best.variant or '', 40)} {speedup} (95 % interval {interval}{cases}; {how}; latency: {best.latency}), {state}"
    return draw_badge(name, f"{speedup} ({over or interval}) {state}", state, title)


def _identity(row: OverviewRow) -> tuple[str, ...]:
    return (row.device_name, row.suite, row.operator, row.dtype, row.tier, row.mode)
