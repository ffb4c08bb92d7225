"""A history with known events, in the browser: what is open stands first, and what is not says what became of it."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from pairbench.site import paths
from tests.builders import run_id_of
from tests.site import planted
from tests.site.conftest import Build, Site
from tests.site.planted import H100, H200, run_number
from tests.site.stores import REPOSITORY
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="session")
def made(build: Build) -> Site:
    return build(planted.planted, "--repository", REPOSITORY)


def tile(page: Page, state: str) -> str:
    text: str = page.locator(".attention li").filter(has_text=state).inner_text()
    return text.split(maxsplit=1)[0]


def happened(page: Page, operator: str) -> Locator:
    what = page.locator(".what").filter(has_text=operator)
    return page.locator("tbody[data-item]").filter(has=what).filter(has_not_text="580.2")


def test_tiles_count_what_is_open_and_the_list_names_it(see: Opener) -> None:
    page = see()
    assert [tile(page, state) for state in ("failed", "regression", "undecided", "improvement")] == ["0", "2", "0", "0"]
    lines = page.locator("ul.events li:visible")
    expect(lines).to_have_count(2)
    expect(lines.nth(0)).to_contain_text(re.compile(r"rms_norm\s+fused\s+launches 1 → 3, kernels 1 → 3, code"))
    expect(lines.nth(0)).to_contain_text(f"on {H200} and {H100}")
    expect(lines.nth(1)).to_contain_text(re.compile(r"conv\s+fused\s+\+(4\.[5-9]|5\.[0-5])\d*%, code"))
    expect(page.locator("ul.events")).not_to_contain_text("…")


def test_a_window_narrows_tiles_and_list_and_is_in_the_address(see: Opener) -> None:
    page = see()
    page.get_by_role("combobox", name="Window").select_option(label="last 10 runs")
    expect(page.locator("ul.events li:visible")).to_have_count(1)
    assert tile(page, "regression") == "1" and tile(page, "improvement") == "0"
    expect(page).to_have_url(re.compile("window=10r"))
    page.reload()
    expect(page.locator("ul.events li:visible")).to_have_count(1)
    page.locator(".attention a").filter(has_text="regression").click()
    expect(page.locator("tbody[data-item]:visible")).to_have_count(1)
    expect(page.get_by_role("combobox", name="Window")).to_have_value("10r")


def test_the_same_step_on_two_devices_is_one_event_with_two_rows(see: Opener) -> None:
    page = see("regressions.html")
    event = happened(page, "rms_norm")
    expect(event).to_have_count(1)
    rows = event.locator("> tr:not(.more)")
    expect(rows).to_have_count(2)
    expect(rows.first).to_be_visible()
    for row, device in zip(rows.all()[:2], (H200, H100), strict=True):
        expect(row).to_contain_text(device)
        expect(row).to_contain_text("still there")
    page.get_by_role("combobox", name="Device").select_option(H100)
    expect(page.locator("tbody[data-item]:visible")).to_have_count(1)


def test_a_count_that_moved_has_a_line_below_its_trend(see: Opener) -> None:
    series = paths.digest(f"{planted.case('rms_norm')}-fused-eager")
    page = see(f"{paths.operator_page(H200, planted.SUITE, 'rms_norm')}#series={series}")
    trend = page.locator("#trend-panel")
    expect(trend.locator(".chart")).to_contain_text("launches a call")
    expect(trend).to_contain_text("launches 1 → 3")


def test_a_run_says_what_it_changed_and_no_noise(see: Opener) -> None:
    page = see(paths.run_page(run_id_of(run_number(planted.MORE)), H200))
    table = page.get_by_role("table").filter(has_text="noise is not among them")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table).to_contain_text(planted.case("rms_norm"))
    expect(table).to_contain_text("2 more launches a call, 1 -> 3")
    expect(page.get_by_text("Events that begin with it")).to_be_visible()
    table.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(re.escape(paths.operator_page(H200, planted.SUITE, "rms_norm"))))
    quiet = see(paths.run_page(run_id_of(run_number(planted.MORE + 2)), H200))
    expect(quiet.get_by_text("Nothing that is more than noise.")).to_be_visible()
    old = see(paths.run_page(run_id_of(run_number(planted.LATE)), H200))
    expect(old.get_by_text("Events that begin with it")).to_be_visible()
    expect(old.locator("#changed ~ ul .what").first).to_contain_text("silu")


def test_two_runs_are_compared_by_verdict(see: Opener) -> None:
    days = planted.MORE - 1, planted.MORE
    before, after = (paths.run_key(run_id_of(run_number(day)), H200) for day in days)
    page = see(f"compare.html?b={after}")
    expect(page.get_by_role("combobox", name="Before")).to_have_value(before)
    page.get_by_role("checkbox", name="only what differs").check()
    rows = page.locator("table[data-table='series'] [data-item]:visible")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("regression")
    expect(page.get_by_text("The ratios here are no verdicts.")).to_be_hidden()


def test_the_first_pair_is_the_newest_run_and_what_it_overlaps_with(see: Opener) -> None:
    page = see("compare.html")
    days = planted.RUNS - 2, planted.RUNS - 1
    for name, day in zip(("Before", "After"), days, strict=True):
        key = paths.run_key(run_id_of(run_number(day)), H200)
        expect(page.get_by_role("combobox", name=name)).to_have_value(key)
    expect(page.get_by_text("0 differ")).to_be_visible()


def test_an_event_shows_its_trend_and_has_a_text_for_an_issue(see: Opener) -> None:
    page = see("regressions.html")
    event = happened(page, "conv").filter(has_text="still there")
    picture = event.locator("svg.spark.large").first
    expect(picture).to_be_visible()
    box = picture.bounding_box()
    assert box is not None and box["width"] == 200
    expect(picture.locator("line.at")).to_have_count(1)
    event.locator("summary").first.click()
    event.get_by_text("Text for an issue").click()
    text = event.locator("code[id$=issue]").inner_text()
    assert text.startswith("Regression: conv fused +") and "pairbench compare" in text and H200 in text


def test_an_event_says_whose_it_is(see: Opener) -> None:
    page = see("regressions.html?q=conv")
    day = planted.BESIDE
    event = happened(page, "conv").filter(has_text="still there")
    commits = event.locator("> tr").first.locator("td").nth(5)
    expect(commits.get_by_role("link", name=f"{planted.COMMITS} commits")).to_have_attribute(
        "href", re.compile("/compare/")
    )
    expect(commits).to_contain_text(f"Change number {day}")
    expect(commits).to_contain_text(f"by {planted.AUTHOR}")
    request = commits.get_by_role("link", name=f"#{1000 + day}", exact=True)
    expect(request).to_have_attribute("href", f"{REPOSITORY}/pull/{1000 + day}")
    expect(event).to_contain_text(f"Owner: {planted.OWNER}")
    event.locator("summary").first.click()
    event.get_by_text("Text for an issue").click()
    text = event.locator("code[id$=issue]").inner_text()
    assert f"Change number {day} (#{1000 + day}) by {planted.AUTHOR}" in text and f"- owner: {planted.OWNER}" in text
    assert f"- commits in question: {planted.COMMITS}" in text
    page.get_by_role("searchbox").fill(f"#{1000 + planted.MORE}")
    expect(page.locator("tbody[data-item]:visible")).to_have_count(1)
    operator = see(paths.operator_page(H200, planted.SUITE, "conv"))
    expect(operator.locator("dl.facts")).to_contain_text(planted.OWNER)
    run = see(paths.run_page(run_id_of(run_number(day)), H200))
    expect(run.locator("dl.facts").first).to_contain_text(f"Change number {day}")


def test_two_devices_stand_side_by_side(see: Opener) -> None:
    page = see()
    heads = page.locator("table.operators > thead th[data-of]:visible")
    expect(heads).to_have_count(2)
    page.get_by_role("combobox", name="Device").select_option(H200)
    expect(heads).to_have_count(1)
    expect(heads).to_contain_text(H200)
    page.get_by_role("combobox", name="Beside").select_option(H100)
    expect(heads).to_have_count(2)
    expect(page).to_have_url(re.compile("beside=NVIDIA"))
    parts = page.locator("tr[data-part]:visible")
    assert {H100, H200} == {one.get_attribute("data-device") for one in parts.all()}
    page.get_by_role("link", name="Their latencies, case by case").click()
    expect(page.get_by_text("Two device models: ratios, and no verdicts.")).to_be_visible()


def test_two_devices_are_compared_by_ratio_and_without_a_verdict(see: Opener) -> None:
    page = see(f"compare.html?device={quote(H200)}&beside={quote(H100)}&q=silu+64")
    expect(page.get_by_text("Two device models: ratios, and no verdicts.")).to_be_visible()
    rows = page.locator("table[data-table='series'] [data-item]:visible")
    row = rows.filter(has_text=planted.case("silu")).filter(has_text="fused").first
    cells = row.locator("td")
    expect(cells.nth(2)).to_contain_text("compared")
    expect(cells.nth(3)).to_have_text("")
    expect(cells.nth(6)).to_have_text(re.compile(r"^1\.6\d*x$"))
    expect(page.get_by_role("columnheader", name=f"P50 on {H100}")).to_be_visible()
    expect(page.locator("#judge")).to_contain_text("pairbench compare")
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("combobox", name="Device")).to_have_value(H100)
    expect(rows.filter(has_text="fused").first.locator("td").nth(6)).to_have_text(re.compile(r"^0\.6\d*x$"))
    page.get_by_role("combobox", name="Beside").select_option("")
    expect(page.get_by_text("no verdicts")).to_have_count(2)
    expect(page.get_by_text("Two device models: ratios, and no verdicts.")).to_be_hidden()


def test_an_operator_has_a_switch_to_its_other_devices(see: Opener) -> None:
    series = paths.digest(f"{planted.case('silu', 4096)}-fused-eager")
    page = see(f"{paths.operator_page(H200, planted.SUITE, 'silu')}#series={series}")
    page.locator("dl.facts").get_by_role("link", name=H100, exact=True).click()
    expect(page).to_have_url(re.compile(re.escape(paths.operator_page(H100, planted.SUITE, "silu"))))
    expect(page.locator("#chosen")).to_have_text(planted.case("silu", 4096))
    expect(page.locator(".switch b")).to_have_text(H100)


def arrived(page: Page, operator: str) -> None:
    """Check that a link went to the very series, and to where one sees it."""
    expect(page.locator("#chosen")).to_contain_text(planted.case(operator))
    expect(page.locator("#series")).to_be_in_viewport()
    expect(page.locator("#choose select[name=implementation] option:checked")).to_have_text("fused")


def test_events_runs_and_comparisons_lead_to_the_very_series(see: Opener) -> None:
    page = see("regressions.html")
    event = happened(page, "rms_norm")
    event.locator("summary").first.click()
    event.locator("table.inner").first.get_by_role("link").first.click()
    arrived(page, "rms_norm")
    run = see(paths.run_page(run_id_of(run_number(planted.MORE)), H200))
    row = (
        run.locator("table[data-table=series] [data-item]")
        .filter(has_text=planted.case("silu"))
        .filter(has_text="fused")
    )
    row.get_by_role("link").click()
    arrived(run, "silu")
    after = paths.run_key(run_id_of(run_number(planted.MORE)), H200)
    pair = see(f"compare.html?b={after}&q=gelu+64")
    rows = pair.locator("table[data-table=series] [data-item]:visible").filter(has_text=planted.case("gelu"))
    rows.filter(has_text="fused").first.get_by_role("link").click()
    arrived(pair, "gelu")


def test_a_page_explains_its_words(see: Opener) -> None:
    page = see("compare.html")
    page.get_by_text("What the words mean").click()
    for word in ("undecided", "series", "tier", "tolerance left"):
        expect(page.locator("#words dt").filter(has_text=re.compile(f"^{word}$"))).to_be_visible()


def test_an_operator_shows_what_is_wrong_and_not_its_best_variant(see: Opener) -> None:
    page = see()
    row = page.locator("table.operators > tbody[data-item]").filter(has_text="conv")
    since = re.compile(r"fused \+(4\.[5-9]|5\.[0-5])\d*% since 2024-01-21 on NVIDIA H200")
    expect(row.locator("tr.wrong")).to_have_text(since)
    expect(row.locator(".spark title").first).to_have_text(re.compile("^Latency in the .* runs around it"))
    expect(page.locator("table.operators tr.wrong")).to_have_count(2)
    page = see(paths.operator_page(H200, "suites/norm.py", "conv"))
    worst = page.locator("p.worst")
    expect(worst).to_have_text(
        re.compile(r"regression fused tokens=\d+ \+.*, code since 2024-01-21 \(newest run .*%\); 1 more")
    )
    chosen = page.locator('table[data-table="numbers"] tr[data-chosen] a')
    expect(chosen).to_have_attribute("href", str(worst.get_by_role("link").get_attribute("href")))
    marked = page.locator("table.heat td.moved")
    expect(marked).to_have_count(2)
    expect(marked.first).to_have_attribute("title", re.compile(r"; regression, \+.*% since 2024-01-21$"))
    cells = page.locator('table[data-table="numbers"] td').filter(has=page.locator(".state-regression"))
    expect(cells.first).to_contain_text(re.compile(r"\+\d\.\d+%, code since 2024-01-21\s*newest run [+-]\d"))
    assert see(paths.operator_page(H200, "suites/norm.py", "silu")).locator("p.worst, td.moved").count() == 0
