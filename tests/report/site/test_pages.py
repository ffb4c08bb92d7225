import functools
import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from jinja2 import UndefinedError

from pairbench.model.site import SiteFacts
from pairbench.site import paths, templates
from pairbench.site.build import assets
from pairbench.site.event_pages import ab_command, bisect_command, compare_command, regressions
from pairbench.site.marks import spark
from pairbench.site.overview import compare, overview, run, runs
from pairbench.site.paths import File, RunFacts
from pairbench.site.templates import environment
from tests.report.site import made
from tests.report.site.reading import Element, Page, read
from tests.report.site.reading import pages as read_pages

ROOT = Path(__file__).parents[3]
ASSETS = list(assets(ROOT / "dashboards" / "assets"))
OURS = [file for file in ASSETS if "plotly" not in file.path]


def build(facts: SiteFacts, found: Iterable[RunFacts] = ()) -> list[File]:
    files = [overview(facts), regressions(facts), compare(facts), runs(facts, {})]
    return [*files, *(file for one in found for file in run(facts, one))]


SITES: dict[str, tuple[SiteFacts, list[RunFacts]]] = {
    "usual": (made.site(), [made.run(number) for number in range(3)]),
    "empty": (made.empty(), []),
    "single": (made.site(1, events=()), [made.run()]),
    "failures": (made.only_failures(), [made.run(0, [made.failed()])]),
    **{f"hostile {n}": (made.hostile(name), [made.hostile_run(name)]) for n, name in enumerate(made.HOSTILE)},
}


@functools.cache
def files_of(name: str) -> list[File]:
    return build(*SITES[name])


@functools.cache
def pages_of(name: str) -> list[Page]:
    return read_pages(files_of(name))


def usual(path: str) -> Page:
    return next(page for page in pages_of("usual") if page.path == path)


@pytest.mark.parametrize("name", SITES)
def test_every_link_leads_to_a_file_of_the_site(name: str) -> None:
    facts, _ = SITES[name]
    # What others write: see operator_page, twins and feed.
    there = {file.path for file in [*files_of(name), *ASSETS]} | {"index.json", "feed.xml"}
    for head in [*facts.runs, *made.site().runs]:
        path = paths.run_page(head.run_id, head.device_name)
        there |= {path, paths.data_of(path)}
    there |= {paths.operator_page(row.device_name, row.suite, row.operator) for row in facts.rows}
    for page in pages_of(name):
        ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
        assert len(ids) == len(set(ids)), f"{page.path} has an id twice"
        for _, address in page.references():
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (
                posixpath.normpath(posixpath.join(posixpath.dirname(page.path), parts.path))
                if parts.path
                else page.path
            )
            assert target in there, f"{page.path} points at {address}"
            if parts.fragment and target == page.path:
                assert parts.fragment in ids, f"{page.path} points at {address}"


@pytest.mark.parametrize("name", SITES)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    for page in pages_of(name):
        for tag, address in page.references():
            scheme = urlsplit(address).scheme
            assert not scheme or (tag == "a" and scheme == "https"), f"{page.path}: <{tag}> {address}"
        assert all("src" in script.attributes for script in page.all("script"))
        assert not [script for script in page.all("script") if script.attributes.get("type") == "module"]


def test_assets_load_nothing() -> None:
    for file in OURS:
        text = file.content.decode()
        assert not re.search(r"https?://|@import|url\(", text), file.path
        code = re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE)
        assert not re.search(r"\bfetch\(|XMLHttpRequest|^\s*(import|export)\b", code, re.MULTILINE), file.path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", code), file.path
    plotly = next(file for file in ASSETS if "plotly" in file.path)
    assert plotly.path == "assets/plotly.packed.js" and len(plotly.content) > 1e6


