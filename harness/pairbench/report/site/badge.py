"""Draws a badge: a name, and beside it a short statement on the colour of a state, as an SVG of its own."""

import unicodedata
from xml.etree import ElementTree as ET

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
