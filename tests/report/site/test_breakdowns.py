from dataclasses import replace

import pytest

from pairbench.model.breakdown import KeptBreakdown
from pairbench.site import paths
from pairbench.site.overview import breakdowns, overview
from pairbench.site.paths import head_of
from tests.breakdowns_made import kept
from tests.report.site import made
from tests.report.site.reading import Page, pages


def build(*all_kept: KeptBreakdown) -> dict[str, Page]:
    facts = replace(made.site(), breakdowns=tuple(map(head_of, all_kept)))
    return {page.path: page for page in pages([overview(facts), *breakdowns(facts, all_kept)])}


def test_a_breakdown_has_a_page_with_all_its_tables() -> None:
    site = build(kept("rms_norm"))
    page = site[paths.breakdown_page("20260101T000000-aaaaaa", made.DEVICE)]
    captions = [element.text for element in page.all("caption")]
    assert captions == [
        "Side by side, in us",
        *(2 * ["Modules", "Kinds of work", "Kernels", "Copies, casts and waits"]),
    ]
    cells = [element.text for element in page.all("td")]
    assert {"75.0", "25.0", "rms_norm.py:3", "2.000 KiB", "float32 -> bfloat16"} <= set(cells)
    text = " ".join(element.text for element in page.all("p"))
    assert "Launch-bound: 25%" in text and "none of them is a latency" in text


def test_the_list_and_the_pages_lead_to_one_another() -> None:
    site = build(kept("rms_norm"), kept("net", 2))
    there = [address for _, address in site[paths.BREAKDOWNS].references()]
    for number in (1, 2):
        assert paths.breakdown_page(f"2026010{number}T000000-aaaaaa", made.DEVICE) in there
    # rms_norm is in the store, net has no page of its own.
    assert paths.operator_page(made.DEVICE, made.SUITE, "rms_norm") in there
    assert paths.operator_page(made.DEVICE, made.SUITE, "net") not in there
    assert paths.BREAKDOWNS in [address for _, address in site[paths.OVERVIEW].references()]


def test_where_nothing_was_kept_nothing_points_there() -> None:
    site = build()
    assert list(site) == [paths.OVERVIEW]
    assert paths.BREAKDOWNS not in [address for _, address in site[paths.OVERVIEW].references()]


@pytest.mark.parametrize("name", made.HOSTILE, ids=range(len(made.HOSTILE)))
def test_names_are_only_text(name: str) -> None:
    usual, hostile = build(kept()), build(kept(name))
    for path, page in hostile.items():
        tags = {element.tag for element in page.elements}
        assert tags <= {element.tag for element in usual[path].elements} | {"bdi", "span"}
        assert all("src" in script.attributes for script in page.all("script"))


def test_bars_of_all_implementations_stand_on_one_scale() -> None:
    whole = kept("rms_norm")
    baseline = whole.parts[0]
    fewer = tuple(replace(piece, launches=1, count=1, ns=piece.ns / 4) for piece in baseline.pieces[:1])
    variant = replace(baseline, entry=replace(baseline.entry, implementation="fused"), pieces=fewer)
    page = build(replace(whole, parts=(baseline, variant)))[paths.breakdown_page(whole.breakdown_id, made.DEVICE)]
    lead = next(element.text for element in page.all("p") if element.attributes.get("class") == "lead")
    assert "4x fewer launches (4 → 1)" in lead and "5.33x less time in kernels" in lead
    widths = [float(rect.attributes["width"]) for rect in page.all("rect")]
    assert sorted(widths) == [18.75, 18.75, 25.0, 75.0, 100.0], "by kind, then by module: a quarter of three quarters"
    labels = [
        element.attributes["aria-label"] for element in page.all("div") if element.attributes.get("role") == "img"
    ]
    assert len(labels) == 4 and all("us" in label for label in labels)
