"""Names that are markup, scripts, paths or endless: they show as text, nothing of them runs, and they name no file."""

import re

import pytest
from playwright.sync_api import Page, expect

from pairbench.site import paths
from tests.builders import run_id_of
from tests.site.conftest import Browse, Site
from tests.site.kinds import ALWAYS
from tests.site.stores import HOSTILE
from tests.site.watch import Opener

pytestmark = pytest.mark.browser

INJECTED = """() => {
  const found = [...document.querySelectorAll('script:not([src]), iframe, object, embed, img, base, form[action], style:not([id])')];
  for (const node of document.querySelectorAll('*')) {
    for (const { name, value } of node.attributes) {
      if (name.startsWith('on') || (/^(href|src|xlink:href|action|formaction)$/.test(name) && /^\\s*javascript:/i.test(value))) {
        found.push(node);
      }
    }
  }
  return found.filter((node) => !node.closest('.js-plotly-plot')).map((node) => node.outerHTML.slice(0, 200));
}"""
PLAIN = re.compile(
    r"(index|regressions|compare|runs|gpus|breakdowns)\.html|index\.json|feed\.xml|\.pairbench-site\.(json|cache)"
    r"|(operators|runs|breakdowns)/[a-z0-9_-]{1,80}\.(html|js)|badges/[a-z0-9_-]{1,80}\.svg|assets/[a-z0-9_.-]{1,80}\.(js|css|svg)"
)


@pytest.fixture
def look(browse: Browse, hostile: Site) -> Opener:
    return browse(hostile)


def check(page: Page) -> None:
    """Nothing ran, and nothing of a name became part of the page."""
    page.wait_for_load_state("networkidle")
    assert page.evaluate("() => window.pwned") is None, page.url
    assert page.evaluate(INJECTED) == [], page.url


def test_nothing_is_written_elsewhere(hostile: Site) -> None:
    assert sorted(path.name for path in hostile.folder.parent.iterdir()) == ["site", "store"]
    names = [str(path.relative_to(hostile.folder)) for path in hostile.folder.rglob("*") if not path.is_dir()]
    assert len(names) > 60
    assert sum(name.startswith("operators/") and name.endswith(".html") for name in names) == 2 * len(HOSTILE)
    assert [name for name in names if not PLAIN.fullmatch(name)] == []
    assert not [path for path in hostile.folder.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("path", ALWAYS)
def test_shared_pages(look: Opener, path: str) -> None:
    page = look(path)
    check(page)
    for details in page.locator("summary:visible").all()[:5]:
        details.click()
    check(page)


def test_names_are_shown_as_text(look: Opener) -> None:
    page = look()
    for text in (HOSTILE[0], HOSTILE[1], HOSTILE[5], HOSTILE[9]):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=text[:20]))
        expect(row.first).to_be_visible()
    link = page.get_by_role("link", name="x" * 20).first
    assert len(link.inner_text()) < 100 and "…" in link.inner_text()
    assert 400 <= len(link.locator("[title]").get_attribute("title") or "") <= 500
    page.get_by_role("searchbox").fill(HOSTILE[0])
    expect(page.get_by_role("row").filter(has_text=HOSTILE[0]).first).to_be_visible()
    check(page)


@pytest.mark.slow
def test_every_page_of_an_operator(look: Opener, hostile: Site) -> None:
    page = look()
    for name in HOSTILE:
        page.goto((hostile.folder / paths.operator_page(HOSTILE[1], name, name)).as_uri())
        check(page)
        for details in page.locator("summary:visible").all():
            # A click of the mouse would wait for frames, which a busy machine once did not draw for 15 s.
            details.evaluate("summary => summary.click()")
        for point in page.locator(".chart[data-chart=trend] path.point, .chart[data-chart=speedup] path.point").all()[
            :2
        ]:
            point.hover(force=True)
        check(page)


def test_pages_of_runs(look: Opener, hostile: Site) -> None:
    page = look()
    for file in sorted((hostile.folder / "runs").glob("*.html"))[-2:]:
        page.goto(file.as_uri())
        expect(page.locator("#series tbody").get_by_role("row")).to_have_count(2 * len(HOSTILE))
        check(page)


@pytest.mark.slow
def test_pages_of_breakdowns(look: Opener, hostile: Site) -> None:
    page = look(paths.BREAKDOWNS)
    expect(page.locator("tbody").get_by_role("row")).to_have_count(len(HOSTILE))
    check(page)
    for file in sorted((hostile.folder / "breakdowns").glob("*.html")):
        page.goto(file.as_uri())
        expect(page.get_by_role("heading", level=1)).to_contain_text("Breakdown of")
        check(page)


def test_two_runs_side_by_side(look: Opener, hostile: Site) -> None:
    page = look(f"compare.html?a={run_id_of(24)}&b={run_id_of(24 * 11)}")
    expect(page.get_by_role("region", name=re.compile("^Series")).locator("tbody").get_by_role("row")).to_have_count(
        2 * len(HOSTILE)
    )
    check(page)
    page.get_by_role("combobox", name="Device").select_option(HOSTILE[1])
    expect(page.locator("#judge")).to_contain_text(run_id_of(24 * 11 + 1))
    check(page)


def test_an_address_is_no_markup_either(look: Opener) -> None:
    for path in ALWAYS:
        page = look(path)
        for mark in "?#":
            page.goto(
                f"{page.url.partition('?')[0].partition('#')[0]}{mark}q={HOSTILE[1]}&sort=%3Cscript%3E&device=%00&a=__proto__&series=x"
            )
            check(page)
