"""The overview's table: sorting and filtering by hand, by address, and without scripts."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.builders import DEVICE
from tests.site.conftest import Site
from tests.site.stores import OLDER
from tests.site.watch import Opener

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def rows(eventful: Site) -> list[dict[str, Any]]:
    """Return what the overview has to show, from the site's twin for programs."""
    found: list[dict[str, Any]] = json.loads((eventful.folder / "index.json").read_text())["rows"]
    return found


def shown(page: Page) -> Locator:
    """Return the rows that can be seen."""
    return page.locator("table").first.locator("tbody").get_by_role("row")


def column(page: Page, name: str) -> list[str]:
    """Return the texts of a column as far as rows can be seen."""
    heads = page.locator("table").first.get_by_role("columnheader").all_inner_texts()
    place = next(number for number, text in enumerate(heads) if text.strip().startswith(name))
    return [row.locator("th, td").nth(place).inner_text().strip().partition("\n")[0] for row in shown(page).all()]


def head(page: Page, name: str) -> Locator:
    return page.get_by_role("columnheader", name=re.compile(f"^{name}"))


def state(page: Page) -> dict[str, list[str]]:
    """Return what stands in the page's address, whether after ? or after #."""
    parts = urlsplit(page.url)
    return parse_qs(parts.query) | parse_qs(parts.fragment)


def test_every_row_is_there(look: Opener, rows: list[dict[str, Any]]) -> None:
    page = look()
    expect(shown(page)).to_have_count(len(rows))
    assert sorted(column(page, "Operator")) == sorted(row["operator"] for row in rows)
    assert {row["operator"] for row in rows} == {"rms_norm", "silu", "gelu"}


def test_rows_say_what_was_measured(look: Opener, rows: list[dict[str, Any]]) -> None:
    page = look()
    row = next(row for row in rows if row["operator"] == "rms_norm" and row["device_name"] == DEVICE)
    text = shown(page).filter(has_text="rms_norm").filter(has_text=DEVICE).inner_text()
    estimate, low, high = row["speedup"]
    for value in (estimate, low, high, row["least"], row["most"]):
        assert f"{value:.3f}x" in text
    assert "6 → 1" in text and row["variant"] in text and row["state"] in text


@pytest.mark.parametrize(
    ("label", "choice", "key"),
    [("Device", OLDER, "device_name"), ("Dtype", "float32", "dtype"), ("State", "regression", "state")],
)
def test_a_choice_filters(look: Opener, rows: list[dict[str, Any]], label: str, choice: str, key: str) -> None:
    page = look()
    page.get_by_role("combobox", name=label).select_option(choice)
    wanted = [row for row in rows if row[key] == choice]
    assert 0 < len(wanted) < len(rows)
    expect(shown(page)).to_have_count(len(wanted))
    expect(page.get_by_role("status")).to_have_text(f"{len(wanted)} of {len(rows)} rows")


def test_text_filters_by_every_word(look: Opener) -> None:
    page = look()
    page.get_by_role("searchbox", name="Text").fill("A100 RMS")
    expect(shown(page)).to_have_count(1)
    assert column(page, "Device") == [OLDER]


def test_nothing_fits(look: Opener, rows: list[dict[str, Any]]) -> None:
    page = look()
    page.get_by_role("searchbox", name="Text").fill("no such operator")
    expect(page.get_by_text("No rows like that")).to_be_visible()
    page.get_by_role("cell", name="No rows like that").get_by_role("button", name="Show all").click()
    expect(shown(page)).to_have_count(len(rows))


def test_a_column_sorts_both_ways(look: Opener) -> None:
    page = look()
    before = column(page, "Speedup")
    seen = []
    for direction in ("descending", "ascending"):
        head(page, "Speedup").get_by_role("button").click()
        expect(head(page, "Speedup")).to_have_attribute("aria-sort", direction)
        texts = column(page, "Speedup")
        numbers = [float(text.rstrip("x")) for text in texts if text]
        assert numbers == sorted(numbers, reverse=direction == "descending") and len(set(numbers)) > 1
        assert "" not in texts[: len(numbers)], "what has no value comes last"
        seen.append(texts)
    assert seen[0] != seen[1]
    head(page, "Speedup").get_by_role("button").click()
    assert column(page, "Speedup") == before


def narrowed(page: Page) -> tuple[list[str], list[str]]:
    """Filter and sort by hand, and return the devices and the speedups in the order shown."""
    page.get_by_role("searchbox", name="Text").fill("rms")
    page.get_by_role("combobox", name="Dtype").select_option("bfloat16")
    head(page, "Device").get_by_role("button").click()
    expect(head(page, "Device")).to_have_attribute("aria-sort", "ascending")
    assert column(page, "Device") == [OLDER, DEVICE]
    return column(page, "Device"), column(page, "Speedup")


def test_the_address_holds_the_view(look: Opener) -> None:
    page = look()
    narrowed(page)
    assert state(page) == {"q": ["rms"], "dtype": ["bfloat16"], "sort": ["device"]}
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("searchbox", name="Text")).to_have_value("")
    expect(page).not_to_have_url(re.compile("q=rms"))


def same(page: Page, before: tuple[list[str], list[str]]) -> None:
    expect(page.get_by_role("searchbox", name="Text")).to_have_value("rms")
    expect(page.get_by_role("combobox", name="Dtype")).to_have_value("bfloat16")
    expect(head(page, "Device")).to_have_attribute("aria-sort", "ascending")
    assert (column(page, "Device"), column(page, "Speedup")) == before


def test_the_view_survives_a_reload(look: Opener) -> None:
    page = look()
    before = narrowed(page)
    page.reload()
    same(page, before)


def test_the_view_is_there_when_one_comes_back(look: Opener) -> None:
    page = look()
    before = narrowed(page)
    shown(page).first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("rms_norm")
    page.go_back()
    same(page, before)


def test_a_copied_address_shows_the_view(look: Opener) -> None:
    page = look()
    before = narrowed(page)
    other = page.context.new_page()
    other.goto(page.url)
    same(other, before)


def test_what_needs_attention_leads_to_its_events(look: Opener) -> None:
    page = look()
    page.get_by_role("link", name="1 failed").click()
    expect(page.get_by_role("combobox", name="Outcome")).to_have_value("failed")
    expect(page.locator("tbody[data-item]:visible")).to_have_count(1)


def test_without_scripts_the_table_is_all_there(
    browse: Callable[..., Opener], eventful: Site, rows: list[dict[str, Any]]
) -> None:
    page = browse(eventful, java_script_enabled=False)()
    expect(shown(page)).to_have_count(len(rows))
    expect(page.get_by_role("searchbox", name="Text")).to_be_hidden()
