"""Pages read as a browser reads them: elements with attributes, and the text that a reader sees."""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from pairbench.site.paths import File

VOID = {"meta", "link", "input", "br", "img", "hr", "line", "wbr", "polyline", "use", "path", "circle", "rect"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    inside: tuple["Element", ...]
    """Those that hold it, the outermost first."""
    text: str = ""
    """All text in it, that of inner elements included."""


@dataclass
class Page:
    path: str
    elements: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, *tags: str) -> list[Element]:
        return [element for element in self.elements if element.tag in tags]

    def within(self, outer: Element, *tags: str) -> list[Element]:
        return [element for element in self.all(*tags) if any(other is outer for other in element.inside)]

    def references(self) -> Iterator[tuple[str, str]]:
        """Yield tag and address of everything that the page points at."""
        for element in self.elements:
            for name in ("href", "src", "data-source"):
                if name in element.attributes:
                    yield element.tag, element.attributes[name]


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__(convert_charrefs=True)
        self.page = page
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(self.open))
        self.page.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1].tag == tag, f"{self.page.path}: </{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not any(element.tag in ("script", "style") for element in self.open):
            self.page.text += data
        for element in self.open:
            element.text += data


def read(file: File) -> Page:
    """Return a page of the site as read; an element that is not closed in order fails."""
    page = Page(file.path)
    reader = _Reader(page)
    reader.feed(file.content.decode())
    reader.close()
    assert not reader.open, f"{file.path}: never closed: {[element.tag for element in reader.open]}"
    return page


def pages(files: Iterable[File]) -> list[Page]:
    return [read(file) for file in files if file.path.endswith(".html")]


def value_of(data: bytes) -> tuple[str, Any]:
    """Return name and value of a data script, read as JSON: what JavaScript reads in it is the same."""
    if found := re.fullmatch(rb"pairbench\.packed\((\"(?:[^\"\\]|\\.)*\"), \"([A-Za-z0-9+/=]+)\"\);\n", data):
        return json.loads(found[1]), json.loads(zlib.decompress(base64.b64decode(found[2])), parse_constant=_refused)
    found = re.fullmatch(rb"pairbench\.data\((\"(?:[^\"\\]|\\.)*\"), (.*)\);\n", data, re.DOTALL)
    assert found
    return json.loads(found[1]), json.loads(found[2], parse_constant=_refused)


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
