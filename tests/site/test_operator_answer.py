"""The page of an operator begins with its answer: a sentence, a heat map, and how it scales."""

import re

import pytest
from playwright.sync_api import expect

from pairbench.site import paths
from tests.site import planted
from tests.site.conftest import Browse, Build, Site
from tests.site.kinds import OPERATOR
from tests.site.planted import H200
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGE = paths.operator_page(H200, planted.SUITE, "scan")


@pytest.fixture(scope="session")
def made(build: Build) -> Site:
    return build(planted.scaling)


def test_the_verdict_is_one_sentence(see: Opener) -> None:
    lead = see(PAGE).locator(".lead")
    expect(lead).to_contain_text(re.compile(r"fused\s+5\.\d+x on headline bfloat16 cases \(device\)"))
    expect(lead).to_contain_text("loses 2 of 4 real ones, where tokens ≤ 64")


def test_the_heat_map_has_a_number_in_each_cell_and_leads_to_the_trend(see: Opener) -> None:
    page = see(PAGE)
    table = page.locator("table.heat")
    expect(table.locator("tbody tr")).to_have_count(len(planted.SIZES))
    expect(table.locator("thead th")).to_have_text(["Case", "fused", "naive"])
    small = table.get_by_role("row").filter(has_text=re.compile(r"^tokens=16"))
    expect(small.locator("td").first).to_have_class(re.compile(r"heat--\d"))
    expect(small.get_by_label("skipped")).to_have_text("\u2013")
    best = table.get_by_role("row").filter(has_text="tokens=4096").locator("td").first
    expect(best).to_have_class(re.compile(r"heat-[45]"))
    best.get_by_role("link").click()
    expect(page).to_have_url(re.compile("#series="))
    expect(page.locator("#chosen")).to_contain_text("tokens=4096")
    expect(page.locator("#series")).to_be_in_viewport()


def test_the_heat_map_shows_memory_and_launches_too(look: Opener, eventful: Site) -> None:
    page = look(OPERATOR)
    cells = page.locator("table.heat tbody td")
    quantity = page.get_by_role("combobox", name="Quantity")
    before = cells.all_inner_texts()
    quantity.select_option("launches")
    expect(cells).to_have_text(["6 \u2192 1"] * 4)
    expect(cells.first).to_have_class("heat-5")
    quantity.select_option("peak memory")
    expect(cells).to_have_text(["1.000x"] * 4)
    expect(cells.first).to_have_attribute("title", "1.000 MiB, baseline 1.000 MiB")
    expect(page.locator("table.heat caption")).to_contain_text("Peak memory")
    cells.first.get_by_role("link").click()
    expect(page).to_have_url(re.compile("#series="))
    quantity.select_option("speedup")
    expect(cells).to_have_text(before)


def test_quantities_that_nobody_measured_are_not_offered(browse: Browse, failures: Site) -> None:
    page = browse(failures)(next(f"operators/{one.name}" for one in (failures.folder / "operators").glob("*.html")))
    expect(page.locator("#chosen")).not_to_be_empty()
    expect(page.locator("#heat")).to_be_hidden()


def test_ticks_of_scaling_are_the_measured_sizes(see: Opener) -> None:
    page = see(PAGE)
    node = page.locator(".chart[data-chart=scaling]")
    expect(node.locator(".main-svg").first).to_be_visible()
    axis = node.evaluate("node => [node._fullLayout.xaxis.tickvals, node._fullLayout.xaxis.ticktext]")
    assert axis == [sorted(planted.SIZES), [str(size) for size in sorted(planted.SIZES)]]


def test_scaling_labels_the_crossover(see: Opener) -> None:
    page = see(PAGE)
    panel = page.locator("#scaling-panel")
    expect(panel).to_be_visible()
    says = panel.locator("#scaling-says")
    expect(says).to_contain_text("latency on the device")
    expect(says).to_contain_text(re.compile(r"fused crosses 1x at tokens ≈ 1[0-9]0\b"))
    expect(panel.locator(".chart")).to_contain_text("crosses 1x")


def test_charts_are_drawn_when_they_come_near_and_the_table_waits_for_none(see: Opener) -> None:
    page = see(PAGE)
    far = page.locator(".chart[data-chart=kernels]")
    page.get_by_role("searchbox").fill("fused")
    expect(page.locator("[data-count=numbers]")).to_contain_text(" of ")
    assert far.locator(".main-svg").count() == 0 and page.locator("head script[src*=plotly]").count() <= 1
    far.scroll_into_view_if_needed()
    expect(far.locator(".main-svg").first).to_be_visible()


def test_a_printed_page_has_all_charts(see: Opener) -> None:
    page = see(PAGE)
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    # What turns out to have nothing to show is hidden meanwhile.
    expect(page.locator(".chart:visible:not(:has(.main-svg))")).to_have_count(0)
    expect(page.locator(".chart:visible:has(.main-svg)")).to_have_count(5)


def test_the_roofline_is_narrowed_by_dtype_and_implementation(browse: Browse, build: Build) -> None:
    page = browse(build(planted.two_dtypes))(PAGE)
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    chart = page.locator(".chart[data-chart=roofline]")
    expect(chart).to_contain_text("copy 4000 GB/s")
    expect(chart).to_contain_text("bfloat16 800.0 TFLOP/s")
    expect(chart).to_contain_text("float32 60.00 TFLOP/s")
    dots = chart.locator(".scatterlayer .points path")
    expect(dots).to_have_count(12)
    form = page.locator("#roofs")
    form.get_by_role("combobox", name="dtype").select_option("float32")
    expect(dots).to_have_count(6)
    expect(chart).to_contain_text("float32 60.00 TFLOP/s")
    expect(chart).not_to_contain_text("bfloat16")
    form.get_by_role("combobox", name="Implementation").select_option(label="fused")
    expect(dots).to_have_count(2)
