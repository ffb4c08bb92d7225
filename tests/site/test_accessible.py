"""axe-core finds nothing serious on any kind of page, light or dark, with all that unfolds unfolded."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.site.conftest import Browse, Site
from tests.site.kinds import ALWAYS, EVENTFUL
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SERIOUS = ("serious", "critical")
OPTIONS = {"resultTypes": ["violations"], "preload": False}
"""Preloading would fetch the style sheets, which a page opened from disk may not."""


def findings(page: Page) -> list[str]:
    """Return what axe-core finds serious, a line each."""
    violations: list[dict[str, Any]] = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in violations
        if one["impact"] in SERIOUS
        for node in one["nodes"][:5]
    ]


@pytest.mark.parametrize("kind", EVENTFUL)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_page_and_its_tables(browse: Browse, eventful: Site, kind: str, scheme: str) -> None:
    page = browse(eventful, color_scheme=scheme)(EVENTFUL[kind])
    page.wait_for_load_state("networkidle")
    for details in page.locator("summary:visible").all():
        details.click()
    assert findings(page) == []
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for table in page.locator("table").all():
        assert table.locator("> caption").count() == 1
        assert table.locator("> thead th:not([scope=col])").count() == 0


@pytest.mark.parametrize("site", ["empty", "single", "failures"])
def test_pages_with_little_on_them(browse: Browse, request: pytest.FixtureRequest, site: str) -> None:
    look = browse(request.getfixturevalue(site))
    found = {path: findings(look(path)) for path in ALWAYS}
    assert not any(found.values()), found


def test_a_serious_finding_is_found(look: Opener) -> None:
    page = look()
    page.evaluate("() => document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"data:,\"><input>')")
    found = " ".join(findings(page))
    assert "image-alt" in found and "label" in found


def test_a_state_is_told_by_a_word(look: Opener) -> None:
    states = look().locator("main .state")
    assert states.count() > 5
    assert all(text.strip() for text in states.all_inner_texts())
