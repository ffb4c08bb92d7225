"""Two runs side by side: what the page says of them is what the store holds."""

import re
import shlex

import pytest
from playwright.sync_api import Locator, Page, expect

from pairbench.model.record import Record
from pairbench.report import units
from pairbench.site import paths
from pairbench.site.payload import figures
from pairbench.store.reader import read_records
from tests.builders import DEVICE, run_id_of
from tests.site.conftest import Site
from tests.site.kinds import EVENTFUL, NEWEST
from tests.site.stores import DRIVER, GONE, OLDER, RMS, RUNS
from tests.site.watch import Opener

pytestmark = pytest.mark.browser

BEFORE = run_id_of(24 * (RUNS - 2))


def key(run_id: str, device: str = DEVICE) -> str:
    return paths.run_key(run_id, device)


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name=re.compile("^Series of both runs")).locator("tbody").get_by_role("row")


def row(page: Page, record: Record) -> Locator:
    cell = page.get_by_role("cell", name=record.implementation, exact=True)
    return rows(page).filter(has_text=record.case).filter(has=cell)


def stored(site: Site, run_id: str) -> dict[tuple[str | None, str | None], Record]:
    records = read_records(str(site.store), [run_id])[0]
    return {(record.case, record.implementation): record for record in records}


def choose(page: Page, before: str, after: str, device: str = DEVICE) -> None:
    page.get_by_role("combobox", name="Before").select_option(key(before, device))
    page.get_by_role("combobox", name="After").select_option(key(after, device))
    expect(page.locator("#judge")).to_contain_text(before)
    expect(page.locator("#judge")).to_contain_text(after)


def test_the_numbers_are_those_of_the_store(look: Opener, eventful: Site) -> None:
    page = look("compare.html")
    choose(page, run_id_of(24 * 3), NEWEST)
    before, after = stored(eventful, run_id_of(24 * 3)), stored(eventful, NEWEST)
    both = before.keys() & after.keys()
    assert len(both) == 9
    for key in both:
        one = row(page, after[key])
        expect(one).to_have_count(1)
        then, now = before[key].device_p50_ns, after[key].device_p50_ns
        assert then and now
        # Numbers come with five digits.
        rounded = [figures(value) or 0.0 for value in (then, now)]
        cells = one.get_by_role("cell").all_inner_texts()
        assert cells[4].splitlines()[0] == units.duration(rounded[0])
        assert cells[5].splitlines()[0] == units.duration(rounded[1])
        ends = (figures(after[key].device_p50_ns_low), figures(after[key].device_p50_ns_high))
        assert cells[5].splitlines()[1] == " to ".join(map(units.duration, ends))
        assert cells[6] == units.change(rounded[1] / rounded[0])


def test_what_is_new_missing_or_incomparable_is_named(look: Opener, eventful: Site) -> None:
    page = look(f"compare.html?a={key(BEFORE)}&b={key(NEWEST)}")
    expect(rows(page).filter(has_text=GONE)).to_have_count(2)
    for text in rows(page).filter(has_text=GONE).all_inner_texts():
        assert "new" in text
    page.get_by_role("combobox", name="Device").select_option(OLDER)
    expect(page.locator("#judge")).to_contain_text(run_id_of(49))
    offered = page.get_by_role("combobox", name="Before").locator("option")
    values = offered.evaluate_all("all => all.map(one => one.value)")
    assert sorted(values) == sorted(key(run_id_of(24 * day + 1), OLDER) for day in range(3)), "of that device alone"
    choose(page, run_id_of(25), run_id_of(49), OLDER)
    before = stored(eventful, run_id_of(25))
    expect(row(page, before[RMS[1], "naive"])).to_contain_text("missing")
    apart = row(page, before[RMS[0], "fused"])
    expect(apart).to_contain_text("incomparable")
    expect(apart).to_contain_text("definition")
    assert apart.get_by_role("cell").all_inner_texts()[6] == "", "no ratio of what cannot be compared"
    expect(row(page, before[RMS[0], "baseline"])).to_contain_text("compared")


def test_counts_come_first_and_differences_of_environment_are_folded(look: Opener, eventful: Site) -> None:
    page = look("compare.html")
    choose(page, run_id_of(24 * (DRIVER - 1)), run_id_of(24 * DRIVER))
    environment = page.get_by_role("region", name=re.compile("^Differences of environment"))
    expect(environment).to_be_hidden()
    page.get_by_text(re.compile("^The environment differs in driver")).click()
    changed = environment.get_by_role("row").filter(has_text="driver")
    assert changed.get_by_role("cell").all_inner_texts() == ["580.1", "580.2"]
    choose(page, BEFORE, NEWEST)
    expect(environment).to_be_hidden()
    told = page.locator("#moves").get_by_role("listitem")
    expect(told).to_have_count(2)
    expect(told.first).to_have_text("1 regression: P50 +30.1%")
    expect(told.last).to_contain_text("all 9 compared: geometric mean of P50 +")
    choose(page, NEWEST, BEFORE)
    expect(page.get_by_text("The ratios here are no verdicts")).to_be_visible()
    command = ["pairbench", "compare", NEWEST, BEFORE, "--store", str(eventful.store)]
    assert shlex.split(page.locator("#judge").inner_text()) == command
    expect(told.last).to_have_text(re.compile(r"^9 compared: geometric mean of P50 -\d\.\d+%, -23\.1% to "))
    above, below = told.first.bounding_box(), rows(page).first.bounding_box()
    assert above and below and above["y"] < below["y"]


def test_the_choice_lives_in_the_address(look: Opener) -> None:
    page = look("compare.html")
    choose(page, run_id_of(24 * 4), run_id_of(24 * 9))
    text = page.locator("#tally").inner_text()
    for other in (page, page.context.new_page()):
        other.goto(page.url)
        expect(other.get_by_role("combobox", name="Before")).to_have_value(key(run_id_of(24 * 4)))
        expect(other.get_by_role("combobox", name="After")).to_have_value(key(run_id_of(24 * 9)))
        expect(other.locator("#tally")).to_have_text(text)


def test_sides_can_be_swapped_and_only_what_differs_be_shown(look: Opener) -> None:
    page = look(f"compare.html?a={key(BEFORE)}&b={key(NEWEST)}")
    expect(rows(page).filter(has_text="+30.1%")).to_have_count(1)
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("combobox", name="Before")).to_have_value(key(NEWEST))
    expect(rows(page).filter(has_text="-23.1%")).to_have_count(1)
    expect(rows(page)).to_have_count(11)
    page.get_by_role("checkbox", name="only what differs").check()
    expect(rows(page)).to_have_count(3)
    assert all("silu" in text or "gelu" in text for text in rows(page).all_inner_texts())
    page.reload()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("searchbox").fill("silu")
    expect(rows(page)).to_have_count(1)


def test_a_run_leads_here(look: Opener) -> None:
    page = look(EVENTFUL["run"])
    page.get_by_role("link", name="side by side with an earlier run").click()
    expect(page.get_by_role("combobox", name="After")).to_have_value(key(NEWEST))
    expect(rows(page).first).to_be_visible()


def test_a_run_beside_itself_is_refused(look: Opener) -> None:
    page = look("compare.html")
    page.get_by_role("combobox", name="Before").select_option(key(NEWEST))
    page.get_by_role("combobox", name="After").select_option(key(NEWEST))
    expect(page.get_by_text("one and the same run")).to_be_visible()
    expect(page.locator("#result")).to_be_hidden()
