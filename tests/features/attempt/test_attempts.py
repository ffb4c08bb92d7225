import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.features.attempt import attempts
from pairbench.features.attempt.attempts import LastTries, NewestRuns, beside
from pairbench.model.environment import HostLoad
from pairbench.model.record import Record, Series
from pairbench.store.location import StoreLocation
from tests.analyze.test_records import ENVIRONMENT
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, run_id_of, with_device, write_runs

BUSY = json.dumps(HostLoad(cores=2, before=1.9).put_in(ENVIRONMENT).rest)


def record(p50_us: float, *, spread: float = 0.001, **changes: Any) -> Record:
    """Return a variant's result on a CPU, with the ends of its interval so far from its median."""
    (_, variant) = make_run(device_kind="cpu", timer="perf_counter", cases=("norm[n=1]",))
    latency = {"call_p50_ns": p50_us * 1e3, "device_p50_ns": None}
    latency |= {"call_p50_ns_low": p50_us * 1e3 * (1 - spread), "call_p50_ns_high": p50_us * 1e3 * (1 + spread)}
    return replace(variant, **{**latency, "environment": "{}", **changes})


def speedup(value: float) -> dict[str, Any]:
    return {"speedup": value, "speedup_low": value * 0.999, "speedup_high": value * 1.001}


@pytest.mark.parametrize(
    ("now", "then", "clear"),
    [(100.0, 120.0, True), (120.0, 100.0, True), (100.0, 103.0, False), (1.7, 1.8, False), (1.2, 1.8, True)],
    ids=["faster", "slower", "as processes differ", "as short calls differ", "a short call, much faster"],
)
def test_a_change_is_clear_where_processes_differ_by_less(now: float, then: float, clear: bool) -> None:
    found = beside(record(now), record(then))
    assert found.change == pytest.approx(now / then) and found.clear is clear and not found.why_not


def test_on_a_gpu_processes_differ_by_less_than_on_a_cpu() -> None:
    gpu: dict[str, Any] = {"device_kind": "cuda", "timer": "cuda_event"}
    faster, slower = (with_device([record(us, **gpu)], device=[us * 1e3])[0] for us in (100.0, 103.0))
    assert beside(faster, slower).clear and not beside(record(100.0), record(103.0)).clear
    assert not beside(record(100.0, spread=0.2), record(120.0)).clear, "wide intervals hide a change"


def test_a_change_that_the_baseline_shares_or_that_is_of_another_environment_says_so() -> None:
    now, then = record(100.0, **speedup(1.5)), record(120.0, **speedup(1.51))
    assert beside(now, then).clear and beside(now, then).shared
    assert not beside(now, replace(then, **speedup(1.25))).shared, "the speedup changed as well, so it is the variant"
    assert not beside(replace(now, role="baseline"), then).shared
    elsewhere = beside(now, replace(then, environment_hash="another"))
    assert elsewhere.clear and elsewhere.elsewhere and not beside(now, then).elsewhere


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        ({"definition_hash": "another"}, "the operator's definition was another"),
        ({"timer": "asv"}, "its latency was taken in another way"),
        ({"environment": BUSY}, "its host was busy"),
    ],
    ids=["definition", "timer", "busy"],
)
def test_what_cannot_be_compared_says_why(earlier: dict[str, Any], why: str) -> None:
    found = beside(record(100.0), record(120.0, **earlier))
    assert found.why_not == why and found.change is None and not found.clear
    busy = beside(record(100.0, environment=BUSY), record(120.0))
    assert busy.change is None and not busy.why_not


FIRST, SECOND = (
    Series(device_name=DEVICE, suite=SUITE, case=case, implementation="fused", mode="eager") for case in CASES
)


@pytest.fixture
def store(tmp_path: Path) -> StoreLocation:
    return StoreLocation.of(tmp_path / "results")


def test_each_series_has_its_newest_measured_run(store: StoreLocation) -> None:
    write_runs(
        store,
        make_run(0),
        make_run(1, cases=CASES[:1]),
        make_run(2, device_name="another"),
        [ended(record, "mismatched") for record in make_run(3)],
    )
    found = NewestRuns(store).of([FIRST, SECOND])
    assert {series: record.run_id for series, record in found.items()} == {FIRST: run_id_of(1), SECOND: run_id_of(0)}


def test_a_series_is_looked_for_among_many_runs_but_not_for_ever(
    store: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_STEPS", (1, 2))
    write_runs(store, *(make_run(number, cases=CASES[: 2 - bool(number)]) for number in range(4)))
    assert set(NewestRuns(store).of([FIRST, SECOND])) == {FIRST}
    monkeypatch.setattr(attempts, "_STEPS", (1, 3))
    assert set(NewestRuns(store).of([FIRST, SECOND])) == {FIRST, SECOND}


def test_what_was_found_is_found_again_until_there_is_another_run(
    store: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(store, make_run(0))
    stored = NewestRuns(store)
    before = stored.of([FIRST])
    with monkeypatch.context() as patched:
        patched.setattr(attempts, "read_series", None)
        assert stored.of([FIRST]) == before
    write_runs(store, make_run(1))
    assert stored.of([FIRST])[FIRST].run_id == run_id_of(1)


def test_without_a_store_there_is_nothing_to_compare_with(store: StoreLocation) -> None:
    assert NewestRuns(store).of([FIRST]) == {}


def test_tries_come_back_by_project_device_and_series(tmp_path: Path) -> None:
    records = make_run(launches_per_call=3)
    LastTries(tmp_path / "one", tmp_path).keep(records)
    found = LastTries(tmp_path / "one", tmp_path).read()
    assert set(found) == {Series.of(record) for record in records}
    for record in records:
        series = Series.of(record)
        assert series is not None
        names = ("call_p50_ns", "device_p50_ns", "speedup", "launches_per_call", "definition_hash", "timer", "status")
        assert all(getattr(found[series], name) == getattr(record, name) for name in names)
        assert found[series].environment is None
    assert LastTries(tmp_path / "other", tmp_path).read() == {}
    elsewhere = [replace(record, device_name="another", launches_per_call=4) for record in records]
    LastTries(tmp_path / "one", tmp_path).keep(elsewhere)
    launches = {
        series.device_name: one.launches_per_call
        for series, one in LastTries(tmp_path / "one", tmp_path).read().items()
    }
    assert launches == {"another": 4, records[0].device_name: 3}


@pytest.mark.parametrize(
    "change", [{"call_p50_ns": "fast"}, {"launches_per_call": [1]}, {"case": None}, {"more": 1}, {}]
)
def test_a_try_that_is_not_what_it_should_be_is_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    tries, records = LastTries(tmp_path, tmp_path), make_run()
    tries.keep(records)
    (file,) = tmp_path.rglob("*.json")
    content = json.loads(file.read_text())
    first = next(iter(content["values"].values()))
    if change:
        first.update(change)
    else:
        del first["status"]
    file.write_text(json.dumps(content))
    assert len(tries.read()) == len(records) - 1
