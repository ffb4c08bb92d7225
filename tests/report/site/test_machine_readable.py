import functools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pairbench.model.comparison import GateOutcome
from pairbench.model.site import STATES, CountStep, Event, Moved, RunHead, SiteFacts
from pairbench.site import paths, programs
from pairbench.site.event_pages import feed
from pairbench.site.programs import badges, index_json
from pairbench.stats import Interval
from tests.builders import DEVICE, SUITE
from tests.golden import assert_golden
from tests.report.site import made

GOLDEN = Path(__file__).parent / "golden"
ATOM = "{http://www.w3.org/2005/Atom}"
HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title><script>alert(1)</script>&amp;\"'${x}{{y}}\n\r\x00\x0b\x1b\ud800\ufffe\u202e../../etc" + "x" * 10_000


head = made.head
row = functools.partial(
    made.row, tier="headline", speedup=Interval(2.0, 1.9, 2.1), least=1.5, most=2.5, spark=(1.9, None, 2.0)
)


def moved(case: str = "rms_norm[tokens=1024]", **changes: Any) -> Moved:
    counts = (CountStep(metric="launches_per_call", before=1, after=3, reason="2 more launches a call"),)
    return made.moved(made.series(case), **{"counts": counts, "reason": "slower by 5 %", **changes})


def event(number: int = 1, **changes: Any) -> Event:
    return made.event(number, **{"moved": (moved(), moved("rms_norm[tokens=4096]", change=1.02)), **changes})


def site(**changes: Any) -> SiteFacts:
    return replace(made.site(2), **{"rows": (row(),), "events": (event(),), "repository": None, **changes})


def hostile() -> SiteFacts:
    """Return facts in which all that comes from outside is hostile."""
    facts = made.hostile(HOSTILE)
    run = replace(facts.runs[0], run_id=HOSTILE, started_at=HOSTILE)
    (shown,), (happened,) = facts.rows, facts.events
    shown = replace(shown, tier=HOSTILE, mode=HOSTILE)
    return replace(
        facts,
        runs=(run,),
        rows=(shown, replace(shown, suite="b", speedup=None)),
        events=(replace(happened, key=HOSTILE, after=run, before=run),),
    )


def test_the_index_has_the_keys_that_programs_know_and_links_the_pages() -> None:
    """A key that goes, or means something else, raises the schema's number."""
    document = json.loads(index_json(site()).content, parse_constant=pytest.fail)
    assert_golden(GOLDEN / "index.json", f"{json.dumps(document, indent=1)}\n")
    assert document["rows"][0]["badge"] in {file.path for file in badges(site())}


def parsed(content: bytes) -> ET.Element:
    return ET.fromstring(content)


def entries(facts: SiteFacts, address: str | None = None) -> list[ET.Element]:
    return parsed(feed(facts, address=address).content).findall(f"{ATOM}entry")


def drawn(facts: SiteFacts) -> Iterator[tuple[str, ET.Element]]:
    for file in badges(facts):
        yield file.path, parsed(file.content)


