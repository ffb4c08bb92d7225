"""On a phone and on a desk: nothing makes a page wider than its window. The pictures are kept for people to look at."""

import itertools
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pairbench.site import paths
from tests.builders import DEVICE, run_id_of
from tests.site.conftest import Browse, Site
from tests.site.kinds import ALWAYS, EVENTFUL
from tests.site.stores import DRIVER

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDTHS = (375, 1440)
WIDER = """() => {
  const width = document.documentElement.clientWidth;
  return [document.documentElement.scrollWidth - width, [...document.querySelectorAll('main *')]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !node.parentElement.closest('.scroll, .chart'))
    .slice(0, 3).map((node) => node.outerHTML.slice(0, 200))];
}"""


CLIPPED = """(boxes) => [...document.querySelectorAll(boxes)]
    .filter((node) => node.checkVisibility())
    .filter((node) => Math.max(node.scrollWidth, ...[...node.querySelectorAll('.main-svg')].map((one) => one.getBoundingClientRect().width)) > node.clientWidth + 1)
    .map((node) => [node.className, node.getAttribute('aria-label'), node.scrollWidth, node.clientWidth])"""


def settle(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.evaluate("() => document.fonts.ready")


@pytest.mark.parametrize("kind", EVENTFUL)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(
    browse: Browse, eventful: Site, screenshots: Path, kind: str, width: int
) -> None:
    for scheme in ("light", "dark"):
        look = browse(eventful, viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = look(EVENTFUL[kind])
        settle(page)
        page.screenshot(path=screenshots / f"{kind}-{width}-{scheme}.png", full_page=True)
        for details in page.locator("summary:visible").all():
            details.click()
        beyond, widest = page.evaluate(WIDER)
        assert beyond <= 0, widest
        several = (
            ":not(:has(> table.heat, > table.operators))"  # which have as many columns as there are variants or GPUs
        )
        assert page.evaluate(CLIPPED, f".scroll{several}") == [], "columns out of sight"


def test_hostile_names_make_nothing_wider(browse: Browse, hostile: Site, screenshots: Path) -> None:
    look = browse(hostile, viewport={"width": 375, "height": 900})
    operators = sorted(f"operators/{file.name}" for file in (hostile.folder / "operators").glob("*.html"))
    runs = sorted(f"runs/{file.name}" for file in (hostile.folder / "runs").glob("*.html"))
    page = look()
    for path in (*ALWAYS, *operators[:6], runs[-1]):
        page.goto((hostile.folder / path).as_uri())
        settle(page)
        page.screenshot(path=screenshots / f"hostile-{Path(path).stem}-375.png")
        beyond, widest = page.evaluate(WIDER)
        assert beyond <= 0, (path, widest)


def test_a_phone_shows_cards(browse: Browse, eventful: Site) -> None:
    days = (("a", DRIVER - 1), ("b", DRIVER))  # whose environments differ
    pair = "&".join(f"{side}={paths.run_key(run_id_of(24 * day), DEVICE)}" for side, day in days)
    page = browse(eventful, viewport={"width": 375, "height": 900})(f"compare.html?{pair}")
    settle(page)
    page.get_by_text(re.compile("^The environment differs")).click()
    assert page.evaluate(CLIPPED, ".scroll") == []
    tables = page.locator("table.cards:visible").all()
    assert tables
    for table in tables:
        cell = table.locator("td[data-label]:visible").first
        assert cell.evaluate("node => getComputedStyle(node, '::before').content").strip('"')
        boxes = [row.bounding_box() for row in table.locator("> tbody > tr:visible:not(.more)").all()[:2]]
        for above, below in itertools.pairwise(boxes):
            assert above is not None and below is not None and above["y"] + above["height"] <= below["y"] + 1


def test_two_devices_fit_on_a_phone(browse: Browse, eventful: Site) -> None:
    page = browse(eventful, viewport={"width": 375, "height": 900})()
    box = page.locator(".scroll:has(table.operators)")
    assert box.evaluate("node => node.scrollWidth - node.clientWidth") <= 1, "but for rounding"


def test_a_phone_shows_the_first_numbers_of_the_heat_map(browse: Browse, eventful: Site) -> None:
    page = browse(eventful, viewport={"width": 375, "height": 900})(EVENTFUL["operator"])
    table = page.locator("table.heat").first
    table.scroll_into_view_if_needed()
    for cell in table.locator("tbody tr").first.locator("td").all()[:2]:
        box = cell.bounding_box()
        assert box is not None and box["x"] + box["width"] <= 375


def test_a_table_says_how_many_columns_are_out_of_sight(browse: Browse, eventful: Site) -> None:
    page = browse(eventful, viewport={"width": 720, "height": 900})(EVENTFUL["compare"])
    box = page.locator(".scroll:has(> table > thead)").first
    note = page.locator(".beyond:visible").first
    expect(note).to_have_text(re.compile(r"^[1-9]\d* more columns? to the right"))
    for one in page.locator(".scroll").all():
        one.evaluate("node => node.scrollTo(node.scrollWidth, 0)")
    expect(page.locator(".beyond:visible")).to_have_count(0)
    assert box.evaluate("node => node.previousElementSibling.className") == "note beyond"


@pytest.mark.parametrize("kind", EVENTFUL)
def test_print_clips_nothing_and_keeps_colours(browse: Browse, eventful: Site, screenshots: Path, kind: str) -> None:
    page = browse(eventful, viewport={"width": 700, "height": 990})(EVENTFUL[kind])
    page.emulate_media(media="print")
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".chart:visible:not(:has(.main-svg))")).to_have_count(0)
    clipped = page.evaluate(CLIPPED, ".scroll, .chart")
    page.screenshot(path=screenshots / f"{kind}-print.png", full_page=True)
    assert clipped == []
    for state in page.locator(".state:visible").all()[:3]:
        shape = state.evaluate("node => getComputedStyle(node, '::before').printColorAdjust")
        assert shape == "exact"
