import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.analyze.history.trend import make_trend
from pairbench.model.breakdown import KernelCount
from pairbench.model.site import About, SiteFacts
from pairbench.report import units
from pairbench.report.operator_charts import speedup_chart
from pairbench.report.trend import series_chart
from pairbench.site import operator as operator_page
from pairbench.site import paths
from pairbench.site.paths import Contribution, OperatorFacts, series_anchor
from tests import builders
from tests.report.site import made
from tests.report.site.reading import Page, read, value_of

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "dashboards" / "assets"


def values(page: Page, tag: str, name: str) -> list[str]:
    """Return an attribute of all elements of a kind that have it."""
    return [element.attributes[name] for element in page.all(tag) if name in element.attributes]


def pages(facts: SiteFacts, operator: OperatorFacts) -> tuple[Page, dict[str, Any]]:
    page, data, *_ = operator_page.operator(facts, operator)
    key = (operator.device_name, operator.suite, operator.operator)
    assert (page.path, data.path) == (paths.operator_page(*key), paths.data_of(page.path))
    return read(page), payload_of(data.content)


def payload_of(content: bytes) -> dict[str, Any]:
    assert b"</" not in content
    _, value = value_of(content)
    assert isinstance(value, dict)
    return value


@pytest.fixture(scope="module")
def operator() -> OperatorFacts:
    return made.operator()


@pytest.fixture(scope="module")
def made_of(operator: OperatorFacts) -> tuple[Page, dict[str, Any]]:
    return pages(made.site(12), operator)


@pytest.fixture(scope="module")
def page(made_of: tuple[Page, dict[str, Any]]) -> Page:
    return made_of[0]


@pytest.fixture(scope="module")
def payload(made_of: tuple[Page, dict[str, Any]]) -> dict[str, Any]:
    return made_of[1]


def test_the_page_says_it_all_without_scripts(page: Page, operator: OperatorFacts) -> None:
    text = " ".join(page.text.split())
    assert "rms_norm" in text and "Root mean square norm over the last axis." in text and "transformers" in text
    assert f"{made.REPOSITORY}/blob/{builders.sha(0)}/{builders.SUITE}#L12" in values(page, "a", "href")
    assert f"{made.REPOSITORY}/commit/{builders.sha(0)}" in values(page, "a", "href")
    (row,) = operator.contribution.rows
    assert row.speedup is not None
    assert units.ratio(row.speedup.estimate) in text and "6 → 1" in text
    assert f"{units.ratio(row.speedup.low)} to {units.ratio(row.speedup.high)}" in text
    assert "regression" in text and "+10.0%" in text and "code" in text
    assert "100.0 us" in text and "200.0 us" in text and "110.0 us" in text and "±1.0%" in text
    assert "2.000x" in text and "1.980-2.020" in text and "75%" in text and "40%" in text and "1.000 MiB" in text
    assert values(page, "tr", "data-implementation") == ["baseline", "fused"] * 2


def test_every_row_links_to_the_history_of_its_series(page: Page, payload: dict[str, Any]) -> None:
    links = [link for link in values(page, "a", "href") if link.startswith("#series=")]
    heat = len({one["case"] for one in payload["series"]})
    assert set(links[:heat]) <= set(links[heat:]), "the cells of the heat map lead where rows lead"
    links = links[heat:]
    assert [link.removeprefix("#series=") for link in links] == [one["id"] for one in payload["series"]]
    assert len({one["id"] for one in payload["series"]}) == 4


def test_what_the_page_loads_lies_beside_it(page: Page, operator: OperatorFacts) -> None:
    scripts = values(page, "script", "src")
    assert values(page, "section", "data-plotly") == ["../assets/plotly.packed.js"], (
        "loaded when a chart comes near the window"
    )
    ours = {source.removeprefix("../assets/") for source in scripts if source.startswith("../assets/")}
    assert ours - {"plotly.packed.js"} <= {file.name for file in ASSETS.iterdir()}
    key = (operator.device_name, operator.suite, operator.operator)
    assert f"../{paths.data_of(paths.operator_page(*key))}" in scripts
    assert values(page, "div", "data-name") == [paths.operator_page(*key).removesuffix(".html")]
    assert not [link for link in [*scripts, *values(page, "link", "href")] if "//" in link]


def test_every_chart_has_a_name_and_a_summary_in_words(page: Page) -> None:
    ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(ids) == len({*ids})
    charts = [element.attributes for element in page.elements if "data-chart" in element.attributes]
    assert [attrs["data-chart"] for attrs in charts] == ["scaling", "speedup", "roofline", "trend", "ecdf", "kernels"]
    for attrs in charts:
        assert attrs["role"] == "figure" and {*attrs["aria-labelledby"].split()} <= {*ids}