def said(svg: ET.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


def test_an_index_of_nothing_and_of_numbers_that_json_lacks() -> None:
    empty = json.loads(index_json(site(runs=(), rows=(), events=())).content)
    assert empty["runs"] == empty["rows"] == empty["events"] == []
    facts = site(rows=(row(margin=float("nan"), least=float("inf")),))
    (only,) = json.loads(index_json(facts).content, parse_constant=pytest.fail)["rows"]
    assert only["margin"] is None and only["least"] is None


def test_the_index_is_the_same_for_the_same_facts_in_any_order() -> None:
    rows = [row(mode=mode, statuses=statuses) for mode, statuses in (("eager", {"a": 1, "b": 2}), ("graph", {}))]
    again = [replace(rows[1]), replace(rows[0], statuses={"b": 2, "a": 1})]
    assert index_json(site(rows=tuple(rows))) == index_json(site(rows=tuple(again)))


def test_an_entry_says_what_moved() -> None:
    assert_golden(GOLDEN / "feed.xml", feed(site(), address=None).content.decode())


def test_an_entry_keeps_its_id_whatever_else_changes() -> None:
    later = event(moved=(moved(accepted="on purpose"),), outcome=GateOutcome.UNDECIDED, before=None)
    (first,), (second,) = entries(site()), entries(site(events=(later,), store="elsewhere"), "https://example.org")
    same = [first.findtext(f"{ATOM}{name}") == second.findtext(f"{ATOM}{name}") for name in ("id", "title")]
    assert same == [True, False]


def test_the_newest_hundred() -> None:
    events = tuple(event(1, key=str(number)) for number in range(120))
    found = entries(site(events=events))
    expected = [entries(site(events=(one,)))[0].findtext(f"{ATOM}id") for one in events[:100]]
    assert [entry.findtext(f"{ATOM}id") for entry in found] == expected


def links_of(address: str | None) -> set[tuple[str | None, str | None]]:
    root = parsed(feed(site(), address=address).content)
    return {(link.get("rel"), link.get("href")) for link in root.iter(f"{ATOM}link")}


def test_links_bear_the_address_where_there_is_one_and_are_relative_elsewhere() -> None:
    links = links_of("https://example.org/bench")
    assert links == links_of("https://example.org/bench/")
    assert ("self", "https://example.org/bench/feed.xml") in links
    assert ("alternate", f"https://example.org/bench/regressions.html#{paths.anchor(event().key)}") in links
    relative = [link for _, link in links_of(None)]
    assert relative and all(str(link).startswith("regressions.html") for link in relative)


@pytest.mark.parametrize("runs", [(), (head(3),)])
def test_a_feed_of_nothing_is_valid(runs: tuple[RunHead, ...]) -> None:
    root = parsed(feed(site(runs=runs, rows=(), events=()), address=None).content)
    assert root.findtext(f"{ATOM}updated") == ("2024-01-01T03:00:00Z" if runs else "1970-01-01T00:00:00Z")


def test_a_badge_for_each_operator_and_one_for_the_whole() -> None:
    rows = (row(), row(mode="graph", state="regression"), row(operator="silu"), row(device_name="A100"))
    found = dict(drawn(site(rows=rows)))
    assert found.keys() == {
        "badges/state.svg",
        *(
            paths.badge(device, SUITE, name)
            for device, name in ((DEVICE, "rms_norm"), (DEVICE, "silu"), ("A100", "rms_norm"))
        ),
    }
    assert said(found[paths.badge(DEVICE, SUITE, "rms_norm")]) == ["rms_norm", "2.000x (1.500-2.500) regression"]
    assert said(found["badges/state.svg"]) == ["pairbench", "regression: 1 of 3 operators"]


def test_a_badge_shows_the_best_of_the_most_telling_tier() -> None:
    best = row(mode="graph", speedup=Interval(3.0, 2.9, 3.1), cases=1)
    ((_, svg), _) = drawn(site(rows=(row(tier="smoke", speedup=Interval(9.0, 8.9, 9.1)), best, row())))
    assert said(svg) == ["rms_norm", "3.000x (2.900-3.100) unchanged"]
    assert "headline, graph" in (svg.findtext(f"{SVG}title") or "")


def test_without_a_speedup_or_a_row_a_badge_says_the_state() -> None:
    ((_, svg), _) = drawn(site(rows=(row(speedup=None, variant=None, state="failed"),)))
    assert said(svg) == ["rms_norm", "failed"]
    ((path, svg),) = drawn(site(rows=()))
    assert path == "badges/state.svg" and said(svg) == ["pairbench", "no runs yet"]


def test_badges_have_a_title_and_room_for_their_words() -> None:
    for _, svg in drawn(site(rows=(row(), row(operator="W" * 30), row(operator="规范化")))):
        assert svg.get("role") == "img" and svg.get("aria-label") == svg.findtext(f"{SVG}title")
        boxes, texts = list(svg.iter(f"{SVG}rect")), list(svg.iter(f"{SVG}text"))
        for box, text in zip(boxes, texts, strict=True):
            start, width = float(box.get("x", "0")), float(box.get("width", "0"))
            assert start < float(text.get("x", "0")) < float(text.get("x", "0")) + float(text.get("textLength", "0"))
            assert float(text.get("x", "0")) + float(text.get("textLength", "0")) < start + width


def test_wide_letters_take_more_room() -> None:
    narrow, wide, wider = (programs.text_width(text) for text in ("iii", "WWW", "规范化W"))
    assert narrow < wide < wider and programs.text_width("e\u0301") == programs.text_width("e")


@pytest.mark.parametrize("state", STATES)
def test_white_text_can_be_read_on_every_state(state: str) -> None:
    svg = parsed(programs.draw_badge("name", "said", state, "title"))
    for box in svg.iter(f"{SVG}rect"):
        channels = [int((box.get("fill") or "")[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
        luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert 1.05 / (luminance + 0.05) >= 4.5  # WCAG 2.2, 1.4.3


def test_hostile_names_stay_text_and_lead_nowhere() -> None:
    facts = hostile()
    document = json.loads(index_json(facts).content)
    assert document["events"][0]["moved"][0]["reason"] == HOSTILE.replace("\ud800", "?")
    roots = [parsed(feed(facts, address=f"https://x/{HOSTILE}").content), *(svg for _, svg in drawn(facts))]
    for root in roots:
        assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert "<script>alert(1)</script>" in " ".join(roots[0].itertext())
    for root in roots[1:]:
        assert all(len(text) < 120 for text in said(root))
    for file in (index_json(facts), feed(facts, address=None), *badges(facts)):
        assert re.fullmatch(r"index\.json|feed\.xml|badges/[a-z0-9_-]+\.svg", file.path)
