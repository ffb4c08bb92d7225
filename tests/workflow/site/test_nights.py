import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pairbench.config import Config
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.record import Record
from pairbench.model.site import Event
from pairbench.site import gather
from pairbench.site.event_pages import bisect_command, headline
from pairbench.site.gather import SiteReading
from pairbench.workflow.comparer import Comparer
from tests.builders import ended, make_run, run_id_of, write_runs

H200, H100 = "NVIDIA H200", "NVIDIA H100"
DRIFT, SLOWER, NEW, FAILS, DRIVER, NIGHTS = 6, 20, 23, 25, 27, 36
OPERATORS = ("conv", "rope", "silu", "softmax")
Told = Mapping[int, dict[str, Event]]

LATER = {"new gelu", "failed softmax", "environment"}


def case(operator: str) -> str:
    return f"{operator}[dtype=bfloat16,tokens=64]"


def night(number: int, device: str) -> Iterable[Record]:
    """Return the records of a device's run: silu 5 % slower, conv drifting by 0.2 % a night, softmax failing, and 2 % less of a driver."""
    here, driver = device == H200, number >= DRIVER
    slower = {f"{case('silu')}-fused": 1.05} if number >= SLOWER else {}
    if here:
        slower[f"{case('conv')}-fused"] = 1.002 ** max(0, number - DRIFT + 1)
    slower |= dict.fromkeys(("baseline", "fused"), 0.98) if driver else {}
    cases = [case(one) for one in (*OPERATORS, *(["gelu"] if number >= NEW else []))]
    changes: dict[str, Any] = {"driver": "580.2", "environment_hash": "e" * 16} if driver else {}
    records = make_run(24 * number + (not here), cases=cases, slower=slower, cv=0.004, device_name=device, **changes)
    for record in records:
        said = replace(record, commit_number=100 + 3 * number, pull_request=1000 + number, commit_author="Ada")
        broken = here and number >= FAILS and (record.operator, record.implementation) == ("softmax", "fused")
        yield ended(said, "failed", "illegal memory access") if broken else said


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    store = tmp_path_factory.mktemp("nights")
    return Config(root=store, store=str(store))


@pytest.fixture(scope="module")
def told(config: Config) -> Told:
    """Return the events as they stood after each of some nights, by kind and first operator."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "_RUNS", 0)  # the pages of runs, which are not looked at
        for number in range(NIGHTS + 1):
            write_runs(config.store, *(tuple(night(number, device)) for device in (H200, H100)))
            if number in (SLOWER, DRIVER, NIGHTS):
                reading = SiteReading(config)
                assert len(list(reading.operators())) > 0
                found[number] = {_name(event): event for event in reading.facts.events}
                assert len(found[number]) == len(reading.facts.events)
    return found


def _name(event: Event) -> str:
    kind = "step" if event.kind in ("moved", "newest") else event.kind
    return kind if kind == "environment" else f"{kind} {event.moved[0].series.operator}"


def test_every_event_is_there_on_its_night_and_nothing_else(told: Told) -> None:
    assert set(told[SLOWER]) == {"drift conv", "step silu"}
    assert set(told[DRIVER]) == set(told[NIGHTS]) == {"drift conv", "step silu"} | LATER


def test_an_event_keeps_its_id_and_a_clear_step_its_range(told: Told) -> None:
    first, later = told[SLOWER]["step silu"], told[NIGHTS]["step silu"]
    assert (first.kind, later.kind, first.key) == ("newest", "moved", later.key)
    assert first.commits == later.commits == 3
    assert not first.blames and later.blames
    assert [one.device_name for one in later.everywhere] == [H200, H100]
    for name in ("drift conv", *LATER):
        keys = {event.key for last in told if (event := told[last].get(name))}
        assert len(keys) == 1, name


def test_a_drift_blames_nobody_and_offers_its_range(told: Told) -> None:
    event = told[NIGHTS]["drift conv"]
    assert event.last is not None and not event.blames and event.open
    assert (event.direction, event.outcome) == ("slower", GateOutcome.REGRESSION)
    assert event.after.run_id in [run_id_of(24 * (DRIFT + off)) for off in range(-4, 5)]
    assert event.moved[0].relative == pytest.approx(1.002 ** (NIGHTS - DRIFT + 1), rel=0.01)
    assert re.match(r"rises 0\.2\d* % a run since about 2024-01-.*; no single commit; ", event.moved[0].reason)
    command = bisect_command(event)
    assert command is not None and str(event.last.commit) in command


def test_a_driver_is_one_event_of_all_series_and_is_noted_later(told: Told) -> None:
    first, later = told[DRIVER]["environment"], told[NIGHTS]["environment"]
    assert headline(first).operator == "driver 580.1 -> 580.2"
    assert first.median == pytest.approx(0.98, abs=0.003) and later.median == pytest.approx(0.98, abs=0.002)
    assert (first.life, later.life) == ("still there", "noted")
    assert [one.device_name for one in first.everywhere] == [H200, H100]
    assert {one.attribution for one in first.moved} == {Attribution.ENVIRONMENT}
    assert told[DRIVER]["new gelu"].open and not told[NIGHTS]["new gelu"].open


def test_a_failure_says_since_when_and_nothing_of_its_source(told: Told, config: Config) -> None:
    comparer = Comparer.open(config)
    compared = comparer.compare().comparison
    assert set(compared.current.runs) == {run_id_of(24 * NIGHTS), run_id_of(24 * NIGHTS + 1)}
    (failed,) = [one for one in compared.changes if one.outcome is GateOutcome.FAILED]
    assert f"failing since run {run_id_of(24 * FAILS)} (commit " in failed.reason
    assert f"pull request {1000 + FAILS})" in failed.reason and "source" not in failed.reason
    earlier = comparer.compare(current=run_id_of(24 * FAILS)).comparison
    (first,) = [one for one in earlier.changes if one.outcome is GateOutcome.FAILED]
    assert "its source did not change" in first.reason and "since" not in first.reason
