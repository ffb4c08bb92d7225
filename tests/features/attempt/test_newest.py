from pathlib import Path

import pytest

from pairbench.features.attempt import attempts
from pairbench.features.attempt.attempts import NewestRuns
from pairbench.model.record import Series
from pairbench.store.location import StoreLocation
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, run_id_of, write_runs

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
