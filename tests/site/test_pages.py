"""Every page opens from disk, and every link leads somewhere."""

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect

from pairbench.site import paths
from tests.site.conftest import Site
from tests.site.kinds import ALWAYS, EVENTFUL
from tests.site.stores import REPOSITORY
from tests.site.watch import Opener

pytestmark = pytest.mark.browser


class Links(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        self.found += [value for name in ("href", "src") if (value := of.get(name))]
        self.anchors |= {of["id"] or ""} if "id" in of else set()


@cache
def links(file: Path) -> Links:
    parser = Links()
    parser.feed(file.read_text())
    return parser


def broken(site: Site, repository: str = REPOSITORY) -> Iterator[str]:
    """Yield the links that lead nowhere; of other addresses only those of the repository are right."""
    for file in sorted(site.folder.rglob("*.html")):
        for href in links(file).found:
            parts = urlsplit(href)
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if parts.scheme or parts.netloc:
                ok = href.startswith(f"{repository}/")
            else:
                ok = target.is_file() and target.is_relative_to(site.folder)
                # An address with = holds the state of a page, not a place on it.
                if ok and parts.fragment and "=" not in parts.fragment and target.suffix == ".html":
                    ok = unquote(parts.fragment) in links(target).anchors
            if not ok:
                yield f"{file.relative_to(site.folder)}: {href}"


@pytest.mark.parametrize("kind", EVENTFUL)
def test_a_page_opens_from_disk(look: Opener, kind: str) -> None:
    page = look(EVENTFUL[kind])
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.title().endswith(" · pairbench")
    current = page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")
    expect(current).to_have_count(1 if EVENTFUL[kind] in (*ALWAYS, paths.BREAKDOWNS) else 0)


@pytest.mark.parametrize("name", ["eventful", "single", "failures", "empty"])
def test_every_link_leads_somewhere(request: pytest.FixtureRequest, name: str) -> None:
    assert list(broken(request.getfixturevalue(name))) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path, "", "")
    (tmp_path / "other.html").write_text("<p id=there>")
    hrefs = (
        "missing.html",
        "other.html#gone",
        "https://example.com/",
        "../outside.html",
        "other.html#there",
        "other.html#q=1",
    )
    (tmp_path / "index.html").write_text("".join(f'<a href="{href}">x</a>' for href in hrefs))
    assert [line.partition(": ")[2] for line in broken(site)] == list(hrefs[:4])


def test_the_command_says_where_the_site_is(eventful: Site) -> None:
    assert eventful.stdout == f"{eventful.folder / 'index.html'}\n"
    assert re.search(r"[1-9]\d* files", eventful.stderr)


def test_pages_lead_to_one_another(look: Opener) -> None:
    page = look()
    for name in ("Regressions", "Compare", "Breakdowns", "Runs", "Overview"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("link", name=name, exact=True).first).to_have_attribute("aria-current", "page")