def test_series_are_what_the_chart_of_a_trend_has(operator: OperatorFacts, payload: dict[str, Any]) -> None:
    trend = series_chart(operator.trends[1])
    found = payload["series"][1]["trend"]
    for name in ("p50", "low", "high", "p95", "control", "speedup"):
        assert found[name] == pytest.approx(trend.lines[name], rel=5e-4)
    assert found["levels"] == [[step.start, step.stop, pytest.approx(step.value, rel=5e-4)] for step in trend.levels]
    assert [[mark.at, mark.kind, mark.label] for mark in trend.marks] == found["marks"]
    assert found["unit"] == "us" and found["control_name"] == "baseline"


def test_points_lead_to_their_runs(operator: OperatorFacts, payload: dict[str, Any]) -> None:
    found = [payload["runs"][place] for place in payload["series"][1]["trend"]["runs"]]
    assert [run["id"] for run in found] == [builders.run_id_of(number) for number in range(12)]
    assert found[3]["href"] == f"../{paths.run_page(builders.run_id_of(3), builders.DEVICE)}"
    assert found[3]["url"] == f"{made.REPOSITORY}/commit/{builders.sha(3)}"
    assert found[3]["commit"] == builders.sha(3)[:7] and found[3]["at"] == "2024-01-01 03:00"


def test_samples_kernels_speedup_and_roofline_are_there(operator: OperatorFacts, payload: dict[str, Any]) -> None:
    one = payload["series"][1]
    assert len(one["quantiles"]) == 101 and one["quantiles"][50] == pytest.approx(1e5)
    ((kernel, count, ns),) = one["kernels"]
    assert payload["kernels"][kernel]["name"] == "fused_kernel" and (count, ns) == (1, 90_000)
    points = speedup_chart(operator.series).points
    assert [point[:3] for point in payload["speedup"]["points"]] == [[p.series_index, p.group, p.row] for p in points]
    assert [payload["series"][point[0]]["id"] for point in payload["speedup"]["points"]] == [
        series_anchor(operator.series[point.series_index].series) for point in points
    ]
    assert len(payload["roofline"]["points"]) == 4 and [roof["name"] for roof in payload["roofline"]["roofs"]] == [
        "copy",
        "bfloat16",
    ]


def test_gaps_are_null_and_nothing_is_nan() -> None:
    records = [
        builders.ended(record, "failed", "died") if number == 2 else replace(record, call_p50_ns_low=None)
        for number in range(4)
        for record in builders.make_run(number, cases=[made.CASE])
    ]
    series = made.case_facts()
    series = (
        series[0],
        replace(series[1], numbers={**series[1].numbers, "speedup_low": math.nan, "p95_ns": math.inf}),
    )
    facts = made.operator(series=series, trends=tuple(make_trend(records, one.series) for one in series), events=())
    _, found = pages(made.site(4), facts)
    trend = found["series"][1]["trend"]
    assert trend["p50"][2] is None and trend["p50"][1] > 0 and trend["low"] == []
    assert found["series"][1]["numbers"]["p95_ns"] is None


def test_only_what_can_be_told_apart_is_filtered_by(operator: OperatorFacts) -> None:
    found = operator_page.choices(operator_page.implementation_rows(operator))
    assert found == {"implementation": ("baseline", "fused")}


def remarks(**changes: Any) -> tuple[str, ...]:
    """Return the remarks on a series whose record has other numbers or texts."""
    facts = made.series_facts(texts={}, reason=changes.pop("reason", None))
    numbers = {name: value for name, value in changes.items() if not isinstance(value, str)}
    texts = {name: value for name, value in changes.items() if isinstance(value, str)}
    one = replace(facts, numbers={**facts.numbers, **numbers}, texts=texts)
    (row,) = operator_page.implementation_rows(made.operator(0, series=(one,), trends=(), events=()))
    return tuple(row.remarks)


def test_remarks_say_what_is_to_be_known() -> None:
    texts = dict(throttle_reasons="sw_power_cap", stop_reason="time_cap", launch_status="unreliable")
    assert remarks(**texts, reuses_output="yes", consumes="a, b", reason="interrupted", remeasured_blocks=3) == (
        "interrupted",
        "overwrites its inputs a, b",
        "throttled: sw_power_cap",
        "3 blocks measured again",
        "stopped by time_cap",
        "launches unreliable",
        "returns the same memory in each call",
    )


def test_both_speedups_are_said_where_replays_and_launches_differ() -> None:
    replayed: dict[str, Any] = dict(device_timer="graph_replay", latency="device", speedup_of="device", speedup=4.1)
    assert remarks(**replayed, stream_speedup=5.7) == ("4.100x by kernels alone, 5.700x as eager code launches them",)
    assert remarks(**replayed, stream_speedup=4.2) == ()


def test_the_best_alternative_is_said_where_it_is_not_the_baseline() -> None:
    assert remarks(best_alternative="builtin", speedup_over_best=1.93) == ("1.930x over builtin, the best alternative",)
    assert remarks(best_alternative="baseline", speedup_over_best=1.93) == ()
    assert remarks(best_alternative="builtin", speedup_over_best=1.93, withheld="busy") == ("speedup withheld: busy",)


def only_failures() -> OperatorFacts:
    identities = [made.series(implementation=name) for name in ("baseline", "fused")]
    records = [builders.ended(one, "failed") for one in builders.make_run(0)]
    trends = tuple(make_trend(records, one) for one in identities)
    return made.operator(1, series=tuple(map(made.failed, identities)), trends=trends, events=())


