"""The site of the reference runs, published to a folder: what visitors of that folder see, and what it weighs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.site.conftest import ROOT, Build, Site
from tests.site.test_pages import broken
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]
REPOSITORY = "https://example.org/published"
MEGABYTES, RECORDS = 8.0, 3193
"""What the site may weigh, for the records that the reference runs had when that was decided; more may weigh more in proportion."""


@pytest.fixture(scope="session")
def made(build: Build) -> Site:
    def reference(store: Path) -> None:
        shutil.copytree(ROOT / "results/reference", store, dirs_exist_ok=True)
        (store.parent / "public").mkdir()
        (store.parent / "public/CNAME").write_text("bench.example.org\n")

    site = build(reference, "--repository", REPOSITORY, "--publish", "public")
    return replace(site, folder=site.folder.with_name("public"))


def test_one_goes_from_the_first_page_to_a_chart(see: Opener) -> None:
    page = see()
    page.get_by_role("searchbox").fill("rope3d")
    page.locator("table.operators [data-item]:visible a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("rope3d")
    chart = page.locator("#trend-panel .chart")
    chart.scroll_into_view_if_needed()
    expect(chart.locator(".main-svg").first).to_be_visible()


def test_it_is_whole_and_leaves_alone_what_others_put_there(made: Site) -> None:
    assert list(broken(made, REPOSITORY)) == []
    assert (made.folder / "CNAME").read_text() == "bench.example.org\n"
    index = json.loads((made.folder / "index.json").read_text())
    assert len(index["rows"]) > 60 and "NVIDIA H200" in {row["device_name"] for row in index["rows"]}


def test_it_weighs_little(made: Site) -> None:
    import pandas as pd

    records = len(pd.read_parquet(made.store / "records", columns=["case"]))
    weight = sum(file.stat().st_size for file in made.folder.rglob("*") if file.is_file()) / 1e6
    # With links to a repository, which a site that nobody publishes has not.
    assert weight < MEGABYTES * max(1, records / RECORDS)
