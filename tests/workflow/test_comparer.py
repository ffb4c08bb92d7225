import contextlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.cli.app import main
from pairbench.config import Config
from pairbench.model.comparison import Acceptance, Calibration, Floor
from pairbench.model.record import Record, Series
from pairbench.site.gather import SiteReading
from pairbench.store.documents import read_acceptances, read_calibrations, write_document
from pairbench.store.reader import RunIndex
from pairbench.workflow.comparer import Comparer
from pairbench.workflow.git import Repository
from tests.builders import CASES, DEVICE, SUITE, make_acceptance, make_calibration, make_run, run_id_of, write_runs

ONCE = {"index": 1, "repository": 1, "acceptances": 1, "calibrations": 1}


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often what a comparison needs is opened."""
    counts: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return call(*arguments, **options)

        return wrapped

    monkeypatch.setattr(RunIndex, "of_store", staticmethod(counted("index", RunIndex.of_store)))
    room = "pairbench.workflow.comparer"
    monkeypatch.setattr(f"{room}.Repository", counted("repository", Repository))
    monkeypatch.setattr(f"{room}.read_acceptances", counted("acceptances", read_acceptances))
    monkeypatch.setattr(f"{room}.read_calibrations", counted("calibrations", read_calibrations))
    return counts


def test_any_number_of_comparisons_open_a_store_once(tmp_path: Path, opens: Counter[str]) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(4)))
    comparer = Comparer.open(Config(root=tmp_path, store=str(tmp_path)))
    newest = comparer.compare()
    earlier = comparer.compare(current=run_id_of(2))
    assert comparer.compare() == newest != earlier
    assert comparer.accepted_levels({series: record for record in make_run(3) if (series := Series.of(record))}) == {}
    assert opens == ONCE


def test_a_site_with_many_runs_opens_its_store_once(tmp_path: Path, opens: Counter[str]) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(14)))
    reading = SiteReading(Config(root=tmp_path, store=str(tmp_path)))
    assert len(list(reading.operators())) == 1 and len(list(reading.runs())) == 14
    assert opens == ONCE


pytestmark = pytest.mark.slow

CASE = CASES[0]
SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASE, implementation="fused", mode="eager")
LEVEL = make_acceptance(SERIES, p50_ns=110_000.0, p95_ns=120_000.0, run_id=run_id_of(11))
CALIBRATION = make_calibration({SERIES: Floor(p50=0.0392, p95=0.0392, runs=2, source="calibration")})
"""Twice this floor, 8 %, is the series' minimum effect."""


def verdicts(store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what each of the three says of the series, the comparison against the last run before the level."""

    def document(*arguments: str) -> dict[str, Any]:
        monkeypatch.setattr("sys.argv", ["pairbench", *arguments, "--store", str(store), "--format", "json"])
        with contextlib.suppress(SystemExit):
            main()
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return said

    monkeypatch.chdir(store)
    compared = document("compare", run_id_of(11), "latest")
    (change,) = [one for one in compared["changes"] if one["name"] == SERIES.name]
    reading = SiteReading(Config(root=store, store=str(store)))
    list(reading.operators())
    moved = [one for event in reading.facts.events for one in event.moved if one.series == SERIES]
    slower = [one for one in moved if one.change is None or one.change > 1]
    assert slower, "the site shows that the series moved"
    return {
        "compare": change["outcome"],
        "trend": document("trend", SERIES.name)["newest"]["outcome"],
        "site": "unchanged" if all(one.accepted for one in slower) else "regression",
    }


def history(level: float, noise: float = 0.0) -> list[tuple[Record, ...]]:
    """Return twelve runs of 100 us, which differ by some noise from run to run, and five of a level above them."""
    return [
        make_run(day, cases=[CASE], slower={"fused": (level if day >= 12 else 1.0) * (1 + noise * (-1) ** day)})
        for day in range(17)
    ]


@pytest.mark.parametrize(
    ("over", "noise", "floor", "level", "expected"),
    [
        (1.03, 0.0, CALIBRATION, LEVEL, "unchanged"),
        (1.05, 0.0, CALIBRATION, LEVEL, "unchanged"),
        (1.12, 0.0, CALIBRATION, LEVEL, "regression"),
        (1.05, 0.0, None, LEVEL, "regression"),  # without a floor the minimum effect is the policy's
        (1.05, 0.01, None, LEVEL, "unchanged"),  # only the past tells the minimum effect
        (1.0, 0.0, None, replace(LEVEL, definition_hash="other"), "regression"),
    ],
)
def test_all_three_accept_a_level_up_to_the_series_own_minimum_effect(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    over: float,
    noise: float,
    floor: Calibration | None,
    level: Acceptance,
    expected: str,
) -> None:
    write_runs(tmp_path, *history(1.1 * over, noise))
    if floor is not None:
        write_document(tmp_path, floor)
    write_document(tmp_path, level)
    assert verdicts(tmp_path, capsys, monkeypatch) == dict.fromkeys(["compare", "trend", "site"], expected)