@pytest.mark.parametrize(
    ("facts", "operator", "says", "commands"),
    [
        (made.site(1), made.operator(1, events=()), "too few to find a change", []),
        (made.empty(), made.operator(0, series=(), trends=(), events=()), "Nothing of this operator", ["run"]),
        (made.only_failures(), only_failures(), "No implementation could be measured", ["verify"]),
    ],
)
def test_little_or_nothing_says_what_to_do_next(
    facts: SiteFacts, operator: OperatorFacts, says: str, commands: list[str]
) -> None:
    page, _ = pages(facts, operator)
    assert says in page.text
    assert [name for name in ("run", "verify") if f"pairbench {name}" in page.text] == commands


def hostile(name: str) -> OperatorFacts:
    """Return an operator in which everything that has a name has this one."""
    identities = [
        made.series(f"{name}[n=1]", implementation, name, device_name=name, suite=name)
        for implementation in ("baseline", name, f"{name}2")
    ]
    kernels = (KernelCount(name=name, count=2, total_ns=5000.0),)
    known = [
        made.series_facts(one, kernels=kernels, axes={name: name}, dtype=name, tier=name) for one in identities[:2]
    ]
    names = dict.fromkeys(("case", "device_name", "suite", "mode", "commit"), name) | {"case": f"{name}[n=1]"}
    found = [
        replace(record, **names, implementation=name if record.role == "variant" else "baseline")  # type: ignore[arg-type]
        for day in range(8)
        for record in builders.make_run(
            day,
            cases=[made.CASE],
            slower={"fused": 1.2} if day >= 4 else {},
            driver=name * (day % 2),
            environment_hash=str(day % 2),
        )
    ]
    return OperatorFacts(
        device_name=name,
        suite=name,
        operator=name,
        about=About(summary=name, source=name, path=name, line=1),
        series=(*known, made.failed(identities[2], status=name, reason=name)),
        trends=tuple(make_trend(found, one) for one in identities),
        contribution=Contribution(rows=()),
        ceilings={"copy_gbps": 4000.0, f"{name}_tflops": 50.0},
        events=made.hostile(name).events,
    )


@pytest.mark.parametrize("name", made.HOSTILE)
def test_hostile_names_are_only_text(name: str) -> None:
    facts, operator = made.hostile(name), hostile(name)
    plain, _ = pages(made.hostile("plain"), hostile("plain"))
    files = [*operator_page.operator(facts, operator)]
    page, found = read(files[0]), payload_of(files[1].content)
    allowed = {element.tag for element in plain.elements}
    assert {element.tag for element in page.elements} <= allowed | {"bdi"} and not page.all("img")
    assert not [name for element in page.elements for name in element.attributes if name.startswith("on")]
    assert all(link.startswith(("../", "#", "https://")) for link in values(page, "a", "href"))
    assert not [link for link in values(page, "a", "href") if ".." in link.removeprefix("../")]
    assert max(len(text) for text in strings(found)) <= 500
    for file in files:
        assert re.fullmatch(r"operators/[a-z0-9_-]+\.(html|js)", file.path)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def test_fifty_series_of_two_hundred_runs_are_small() -> None:
    """Below 3 MB, every value of every run included."""
    cases = [f"op[n={number}]" for number in range(25)]
    kernels = tuple(KernelCount(name=f"kernel<{at}, {'x' * 200}>", count=1, total_ns=1e3 / 3) for at in range(10))
    series = tuple(
        made.series_facts(made.series(case, name), kernels=kernels, axes={"n": at}, level=1e5 / 3)
        for at, case in enumerate(cases)
        for name in ("baseline", "fused")
    )
    runs = [
        builders.make_run(number, cases=[cases[0]], slower={"fused": 1.1} if number > 99 else {})
        for number in range(200)
    ]
    one = {
        name: make_trend([record for run in runs for record in run], made.series(cases[0], name))
        for name in ("baseline", "fused")
    }
    trends = tuple(one[facts.series.implementation] for facts in series)
    page, data = operator_page.operator(made.site(200), made.operator(series=series, trends=trends, events=()))
    found = payload_of(data.content)
    assert len(found["series"]) == 50 and len(found["runs"]) == 200
    assert all(len(one["trend"]["p50"]) == 200 for one in found["series"])
    assert len(page.content) + len(data.content) < 3_000_000
    assert len(data.content) < 1_000_000


def test_the_precision_of_float32_is_said_on_a_gpu() -> None:
    operator = made.operator(2)
    given = {"float32_precision": "ieee", "device_uuid": "GPU-1"}

    def text(**texts: str) -> str:
        series = tuple(replace(one, texts={**one.texts, **texts}) for one in operator.series)
        return pages(made.site(2), replace(operator, series=series))[0].text

    assert "float32 products and convolutions: IEEE float32" in text(**given)
    assert "float32 products" not in text(**{**given, "device_uuid": ""}) and "float32 products" not in text()
