"""The overview's table: sorting and filtering by hand, by address, and without scripts."""

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.builders import DEVICE
from tests.site.conftest import Browse, Site
from tests.site.stores import OLDER
from tests.site.watch import Opener

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def rows(eventful: Site) -> list[dict[str, Any]]:
    """Return what the overview has to show, from the site's twin for programs."""
    found: list[dict[str, Any]] = json.loads((eventful.folder / "index.json").read_text())["rows"]
    return found


def shown(page: Page) -> Locator:
    return page.locator("table.operators > tbody[data-item]:visible")


def column(page: Page, name: str) -> list[str]:
    """Return the first lines of a column as far as operators can be seen."""
    heads = page.locator("table.operators > thead th").all_inner_texts()
    place = next(number for number, text in enumerate(heads) if text.strip().startswith(name))
    cells = shown(page).evaluate_all("(all, place) => all.map((one) => one.rows[0].cells[place].innerText)", place)
    return [str(text).strip().partition("\n")[0] for text in cells]


def head(page: Page, name: str) -> Locator:
    return page.locator("table.operators > thead").get_by_role("columnheader", name=re.compile(name))


def state(page: Page) -> dict[str, list[str]]:
    """Return what stands in the page's address, whether after ? or after #."""
    parts = urlsplit(page.url)
    return parse_qs(parts.query) | parse_qs(parts.fragment)


def of(rows: list[dict[str, Any]], operator: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["operator"] == operator]


def test_a_row_unfolds_into_its_groups(look: Opener, rows: list[dict[str, Any]]) -> None:
    page = look()
    one = shown(page).filter(has_text="rms_norm")
    groups = one.locator("tr[data-part]")
    expect(groups.first).to_be_hidden()
    one.get_by_role("button", name="Groups of rms_norm").click()
    expect(groups).to_have_count(len(of(rows, "rms_norm")))
    for row in of(rows, "rms_norm"):
        group = groups.filter(has_text=row["device_name"])
        estimate, low, high = row["speedup"]
        for value in (estimate, low, high, row["least"], row["most"]):
            expect(group).to_contain_text(f"{value:.3f}x")


@pytest.mark.parametrize(("label", "choice", "key"), [("Device", OLDER, "device_name"), ("Dtype", "float32", "dtype")])
def test_a_choice_filters_and_shows_the_groups_it_is_about(
    look: Opener, rows: list[dict[str, Any]], label: str, choice: str, key: str
) -> None:
    page = look()
    page.get_by_role("combobox", name=label).select_option(choice)
    wanted = {row["operator"] for row in rows if row[key] == choice}
    expect(shown(page)).to_have_count(len(wanted))
    expect(page.locator("[data-count=overview]")).to_have_text(f"{len(wanted)} of 3 operators")
    expect(page.locator("tr[data-part]:visible")).to_have_count(sum(row[key] == choice for row in rows))


def test_text_filters_by_every_word_and_says_where_nothing_fits(look: Opener) -> None:
    page = look()
    page.get_by_role("searchbox", name="Text").fill("A100 RMS")
    expect(shown(page)).to_have_count(1)
    page.get_by_role("searchbox", name="Text").fill("no such operator")
    expect(page.get_by_text("No operators like that")).to_be_visible()
    page.get_by_role("cell", name="No operators like that").get_by_role("button", name="Show all").click()
    expect(shown(page)).to_have_count(3)


def test_a_column_sorts_both_ways(look: Opener) -> None:
    page = look()
    name = f"Speedup.*{DEVICE}"
    place = f"Speedup\n{DEVICE}"
    before = column(page, place)
    seen = []
    for direction in ("descending", "ascending"):
        head(page, name).get_by_role("button").click()
        expect(head(page, name)).to_have_attribute("aria-sort", direction)
        texts = column(page, place)
        numbers = [float(text.rstrip("x")) for text in texts if text.endswith("x")]
        assert numbers == sorted(numbers, reverse=direction == "descending") and len(set(numbers)) > 1
        assert all(text.endswith("x") for text in texts[: len(numbers)]), "what has no value comes last"
        seen.append(texts)
    assert seen[0] != seen[1]
    head(page, name).get_by_role("button").click()
    assert column(page, place) == before


def narrowed(page: Page) -> list[str]:
    page.get_by_role("searchbox", name="Text").fill("norm.py")
    page.get_by_role("combobox", name="Dtype").select_option("float32")
    head(page, "Operator").get_by_role("button").click()
    expect(head(page, "Operator")).to_have_attribute("aria-sort", "ascending")
    return column(page, "Operator")


def same(page: Page, before: list[str]) -> None:
    expect(page.get_by_role("searchbox", name="Text")).to_have_value("norm.py")
    expect(page.get_by_role("combobox", name="Dtype")).to_have_value("float32")
    expect(head(page, "Operator")).to_have_attribute("aria-sort", "ascending")
    assert column(page, "Operator") == before


def test_the_address_holds_the_view_through_a_reload_a_way_back_and_a_copy(look: Opener) -> None:
    page = look()
    before = narrowed(page)
    assert state(page) == {"q": ["norm.py"], "dtype": ["float32"], "sort": ["operator"]}
    page.reload()
    same(page, before)
    shown(page).first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("gelu")
    page.go_back()
    same(page, before)
    other = page.context.new_page()
    other.goto(page.url)
    same(other, before)
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("searchbox", name="Text")).to_have_value("")
    expect(page).not_to_have_url(re.compile("q=norm"))


def test_what_needs_attention_leads_to_its_events(look: Opener) -> None:
    page = look()
    page.get_by_role("link", name="1 failed").click()
    expect(page.get_by_role("combobox", name="Outcome")).to_have_value("failed")
    expect(page.locator("tbody[data-item]:visible")).to_have_count(1)


def test_without_scripts_the_table_is_all_there(browse: Browse, eventful: Site) -> None:
    page = browse(eventful, java_script_enabled=False)()
    expect(shown(page)).to_have_count(3)
    expect(page.get_by_role("searchbox", name="Text")).to_be_hidden()
