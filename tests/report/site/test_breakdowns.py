"""The pages of breakdowns: every table is there, names are only text, and there is no link where nothing was kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.model.breakdown import Breakdown, Idle, KeptBreakdown, ModuleCalls, Piece, Spot
from pairbench.model.plan import Entry
from pairbench.report.site import paths
from pairbench.report.site.breakdowns import breakdowns, head_of
from pairbench.report.site.overview import overview
from pairbench.report.site.pages import environment
from tests.report.site import made
from tests.report.site.reading import Page, pages

ENV = environment(Path(__file__).parents[3] / "dashboards" / "templates")


def kept(name: str = "net", number: int = 1) -> KeptBreakdown:
    spot = Spot(
        what="cast",
        op="aten::_to_copy",
        detail="float32 -> bfloat16",
        file=f"{name}.py",
        line=3,
        function=name,
        code=name,
        modules=(name,),
        count=2,
        bytes=2048,
    )
    part = Breakdown(
        entry=Entry(implementation="baseline", mode="eager"),
        calls=5,
        modules=(ModuleCalls(name=name, class_name=name, calls=1),),
        pieces=(
            Piece(module=name, ops=("mm",), kernel=name, count=3, launches=3, ns=30_000.0),
            Piece(module=name, ops=("to",), kernel="cast", spot=0, count=1, launches=1, ns=10_000.0),
        ),
        spots=(spot,),
        idle=Idle(span_ns=80_000.0, busy_ns=40_000.0, starved_ns=20_000.0, after_sync_ns=0.0),
        whole_ns=40_000.0,
    )
    return KeptBreakdown(
        breakdown_id=f"2026010{number}T000000-aaaaaa",
        made_at=f"2026-01-0{number}T00:00:00.000+00:00",
        device_name=made.DEVICE,
        environment_hash="f" * 16,
        versions={"torch": "2.11.0"},
        commit="0" * 40,
        suite=made.SUITE,
        operator=name,
        case=f"{name}[n=1]",
        parts=(part, replace(part, entry=Entry(implementation="fused", mode="graph"))),
    )


def build(*all_kept: KeptBreakdown) -> dict[str, Page]:
    facts = replace(made.site(), breakdowns=tuple(map(head_of, all_kept)))
    return {page.path: page for page in pages([overview(ENV, facts), *breakdowns(ENV, facts, all_kept)])}


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
