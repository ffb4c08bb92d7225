"""On a phone and on a desk: nothing makes a page wider than its window. The pictures are kept for people to look at."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.site.conftest import Site
from tests.site.kinds import ALWAYS, EVENTFUL
from tests.site.watch import Opener

pytestmark = pytest.mark.browser

WIDTHS = (375, 1440)
WIDER = """() => {
  const width = document.documentElement.clientWidth;
  return [document.documentElement.scrollWidth - width, [...document.querySelectorAll('main *')]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !node.parentElement.closest('.scroll, .chart'))
    .slice(0, 3).map((node) => node.outerHTML.slice(0, 200))];
}"""


def settle(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.evaluate("() => document.fonts.ready")


@pytest.mark.parametrize("kind", EVENTFUL)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(
    browse: Callable[..., Opener], eventful: Site, screenshots: Path, kind: str, width: int
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


def test_hostile_names_make_nothing_wider(browse: Callable[..., Opener], hostile: Site, screenshots: Path) -> None:
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
