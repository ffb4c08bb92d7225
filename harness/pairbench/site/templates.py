"""Templates become pages: their filters, addresses of the repository on the web, and the values that every page has.

A filter that gives markup escapes all it was given; all others give plain text, which the template escapes. Stores and
settings may hold any text, so a link is made only from what is plainly an address.
"""

import contextlib
import datetime as dt
import functools
import math
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
from markupsafe import Markup

from pairbench import __version__
from pairbench.analyze.history.points import moment_of
from pairbench.model.site import STATES, SiteFacts
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.site import paths
from pairbench.site.marks import event_spark, spark, strip
from pairbench.site.paths import File
from pairbench.site.summary import is_self_test
from pairbench.workflow.setup import catalogue_folder

_TITLE = 500  # number of letters of a long name in its tooltip
_COMMA = re.compile(r",(?=\S)")
_SHAPES = dict.fromkeys(("mismatched", "timeout", "oom"), "failed") | dict.fromkeys(("slower", "worse"), "regression")
_SHAPES |= dict.fromkeys(("both", "incomparable"), "undecided")
_SHAPES |= {"measured": "unchanged", "faster": "improvement", "missing": "skipped", "moved": "new"}
"""The one of STATES that each other state or status is drawn like."""


def short(text: object, width: int = 60) -> str:
    """Return text on one line, its middle left out where it is longer than the width, in letters."""
    return shorten(str(text)[: 100 * _TITLE], width)


def cut(text: object, width: int = 48) -> Markup:
    """Return a name cut to the width, with more of it where one points at it, and isolated from the text around it."""
    # The key of a case may break after a comma, so that no browser breaks its numbers. Plain ASCII runs in one
    # direction, and thousands of isolated names make a page slow, so it stands as it is.
    whole = str(text)
    shown = short(whole, width)
    parted = Markup(",<wbr>").join(_COMMA.split(shown))
    tag = "span" if shown.replace("…", "").isascii() else "bdi"
    if shown != whole:
        return Markup('<{0} title="{1}">{2}</{0}>').format(tag, short(whole, _TITLE), parted)
    return Markup("<bdi>{}</bdi>").format(parted) if tag == "bdi" else parted


def time_of(text: str) -> dt.datetime | None:
    at = moment_of(text)
    return None if at is None else dt.datetime.fromtimestamp(at, dt.UTC)


def moment(text: str | None) -> Markup:
    """Return a moment in UTC like `2026-11-20 15:39`; text that is none stays text."""
    if not text:
        return Markup("")
    if (at := time_of(text)) is None:
        return cut(text, 25)
    return Markup('<time datetime="{}">{}</time>').format(f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{at:%Y-%m-%d %H:%M}")


def state(word: object) -> Markup:
    """Return a state, a status or a direction as its word behind a shape that goes with it."""
    shape = _SHAPES.get(str(word), str(word))
    markup = Markup('<span class="state state-{}">{}</span>')
    return markup.format(shape if shape in STATES else "other", short(word, 30))


def span(numbers: tuple[float, float] | None) -> str:
    return " to ".join(dict.fromkeys(f"{number:,.0f}" for number in numbers or ()))


def count(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:,.0f}"


def number(value: float | None) -> str:
    """Return a number to sort by; empty where there is none."""
    return "" if value is None or not math.isfinite(value) else f"{value:.6g}"


def query(text: str) -> str:
    return quote(text, safe="", errors="replace")


_FILTERS: tuple[Any, ...] = (
    *(count, cut, moment, number, query, short, span, state),
    *(units.between, units.change, units.duration, units.percent, units.ratio, units.significant, units.size),
)

_WEB = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/-]*)?")
_SHA = re.compile(r"[0-9a-f]{7,64}")


# Where the repository shows what pages name; None where that is not known.


def commit_url(repository: str | None, commit: str | None) -> str | None:
    base = _base(repository)
    return f"{base}/commit/{commit}" if base and _is_commit(commit) else None


def range_url(repository: str | None, before: str | None, after: str | None) -> str | None:
    base = _base(repository)
    known = base and _is_commit(before) and _is_commit(after) and before != after
    return f"{base}/compare/{before}...{after}" if known else None


def pull_request_url(repository: str | None, number: int | None) -> str | None:
    base = _base(repository)
    if base is None or number is None or number < 1:
        return None
    return f"{base}/-/merge_requests/{number}" if "gitlab" in base.split("/")[2] else f"{base}/pull/{number}"


def source_url(repository: str | None, commit: str | None, path: str, line: int) -> str | None:
    base, parts = _base(repository), PurePosixPath(path)
    inside = path and not parts.is_absolute() and ".." not in parts.parts and len(path) <= 500
    known = base and _is_commit(commit) and inside
    return f"{base}/blob/{commit}/{quote(path, errors='replace')}#L{line}" if known else None


def _base(repository: str | None) -> str | None:
    return repository.rstrip("/").removesuffix(".git") if repository and _WEB.fullmatch(repository) else None


def _is_commit(commit: str | None) -> bool:
    return commit is not None and _SHA.fullmatch(commit) is not None


_FUNCTIONS: tuple[Any, ...] = (
    *(commit_url, pull_request_url, range_url, source_url),
    *(paths.anchor, paths.breakdown_page, paths.operator_page, paths.run_key, paths.run_page, paths.series_anchor),
    *(event_spark, is_self_test, spark, strip),
)


def _unindented(templates: Path, name: str) -> str | None:
    """Return a template without the indentation that only its authors need: it would be a twentieth of each page."""
    try:
        source = (templates / name).read_text(encoding="utf-8")
    except OSError:
        return None
    return re.sub(r"(?m)^[ \t]+", "", source)


@functools.cache
def environment(templates: Path) -> Environment:
    """Return the environment that renders the templates of a folder; unknown names fail, and all text is escaped."""
    compiled = templates / "__pycache__"  # compiling the templates takes half a second
    with contextlib.suppress(OSError):
        compiled.mkdir(exist_ok=True)
    writable = compiled.is_dir() and os.access(compiled, os.W_OK)
    made = Environment(
        loader=FunctionLoader(lambda name: _unindented(templates, name)),
        bytecode_cache=FileSystemBytecodeCache(str(compiled)) if writable else None,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    made.filters.update({function.__name__: function for function in _FILTERS})
    made.globals.update({function.__name__: function for function in _FUNCTIONS})
    made.globals.update(STATES=STATES, paths=paths, units=units, version=__version__)
    return made


def render(path: str, facts: SiteFacts, template: str = "", **values: Any) -> File:
    """Return a page; its template has the name of the page where no other is given."""
    there = {(row.device_name, row.suite, row.operator) for row in facts.rows}  # all that have a page
    shared = {"facts": facts, "page": path, "root": paths.relative(path, ""), "there": there}
    env = environment(catalogue_folder("dashboards") / "templates")
    text = env.get_template(template or f"{path}.j2").render(**{**shared, **values})
    # Half of a surrogate pair can't be written; what holds one is still shown.
    return File(path=path, content=text.encode("utf-8", "replace"))
