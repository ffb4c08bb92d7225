import json
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.record import Record, Series
from pairbench.report.render import FORMATS, Terminal
from pairbench.report.trend import render_trend
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, run_id_of, sha
from tests.golden import assert_golden

CASE = CASES[0]
FUSED = Series(device_name=DEVICE, suite=SUITE, case=CASE, implementation="fused", mode="eager")
PIPE = Terminal()
HOSTILE = "a|b`c*_[link](x)<script>&$\n::error::\x1b[2J" + "x" * 10_000


def run(day: int) -> list[Record]:
    """Return a run with what happens to it: a failure, a slower variant, a driver, a definition."""
    slower = {"fused": 1.05} if day >= 10 else {}
    changes = {"driver": "580.2", "environment_hash": "g"} if day >= 20 else {}
    changes |= {"definition_hash": "new"} if day >= 30 else {}
    records = [replace(record, **changes) for record in make_run(24 * day, cases=[CASE], slower=slower)]  # type: ignore[arg-type]
    return [ended(record, "failed", "died of SIGSEGV") for record in records] if day == 5 else records


@pytest.fixture(scope="module")
def eventful() -> Trend:
    return make_trend([record for day in range(40) for record in run(day)], FUSED)


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_the_newest_run_comes_first_and_then_what_happened(eventful: Trend, output: str) -> None:
    text = render_trend(eventful, output, problems=["bad.parquet: broken"], terminal=PIPE)
    assert_golden(Path(__file__).parent / "golden" / f"trend.{output}.txt", text)


def test_json_has_every_run(eventful: Trend) -> None:
    document = json.loads(render_trend(eventful, "json", problems=["a problem"]), parse_constant=pytest.fail)
    assert len(document["points"]) == 40 and document["problems"] == ["a problem"]
    assert document["points"][5]["p50_ns"] is None and document["points"][5]["reason"] == "died of SIGSEGV"
    assert document["points"][6]["p50_ns"]["estimate"] == pytest.approx(1e5, rel=0.02)
    (move,) = document["moves"]
    assert move["commits"] == [sha(24 * 9), sha(24 * 10)] and move["attribution"] == "code"
    assert move["runs"] == [run_id_of(24 * 9), run_id_of(24 * 10)]
    assert document["definitions"] == [30] and document["eras"][0]["index"] == 20
    assert document["newest"]["outcome"] == "unchanged"


@pytest.mark.parametrize("output", FORMATS)
def test_hostile_names_come_out_as_text(output: str) -> None:
    series = Series(device_name=HOSTILE, suite=HOSTILE, case=HOSTILE, implementation="fused", mode=HOSTILE)
    records = [
        replace(
            record, driver=HOSTILE * (day > 1), environment_hash=str(day > 1), commit=HOSTILE, run_id=f"{day}{HOSTILE}"
        )
        for day in range(4)
        for record in make_run(24 * day, cases=[CASE])
    ]
    records += [ended(replace(record, run_id=f"9{HOSTILE}"), HOSTILE, HOSTILE) for record in records[:2]]
    text = render_trend(make_trend(records, series), output, problems=[HOSTILE], terminal=PIPE)
    assert "\x1b" not in text
    if output == "markdown":
        assert "<script" not in text and "](x)" not in text.replace("\\]", "")
    if output != "json":
        assert not any(line.startswith("::") for line in text.splitlines())
        assert len(text) < 40_000


@pytest.mark.parametrize("output", FORMATS)
def test_no_runs(output: str) -> None:
    text = render_trend(make_trend([], FUSED), output, terminal=PIPE)
    assert json.loads(text)["points"] == [] if output == "json" else "no run" in text


def test_a_narrow_terminal_loses_nothing(eventful: Trend) -> None:
    text = render_trend(eventful, "table", terminal=Terminal(width=60, color=True))
    assert "\x1b[" in text
    plain = render_trend(eventful, "table", terminal=Terminal(width=60))
    assert max(map(len, plain.splitlines())) <= 60