@pytest.mark.parametrize("number", range(len(made.HOSTILE)))
def test_hostile_names_are_text(number: int) -> None:
    name = made.HOSTILE[number]
    plain = {page.path: page for page in pages_of("usual")}
    for page in pages_of(f"hostile {number}"):
        kind = posixpath.dirname(page.path)
        like = plain.get(page.path) or next(one for path, one in plain.items() if posixpath.dirname(path) == kind)
        assert len(page.all("script")) == len(like.all("script")) and not page.all("img", "iframe")
        assert not [key for element in page.elements for key in element.attributes if key.startswith("on")]
        # The beginning, as far as every place shows it.
        shown = templates.short(name, 500)[:5]
        assert shown in page.text, page.path
        # Without markup around it a name of 10,000 letters is shown cut, so no page shows all of it.
        assert "x" * 600 not in page.text
    for file in files_of(f"hostile {number}"):
        assert re.fullmatch(r"[a-z]+\.html|runs/[a-z0-9-]+\.(html|js)", file.path)


def test_tables_say_what_they_are() -> None:
    for page in pages_of("usual"):
        assert len(page.all("h1")) == 1 and page.all("html")[0].attributes["lang"] == "en"
        assert any(element.attributes.get("href") == "#main" for element in page.all("a"))
        for table in page.all("table"):
            assert page.within(table, "caption"), page.path
            box = next(one for one in reversed(table.inside) if one.attributes.get("class", "").startswith("scroll"))
            assert box.attributes["aria-label"] and box.attributes["tabindex"] == "0"
        assert all(element.attributes.get("scope") for element in page.all("th"))
        for control in page.all("select", "input"):
            assert any(outer.tag == "label" for outer in control.inside)


def test_what_filters_choose_by_stands_in_the_rows() -> None:
    forms = [(page, form) for page in pages_of("usual") for form in page.all("form")]
    assert forms
    for page, form in forms:
        names = {control.attributes["name"] for control in page.within(form, "select", "input")} - {"q"}
        for wanted in form.attributes.get("data-filters", "").split():
            items = _items(page, wanted)
            for item in items:
                for name in names:
                    assert {f"data-{name}", f"data-{name}s"} & item.attributes.keys(), (page.path, wanted, name)
            for select in page.within(form, "select"):
                values = {option.attributes.get("value") for option in page.within(select, "option")} - {""}
                name = f"data-{select.attributes['name']}"
                several = {one for item in items for one in item.attributes.get(f"{name}s", "").split("\n")} - {""}
                had = several or {item.attributes[name] for item in items if name in item.attributes}
                assert had <= values or not items, (page.path, select.attributes)


def _items(page: Page, table: str) -> list[Element]:
    found = [element for element in page.all("table") if element.attributes.get("data-table") == table]
    return [item for one in found for item in page.within(one, "tr", "tbody") if "data-item" in item.attributes]


def test_the_overview_shows_a_row_for_each_operator() -> None:
    page = usual("index.html")
    first, second = _items(page, "overview")
    assert "2.012x" in first.text and "1.987x to 2.031x" in first.text and "6 → 1" in first.text
    assert "1.800x to 2.250x" in first.text and "75% of tolerance left" in first.text
    assert "1 of 2" in second.text and second.attributes["data-state"] == "regression"
    heads = [head for head in page.all("th") if "data-sort" in head.attributes]
    assert {head.attributes["data-sort"] for head in heads} >= {"operator", "state", "speedup", "losing"}
    # Every row has as many cells as there are heads, or a column would sort by another's values.
    for item in (first, second):
        row = page.within(item, "tr")[0]
        assert len(page.within(row, "th", "td")) == len(heads)


def test_a_host_bound_row_and_what_could_not_be_read_are_named() -> None:
    rows = (made.row(host_bound=(made.CASE,)), made.row("silu"))
    page = overview(made.site(rows=rows, problems=("records/a.parquet: it is cut off",))).content.decode()
    assert "records/a.parquet: it is cut off" in page
    assert page.count("host-bound in 1 of 2") == 1 and "of the latency on the device" in page


