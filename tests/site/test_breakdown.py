"""A breakdown shows baseline and variants of one case on one page, on one scale."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from pairbench.site import paths
from pairbench.store.documents import write_breakdown
from tests.breakdowns_made import kept
from tests.builders import DEVICE
from tests.site import stores
from tests.site.conftest import Build, Site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def made(build: Build) -> Site:
    def broken_down(store: Path) -> None:
        stores.single(store)
        whole = kept("net", device=DEVICE)
        plain, fused = whole.parts
        piece = replace(fused.pieces[0], count=1, launches=1, ns=10_000.0)
        one = replace(fused, entry=replace(fused.entry, mode="eager"), pieces=(piece,), whole_ns=10_000.0)
        write_breakdown(store, replace(whole, parts=(plain, one)))

    return build(broken_down)


def widths(bar: Locator) -> list[float]:
    return [float(one.get_attribute("width") or 0) for one in bar.locator("rect").all()]


def test_variant_and_baseline_are_bars_on_one_scale(browse: "object", made: Site) -> None:
    assert callable(browse)
    page = browse(made)(paths.breakdown_page(kept().breakdown_id, DEVICE))
    for what in ("By kind of work", "By module"):
        bars = page.get_by_role("region", name=what).locator(".bar")
        expect(bars).to_have_count(2)
        plain, fused = (widths(bar) for bar in bars.all())
        assert sum(plain) == pytest.approx(100, abs=0.5) and sum(fused) == pytest.approx(25, abs=0.5)
    expect(page.locator(".lead")).to_contain_text("4x fewer launches")
