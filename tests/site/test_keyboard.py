"""Everything can be reached and used with the keyboard alone, and one sees where one is."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.site.kinds import EVENTFUL, OPERATOR
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST = 200
"""Stops that a page of a few operators may have."""
RING = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
}"""


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until something is focused; that it is visibly so is part of it."""
    expect(wanted).to_have_count(1)
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if wanted.evaluate("node => node === document.activeElement"):
            assert page.evaluate(RING), f"one cannot see that {wanted} has the focus"
            return
    pytest.fail(f"Tab does not reach {wanted}")


def test_the_first_stop_skips_what_all_pages_have(look: Opener) -> None:
    page = look()
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


@pytest.mark.parametrize("kind", EVENTFUL)
def test_every_stop_can_be_seen(look: Opener, kind: str) -> None:
    page = look(EVENTFUL[kind])
    page.wait_for_load_state("networkidle")
    unseen, stops = [], 0
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement === document.body"):
            break
        stops += 1
        if not page.evaluate(RING):
            unseen.append(page.evaluate("() => document.activeElement.outerHTML.slice(0, 200)"))
    assert stops > 5
    assert unseen == []


def test_filter(look: Opener) -> None:
    page = look()
    tab_to(page, page.get_by_role("searchbox", name="Text"))
    page.keyboard.type("silu")
    rows = page.locator("table.operators > tbody[data-item]:visible")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("silu")
    tab_to(page, page.get_by_role("button", name="Show all"))
    page.keyboard.press("Enter")
    expect(rows).to_have_count(3)
    tab_to(page, page.get_by_role("combobox", name="State"))
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-count=overview]")).to_contain_text("of 3 operators")


def test_sort(look: Opener) -> None:
    page = look()
    head = page.get_by_role("columnheader", name=re.compile("^Speedup")).first
    tab_to(page, head.get_by_role("button"))
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    page.keyboard.press(" ")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(head.get_by_role("button")).to_be_focused()


def test_expand_an_event(look: Opener) -> None:
    page = look("regressions.html")
    event = page.locator("tbody[data-item]").filter(has_text="silu")
    tab_to(page, event.locator("summary").first)
    page.keyboard.press("Enter")
    expect(event.get_by_role("table")).to_be_visible()
    tab_to(page, event.get_by_role("button", name="Copy the command").first)
    page.keyboard.press("Enter")
    expect(event.get_by_role("button", name="Copy the command").first).to_have_text(re.compile("Copied|Selected"))


def test_choose_a_series_and_toggle_its_chart(look: Opener) -> None:
    page = look(OPERATOR)
    region = page.get_by_role("region", name=re.compile("^All numbers"))
    tab_to(page, region.get_by_role("link", name="naive", exact=True).first)
    page.keyboard.press("Enter")
    expect(
        page.locator("#choose").get_by_role("combobox", name="Implementation").locator("option:checked")
    ).to_have_text("naive")
    button = page.locator("button[data-of=trend]").filter(has_text="Logarithmic")
    tab_to(page, button)
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")


def test_a_wide_table_scrolls(look: Opener) -> None:
    page = look()
    page.set_viewport_size({"width": 375, "height": 700})
    region = page.get_by_role("region", name=re.compile("^Operators"))
    tab_to(page, region)
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("node => node.scrollLeft > 0", arg=region.element_handle())


def test_compare(look: Opener) -> None:
    page = look("compare.html")
    before = page.get_by_role("combobox", name="Before")
    tab_to(page, before)
    chosen = before.input_value()
    page.keyboard.press("ArrowDown")
    expect(before).not_to_have_value(chosen)
    chosen = before.locator("option:checked").inner_text().partition(",")[0]
    expect(page.locator("#judge")).to_contain_text(f"compare {chosen} ")


def test_colours(look: Opener) -> None:
    page = look()
    tab_to(page, page.get_by_role("button", name="Dark colours"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Light colours")).to_be_focused()


@pytest.mark.parametrize("path", ["index.html", "regressions.html", "runs.html", OPERATOR])
def test_one_can_skip_to_the_table(look: Opener, path: str) -> None:
    page = look(path)
    link = page.get_by_role("link", name="Skip to the table")
    tab_to(page, link)
    page.keyboard.press("Enter")
    expect(page.locator(str(link.get_attribute("href")))).to_be_in_viewport()
