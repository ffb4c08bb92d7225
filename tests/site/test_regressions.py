"""The page of regressions: what an event says, what is folded away, and that its command shows it again."""

import json
import re
import shlex
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.in_process import call_main
from tests.site.conftest import Site
from tests.site.stores import GONE, OLDER, SILU
from tests.site.watch import Opener

pytestmark = pytest.mark.browser

PAGE = "regressions.html"


@pytest.fixture(scope="module")
def events(eventful: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((eventful.folder / "index.json").read_text())["events"]
    return found


def event(page: Page, operator: str) -> Locator:
    return page.locator("tbody[data-item]").filter(has_text=operator)


def command(page: Page, operator: str, verb: str) -> list[str]:
    """Return the words of a command that an event shows, split as a shell does."""
    event(page, operator).locator("summary").first.click()
    line = event(page, operator).locator("code:not([id$=issue])", has_text=f"pairbench {verb}")
    expect(line).to_be_visible()
    return shlex.split(line.inner_text())


def test_what_happened_is_there_newest_first(look: Opener, events: list[dict[str, Any]]) -> None:
    assert [(one["kind"], one["moved"][0]["series"]) for one in events if not one["accepted"]] == [
        ("new", f"suites/norm.py::{GONE}-baseline-eager"),
        ("newest", f"suites/norm.py::{SILU}-fused-eager"),
        ("failed", f"suites/norm.py::{GONE}-fused-eager"),
    ]
    assert OLDER not in {one["device_name"] for one in events}, "nothing happened on it"
    page = look(PAGE)
    expect(page.locator("tbody[data-item]:visible")).to_have_count(sum(not one["accepted"] for one in events))
    times = (
        page.locator("table").first.locator("tbody[data-item] time").evaluate_all("all => all.map(one => one.dateTime)")
    )
    assert times == sorted(times, reverse=True)


def test_the_command_shows_it_again(look: Opener, eventful: Site) -> None:
    line = command(look(PAGE), "silu", "compare")
    assert line[:2] == ["pairbench", "compare"]
    said = call_main(eventful.store, *line[1:], "--store", str(eventful.store))
    assert said.code == 1, said.err
    assert re.search(r"Regressions \(1\)\n(.*\n)*.*silu", said.out)


def test_an_address_unfolds_its_event(look: Opener, events: list[dict[str, Any]]) -> None:
    href = next(one["href"] for one in events if one["accepted"])
    page = look(href)
    expect(event(page, "rms_norm").get_by_role("table")).to_be_visible()


def test_filters_live_in_the_address(look: Opener) -> None:
    page = look(PAGE)
    page.get_by_role("combobox", name="Kind").select_option("failed")
    visible = page.locator("tbody[data-item]:visible")
    expect(visible).to_have_count(1)
    expect(visible).to_contain_text("gelu")
    page.reload()
    expect(visible).to_have_count(1)
    expect(page.get_by_role("combobox", name="Kind")).to_have_value("failed")
    page.get_by_role("button", name="Show all").first.click()
    page.get_by_role("searchbox").fill("silu")
    expect(visible).to_have_count(1)
    expect(visible).to_contain_text("silu")
