"""500 runs on two devices: every planted event is found, lives as long as it should, and nothing else is open."""

import re

import pytest
from playwright.sync_api import expect

from pairbench.site import paths
from tests.builders import run_id_of
from tests.site import planted
from tests.site.conftest import Build, Site
from tests.site.planted import H100, H200, run_number
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="session")
def made(build: Build) -> Site:
    return build(planted.long)


def test_what_is_open_is_what_was_planted_380_runs_ago(see: Opener) -> None:
    page = see()
    expect(page.locator("dl.facts").first).to_contain_text("500")
    lines = page.locator("ul.events li:visible")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(re.compile(r"rms_norm\s+fused\s+launches 1 → 3"))
    expect(lines).to_contain_text(f"on {H200} and {H100}")
    counts = [tile.split()[0] for tile in page.locator(".attention li").all_inner_texts()]
    assert counts == ["0", "1", "0", "0", "0", "2"]


def test_what_ended_says_with_which_run(see: Opener) -> None:
    page = see("regressions.html")
    page.get_by_text("No longer open").click()
    ended = page.locator("#ended tbody[data-item]")
    expect(ended).to_have_count(2)
    for day in (planted.TAKEN_BACK, planted.CRASHED + 1):
        expect(ended.filter(has_text=f"recovered in {run_id_of(run_number(day))}")).to_have_count(1)


def test_a_trend_of_400_runs_is_drawn_and_its_data_is_small(see: Opener, made: Site) -> None:
    path = paths.operator_page(H200, planted.SUITE, "silu")
    page = see(path)
    page.locator(".chart[data-chart=trend]").scroll_into_view_if_needed()
    expect(page.locator(".chart[data-chart=trend] .main-svg").first).to_be_visible()
    assert (made.folder / path).with_suffix(".js").stat().st_size < 60_000, "400 runs of two series, packed"


def test_the_script_of_the_charts_is_packed(made: Site) -> None:
    scripts = sum(file.stat().st_size for file in (made.folder / "assets").iterdir())
    assert scripts < 2_300_000, "as it comes, Plotly alone has 4.8 MB"
