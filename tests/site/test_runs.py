"""The list of runs, and a run's page: what was recorded is what is shown."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from pairbench.model.record import Record
from pairbench.report import units
from pairbench.site import paths
from pairbench.site.payload import figures
from pairbench.store.reader import read_records
from tests.builders import DEVICE, run_id_of, sha
from tests.site.conftest import Site
from tests.site.kinds import NEWEST
from tests.site.stores import GONE, OLDER, REPOSITORY, RUNS
from tests.site.watch import Opener

pytestmark = pytest.mark.browser


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name=re.compile("^Runs")).locator("tbody").get_by_role("row")


def records(site: Site, run_id: str) -> list[Record]:
    return list(read_records(str(site.store), [run_id])[0])


def test_the_list_filters_and_keeps_it(look: Opener) -> None:
    page = look("runs.html")
    page.get_by_role("combobox", name="Branch").select_option("topic")
    expect(rows(page)).to_have_count(3)
    assert all(OLDER in text for text in rows(page).all_inner_texts())
    page.reload()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("combobox", name="Branch").select_option("")
    page.get_by_role("searchbox").fill(sha(24 * 7)[:9])
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text(run_id_of(24 * 7))


def test_every_run_is_listed_newest_first_with_its_verdicts_and_room_for_its_commit(look: Opener) -> None:
    page = look("runs.html")
    expect(rows(page)).to_have_count(RUNS + 3)
    expect(rows(page).first).to_contain_text(NEWEST)
    expect(rows(page).first).to_contain_text("1 failed")
    verdicts = rows(page).first.get_by_role("link", name=re.compile("regression"))
    assert re.findall(r"\d+\s+\w+", verdicts.inner_text()) == ["1\xa0regression", "1\xa0failed", "1\xa0new"]
    expect(rows(page).nth(1).get_by_role("link", name="no change")).to_be_visible()
    for width in (1440, 375):
        page.set_viewport_size({"width": width, "height": 900})
        box = rows(page).first.locator("td.commit").bounding_box()
        assert box and box["width"] > 150
    page.set_viewport_size({"width": 1440, "height": 900})
    verdicts.click()
    assert page.url.endswith("#changed")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Run {NEWEST}")
    commit = page.get_by_role("link", name=sha(24 * (RUNS - 1))[:10])
    expect(commit).to_have_attribute("href", f"{REPOSITORY}/commit/{sha(24 * (RUNS - 1))}")


def test_new_series_of_a_run_are_folded_by_operator(look: Opener) -> None:
    page = look(paths.run_page(NEWEST, DEVICE))
    expect(page.get_by_text("1 regression: P50 +30.1%")).to_be_visible()
    expect(page.get_by_text("all 9 compared: geometric mean of P50 +")).to_be_visible()
    new, case = page.get_by_text("new: gelu, 1 series"), page.locator(".added").get_by_role("link", name=GONE)
    expect(case).to_be_hidden()
    new.click()
    expect(case).to_be_visible()


def test_a_run_has_the_numbers_of_the_store(look: Opener, eventful: Site) -> None:
    page = look(paths.run_page(NEWEST, DEVICE))
    table = page.get_by_role("region", name=re.compile("^Series of this run")).locator("tbody")
    stored = records(eventful, NEWEST)
    expect(table.get_by_role("row")).to_have_count(len(stored))
    failed = page.get_by_role("row").filter(has_text=GONE).filter(has_text="died of SIGSEGV in round 2")
    expect(failed.first).to_contain_text("failed")
    for record in stored:
        row = (
            table.get_by_role("row")
            .filter(has_text=record.case)
            .filter(has=page.get_by_role("cell", name=record.implementation, exact=True))
        )
        # Numbers come with five digits, of which four are shown.
        for value in (record.device_p50_ns, record.device_p95_ns, record.call_p50_ns):
            expect(row).to_contain_text(units.duration(figures(value)))
        expect(row).to_contain_text(units.ratio(figures(record.speedup)))
        expect(row).to_contain_text(record.status)
