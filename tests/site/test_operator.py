"""An operator's page: its numbers are the store's, and one series can be chosen everywhere and is kept in the address."""

import re
from urllib.parse import unquote

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from pairbench.model.record import Series
from pairbench.store.reader import latency_samples
from tests.builders import DEVICE, SUITE, sha
from tests.site.conftest import Site
from tests.site.kinds import NEWEST, OPERATOR
from tests.site.stores import RMS, RUNS, STEP
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def numbers(page: Page) -> Locator:
    return page.get_by_role("region", name=re.compile("^All numbers")).locator("tbody").get_by_role("row")


def row(page: Page, tokens: int, implementation: str) -> Locator:
    return (
        numbers(page)
        .filter(has_text=f"tokens={tokens}")
        .filter(has=page.get_by_role("link", name=implementation, exact=True))
    )


def chosen(page: Page) -> str:
    case = page.get_by_role("combobox", name="Case").locator("option:checked").inner_text()
    return f"{case} {page.locator('#choose').get_by_role('combobox', name='Implementation').locator('option:checked').inner_text()}"


def test_where_it_loses_is_told_by_words(look: Opener) -> None:
    page = look(OPERATOR)
    page.get_by_role("checkbox", name="only where it loses").check()
    expect(numbers(page)).to_have_count(2)
    for text in numbers(page).all_inner_texts():
        assert text.startswith("naive") and "slower" in text
    page.reload()
    expect(numbers(page)).to_have_count(2)


def test_the_table_sorts(look: Opener) -> None:
    page = look(OPERATOR)
    head = page.get_by_role("columnheader", name=re.compile("^P50")).first
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    values = [float(row.get_by_role("cell").nth(1).inner_text().split()[0]) for row in numbers(page).all()]
    assert values == sorted(values, reverse=True) and len(set(values)) > 2
    before = numbers(look(OPERATOR)).all_inner_texts()
    page.get_by_role("button", name="Case").click()
    assert numbers(page).all_inner_texts() == before
    page.get_by_role("button", name="Case").click()
    assert numbers(page).all_inner_texts() == before[::-1]


def test_what_is_shown_sorts_by_its_unit(look: Opener) -> None:
    shown = {"999.9 us": 999_900, "1.001 ms": 1_001_000, "1.5 GiB": 1.5 * 2**30, "1,004": 1_004, "0.507x": 0.507}
    found = look(OPERATOR).evaluate("(texts) => texts.map(window.pairbench.units.value)", [*shown, "24%", "timeout"])
    assert found[:-1] == pytest.approx([*shown.values(), 24]) and found[-1] != found[-1]


def test_controls_choose_a_series(look: Opener) -> None:
    page = look(OPERATOR)
    expect(page.locator("#trend-says")).to_contain_text("30 runs")
    assert chosen(page) == "tokens=4096 fused", "the best variant"
    page.get_by_role("combobox", name="Case").select_option("tokens=1024")
    assert chosen(page) == "tokens=1024 fused"
    expect(page.locator("#trend-says")).to_contain_text("Moved once")
    expect(page.locator("#chosen")).to_have_text(RMS[0])
    page.locator("#choose").get_by_role("combobox", name="Implementation").select_option("naive")
    assert chosen(page) == "tokens=1024 naive"
    expect(page.locator("#trend-says")).to_contain_text("No change of level")


def test_a_row_chooses_a_series_and_the_choice_lives_in_the_address(look: Opener) -> None:
    page = look(OPERATOR)
    row(page, 1024, "naive").get_by_role("link").click()
    heading = page.get_by_role("heading", name="One case over time")
    expect(heading).to_be_focused()
    expect(heading).to_be_in_viewport()
    assert "series=" in unquote(page.url.partition("#")[2])
    page.reload()
    other = page.context.new_page()
    other.goto(page.url)
    page.get_by_role("link", name="Runs", exact=True).click()
    page.go_back()
    for one in (page, other):
        expect(one.locator("#chosen")).to_have_text(RMS[0])
        assert chosen(one) == "tokens=1024 naive"


def test_the_trend_is_there_as_a_table(look: Opener) -> None:
    page = look(OPERATOR)
    page.get_by_role("combobox", name="Case").select_option("tokens=1024")
    page.get_by_text("Trend as a table").click()
    table = page.get_by_role("region", name="Runs of this series, newest first")
    expect(table.locator("tbody").get_by_role("row")).to_have_count(RUNS)
    moved = table.get_by_role("row").filter(has_text=sha(24 * STEP)[:7])
    expect(moved).to_contain_text("+10.1")


def test_samples_and_kernels_are_there_as_tables(look: Opener, eventful: Site) -> None:
    page = look(OPERATOR)
    page.get_by_text("Samples of the newest run as a table").click()
    samples = latency_samples(str(eventful.store), NEWEST).value
    for implementation in ("baseline", "fused", "naive"):
        series = Series(device_name=DEVICE, suite=SUITE, case=RMS[1], implementation=implementation, mode="eager")
        told = (
            page.get_by_role("region", name=re.compile("^Latencies of the newest run"))
            .get_by_role("row")
            .filter(has_text=implementation)
        )
        median = float(np.median(samples[series]["device"]))
        value = told.get_by_role("cell").nth(3).inner_text()
        assert value.endswith(" us") and float(value.split()[0]) == pytest.approx(median / 1e3, rel=1e-3)
    page.get_by_text("Kernels of a call as a table").click()
    kernels = page.locator("#kernels-panel").get_by_role("row")
    expect(kernels.filter(has_text="baseline_kernel")).to_contain_text("6")
    expect(kernels.filter(has_text="fused_kernel")).to_contain_text("1")
