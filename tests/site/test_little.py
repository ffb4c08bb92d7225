"""Stores with little or nothing in them: every page is there, opens, and says what to do next."""

import pytest
from playwright.sync_api import Page, expect

from tests.site.conftest import Browse, Site
from tests.site.kinds import ALWAYS

pytestmark = pytest.mark.browser


def commands(page: Page) -> list[str]:
    return [text for text in page.locator("main code:visible").all_inner_texts() if text.startswith("pairbench ")]


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_nothing_to_show_is_a_site_that_says_so(browse: Browse, request: pytest.FixtureRequest, name: str) -> None:
    site: Site = request.getfixturevalue(name)
    assert site.stdout == f"{site.folder / 'index.html'}\n"
    assert site.stderr.startswith("pairbench: ") and str(site.store) in site.stderr.splitlines()[0]
    look = browse(site)
    for path in ALWAYS:
        page = look(path)
        expect(page.get_by_text("The store holds no run.")).to_be_visible()
        assert {"pairbench run", "pairbench dashboard"} <= set(commands(page))


def test_one_run(browse: Browse, single: Site) -> None:
    page = browse(single)()
    assert {"pairbench run", "pairbench compare"} <= set(commands(page))
    expect(page.get_by_role("row").filter(has_text="rms_norm")).to_contain_text("new")
    page.get_by_role("link", name="rms_norm").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("rms_norm")
    expect(page.locator("#trend-says")).to_contain_text("1 run")


def test_only_failures(browse: Browse, failures: Site) -> None:
    look = browse(failures)
    page = look()
    assert {"pairbench verify", "pairbench doctor"} <= set(commands(page))
    page.get_by_role("link", name="rms_norm").first.click()
    expect(page.get_by_role("main")).to_contain_text("no kernel image is available")
    expect(page.locator(".chart:visible")).to_have_count(0)
    page = look()
    page.get_by_role("link", name="the newest run").click()
    expect(page.get_by_role("row").filter(has_text="no kernel image is available").first).to_be_visible()