@pytest.mark.parametrize("latency", ["device", "call"])
def test_a_run_on_a_gpu_has_the_call_and_the_host_beside_its_results(latency: str) -> None:
    facts = made.series_facts()
    one = replace(facts, texts={**facts.texts, "latency": latency, "bound": "host"})
    page, data = (file.content.decode() for file in run(made.site(), replace(made.run(0), series=(one,))))
    assert ('data-sort="host"' in page) == ('"host":[' in data) == (latency == "device")
    assert '"p50":[100000]' in data and ("on the device" in page) == (latency == "device")


@pytest.mark.parametrize(
    ("name", "path", "told"),
    [
        ("empty", "index.html", "pairbench run"),
        ("empty", "regressions.html", "pairbench run"),
        ("empty", "compare.html", "pairbench run"),
        ("empty", "runs.html", "pairbench run"),
        ("single", "index.html", "There is one run"),
        ("single", "regressions.html", "pairbench run --confirm"),
        ("single", "compare.html", "no second run"),
        ("failures", "index.html", "Nothing could be measured"),
        ("failures", paths.run_page(made.head(0).run_id, made.DEVICE), "RuntimeError: out of luck"),
    ],
)
def test_a_page_with_little_says_what_to_do(name: str, path: str, told: str) -> None:
    page = next(page for page in pages_of(name) if page.path == path)
    assert told in page.text


def test_accepted_events_are_folded_away() -> None:
    kept = made.event(1, life="accepted", moved=(made.moved(accepted="for clarity", life="accepted"),))
    page = read(regressions(made.site(events=(made.event(2), kept))))
    assert len(_items(page, "events")) == 1 and len(_items(page, "accepted")) == 1
    table = next(table for table in page.all("table") if table.attributes.get("data-table") == "accepted")
    assert any(outer.tag == "details" for outer in table.inside) and "for clarity" in table.text


def test_an_event_says_who_did_it_and_how_to_see_it_again() -> None:
    happened = made.event(2, era=("driver 580.1 -> 580.2",), moved=(made.moved(relative=1.049),))
    page = read(regressions(made.site(events=(happened,))))
    (item,) = _items(page, "events")
    told = {part.strip(" \n:") for part in re.split(r"\n|: ", item.text)}
    assert {"code", "driver 580.1 -> 580.2"} <= told
    assert "rms_norm fused +4.90%, code (its control +0.10%)" in " ".join(item.text.split())
    assert "own +5.00%, control +0.10%" in item.text and "still there" in item.text
    assert "new 1 x copy_kernel (3.100 us)" in item.text
    commands = [compare_command(made.event(2)), ab_command(made.event(2))]
    assert all(command and command in item.text for command in commands)
    assert "100.0 us" in item.text and "105.0 us" in item.text and "it moved and its control did not" in item.text
    before, after = made.head(1).commit, made.head(2).commit
    links = (f"compare/{before}...{after}", f"commit/{before}", f"commit/{after}")
    assert {f"{made.REPOSITORY}/{link}" for link in links} <= {address for _, address in page.references()}


def test_an_event_without_a_latency_gives_its_reason() -> None:
    worse = made.event(
        1, kind="newest", direction="worse", moved=(made.moved(change=0.9, reason="1 more memset a call"),)
    )
    first, page = read(overview(made.site(events=(worse,)))), read(regressions(made.site(events=(worse,))))
    (item,) = _items(page, "events")
    assert "1 more memset a call" in first.text and "1 more memset a call" in item.text


