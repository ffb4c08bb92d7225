"""The page of regressions: what an event says, what is folded away, and that its command shows it again."""

import json
import re
import shlex
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from pairbench.report import units
from tests.builders import DEVICE, sha
from tests.in_process import call_main
from tests.site.conftest import Site
from tests.site.stores import GONE, OLDER, REPOSITORY, RMS, RUNS, SILU, STEP
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


def test_an_event_says_where_and_how_much_and_unfolds(look: Opener, events: list[dict[str, Any]]) -> None:
    page = look(PAGE)
    (moved,) = next(one for one in events if one["kind"] == "newest")["moved"]
    row = event(page, "silu").get_by_role("row").first
    for text in (units.change(moved["change"]), units.change(moved["control"]), "code", DEVICE, "main"):
        expect(row).to_contain_text(text)
    before, after = sha(24 * (RUNS - 2)), sha(24 * (RUNS - 1))
    links = row.get_by_role("link").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert {
        f"{REPOSITORY}/commit/{before}",
        f"{REPOSITORY}/commit/{after}",
        f"{REPOSITORY}/compare/{before}...{after}",
    } <= set(links)
    inner = event(page, "silu").get_by_role("table")
    expect(inner).to_be_hidden()
    event(page, "silu").locator("summary").first.click()
    expect(inner).to_be_visible()
    ends = (units.duration(moved[name]) for name in ("before_ns", "after_ns"))
    for text in (SILU, "fused, eager", *ends, moved["reason"], "slower: fused_kernel"):
        expect(inner).to_contain_text(text)


def test_the_command_shows_it_again(look: Opener, eventful: Site) -> None:
    line = command(look(PAGE), "silu", "compare")
    assert line[:2] == ["pairbench", "compare"]
    said = call_main(eventful.store, *line[1:], "--store", str(eventful.store))
    assert said.code == 1, said.err
    assert re.search(r"Regressions \(1\)\n(.*\n)*.*silu", said.out)


def test_what_was_accepted_is_folded_away(look: Opener) -> None:
    page = look(PAGE)
    accepted = event(page, "rms_norm")
    expect(accepted).to_have_count(1)
    expect(accepted).to_be_hidden()
    page.get_by_text("Accepted on purpose").click()
    expect(accepted).to_be_visible()
    accepted.locator("summary").first.click()
    expect(accepted).to_contain_text("needs less memory")
    expect(accepted).to_contain_text(RMS[0])
    expect(accepted).to_contain_text(sha(24 * STEP)[:10])


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
