"""300 operators: the answer on the first screen, families that fold nothing away, and a page that a phone can show."""

import re

import pytest
from playwright.sync_api import expect

from tests.site import planted
from tests.site.conftest import Browse, Build, Site
from tests.site.planted import H200
from tests.site.watch import Opener

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def made(build: Build) -> Site:
    def many(store: "object") -> None:
        folder = store / "store"  # type: ignore[operator]
        folder.mkdir()
        planted.many(folder)
        (store / "pyproject.toml").write_text('[tool.pairbench]\nself_tests = ["selftest/*"]\n')  # type: ignore[operator]

    return build(many, inside="store")


def test_the_first_screen_has_the_answer(see: Opener) -> None:
    page = see()
    lead = page.locator(".lead")
    told = r"297 operators on NVIDIA H200:\s+best variant faster in \d+ of 297 groups \(shown\), slower in \d+; median \d\.\d+x \(device, headline tier\)"
    expect(lead).to_have_text(re.compile(told))
    # The night first, then what needs attention, then the speedups.
    boxes = [page.locator(one).bounding_box() for one in (".night", "#attention", ".lead")]
    tops = [box["y"] for box in boxes if box is not None]
    assert len(tops) == 3 and tops == sorted(tops)
    assert tops[0] < 200 and tops[1] < 400 and tops[2] < 700, tops
    expect(page.locator(".headline > .strip")).to_be_visible()
    expect(page.get_by_text("Far from all others:")).to_contain_text(re.compile(r"operator_007\s+6,?\d\d\dx"))
    expect(page.get_by_text("as self-tests: selftest/planted.py")).to_be_visible()


def test_wins_losses_and_families(see: Opener) -> None:
    page = see()
    page.get_by_text("Largest wins, losses").click()
    expect(page.locator("dt", has_text="Losses")).to_be_visible()
    rows = page.get_by_role("table").filter(has_text="Families of suites").locator("tbody tr")
    expect(rows).to_have_count(len(planted.FAMILIES))
    strips = rows.locator(".strip.mini svg")
    expect(strips).to_have_count(len(planted.FAMILIES))
    expect(strips.first.locator("path.dot")).to_have_count(30)
    optimizer = rows.filter(has_text="optimizer")
    expect(optimizer).to_contain_text(re.compile(r"far from the others: operator_007\s+6,?\d\d\dx"))
    rows.first.get_by_role("link").first.click()
    expect(page.get_by_role("combobox", name="Family")).to_have_value(planted.FAMILIES[0])
    expect(page.locator("[data-count=overview]")).to_have_text("30 of 300 operators")


@pytest.mark.parametrize("width", [375, 1440])
def test_operators_stand_under_their_families(browse: Browse, made: Site, width: int) -> None:
    page = browse(made, viewport={"width": width, "height": 900})()
    heads = page.locator("tbody[data-group]:visible")
    expect(heads).to_have_count(len(planted.FAMILIES) + 1)
    first = page.locator("tbody[data-item]:visible").first
    expect(first).to_contain_text("operator_000")
    height = page.evaluate("() => document.documentElement.scrollHeight")
    assert height < 4 * 900, "the table scrolls in a box of its own"
    box = first.bounding_box()
    assert box is not None and box["height"] < 90
    speedup = first.locator("td.n").first.bounding_box()
    assert speedup is not None and speedup["x"] + speedup["width"] <= width, "nobody scrolls sideways for the answer"
    table = page.locator("table.operators")
    assert "eager" not in table.locator("> thead").inner_text(), "what never varies has no column"
    page.get_by_role("button", name=re.compile("Speedup")).first.click()
    expect(page.locator("tbody[data-item]").first).to_contain_text("operator_007")
    expect(heads).to_have_count(0)
    assert H200 in page.locator(".lead").inner_text()