def test_commands_are_one_word_an_argument() -> None:
    event = made.event(1, moved=(made.moved(made.series("it's [a=$(rm)]", mode="graph")),))
    assert compare_command(event) == f"pairbench compare {made.head(0).run_id} {made.head(1).run_id}"
    assert (compare_command(event, ("--store", "my store")) or "").endswith(" --store 'my store'")
    ab = ab_command(event)
    assert ab is not None and ab.endswith("""--mode graph 'suites/norm.py::it'"'"'s [a=$(rm)]'""")
    bisect = bisect_command(made.event(2, moved=event.moved))
    assert bisect is not None and f"--good {made.head(1).commit} --bad {made.head(2).commit}" in bisect
    assert bisect.startswith("""pairbench bisect 'suites/norm.py::it'"'"'s [a=$(rm)]' -i fused --mode graph """)
    assert bisect_command(made.event(1, before=made.head(0, dirty=True))) is None
    assert ab_command(made.event(1, before=made.head(0, dirty=True))) is None
    assert ab_command(made.event(1, before=made.head(0, commit=made.head(1).commit))) is None
    assert compare_command(made.event(1, before=None)) is None


def test_a_run_shows_everything_recorded() -> None:
    page = usual(paths.run_page(made.head(0).run_id, made.DEVICE))
    rows = {row.text.split("\n")[0] for row in page.all("tr")}
    assert any(row.startswith("cudnn.benchmark") and row.endswith("no") for row in rows)
    assert "sw_power_cap in 2 series" in page.text and "precise enough in 3 series, time in 1 series" in page.text


def test_a_line_of_speedups() -> None:
    assert spark((None, 2.0)) is None
    line = spark((1.0, 2.0, None, 4.0, float("nan"), 2.0, 1.0))
    assert line is not None and line.one is not None
    # A gap ends a stretch, and what is alone between gaps is a dot.
    assert [len(points.split()) for points in line.lines] == [2, 2] and len(line.dots) == 2
    heights = [float(point.split(",")[1]) for point in line.lines[0].split()]
    assert heights[0] == line.one > heights[1]
    assert line.words == "Speedup in the newest 5 runs: first 1.000x, least 1.000x, most 4.000x, newest 1.000x"


def test_words() -> None:
    assert templates.cut("a<b", 10) == "a&lt;b"
    assert templates.cut("op[n=10,m=<2>]", 20) == "op[n=10,<wbr>m=&lt;2&gt;]"
    assert templates.cut("\u202eabc\u05d0") == '<bdi title="abc\u05d0">abc\u05d0</bdi>'
    assert templates.cut("x" * 20, 9) == f'<span title="{"x" * 20}">xxxxx…xxx</span>'
    assert ">2026-11-20 15:39<" in templates.moment("2026-11-20T16:39:33.5+01:00")
    assert templates.moment("<yesterday>") == "&lt;yesterday&gt;" and templates.moment(None) == ""
    assert templates.span((4, 4)) == "4" and templates.span((4, 2064)) == "4 to 2,064" and templates.span(None) == ""
    assert templates.number(float("nan")) == "" and templates.number(1234567.0) == "1.23457e+06"
    assert 'class="state state-failed"' in templates.state("oom") and 'class="state state-other"' in templates.state(
        'x"y'
    )


def test_a_name_that_is_not_known_fails(tmp_path: Path) -> None:
    (tmp_path / "page.html.j2").write_text("{{ nothing }}")
    with pytest.raises(UndefinedError, match="nothing"):
        environment(tmp_path).get_template("page.html.j2").render()


def test_compiled_templates_are_kept_beside_them_where_that_is_possible(tmp_path: Path) -> None:
    for folder, is_kept in ((tmp_path / "kept", True), (tmp_path / "not", False)):
        folder.mkdir()
        (folder / "page.html.j2").write_text("text")
        if not is_kept:  # as in a folder that cannot be written
            (folder / "__pycache__").write_text("")
        assert environment(folder).get_template("page.html.j2").render() == "text"
        assert (folder / "__pycache__").is_dir() == is_kept
        (folder / "page.html.j2").write_text("new")
        assert environment.__wrapped__(folder).get_template("page.html.j2").render() == "new"
