"""Suites that were moved: what was stored under their old names is read, and asked for, under the new ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.errors import SuiteError
from pairbench.model.record import Record
from pairbench.store.documents import (
    read_acceptances,
    read_breakdowns,
    read_calibrations,
    write_document,
)
from pairbench.store.location import StoreLocation
from pairbench.store.reader import RunIndex, WholeStore, read_distinct, read_frame, read_records, read_run, read_series
from pairbench.store.reading import dataset_files
from pairbench.suite.modules import moved_suites
from tests.breakdowns_made import kept
from tests.builders import CASES, SUITE, make_run, run_id_of, write_runs
from tests.faults.damaged import ACCEPTANCE, CALIBRATION, SERIES

NEW = "suites/norm/rms.py"
OTHER = "suites/other.py"
MOVED = {SUITE: NEW, "suites/gone.py": "suites/never.py"}


@pytest.fixture
def store(tmp_path: Path) -> StoreLocation:
    """Return a store whose first two runs are from before the move, and the third from after it."""
    others = make_run(0, cases=["other[n=1]"], suite=OTHER)
    write_runs(tmp_path, (*make_run(0), *others), make_run(1), make_run(2, suite=NEW))
    return StoreLocation.of(tmp_path, moved=MOVED)


def suites_of(records: tuple[Record, ...]) -> set[str]:
    return {record.suite for record in records}


def test_every_reader_gives_the_new_name_and_without_the_move_the_old_one(store: StoreLocation) -> None:
    assert suites_of(read_run(store, run_id_of(0)).value) == {NEW, OTHER}
    assert suites_of(read_run(store.root, run_id_of(1)).value) == {SUITE}
    assert set(read_frame(store, columns=["suite"]).value["suite"]) == {NEW, OTHER}
    assert suites_of(read_series(store, where={"case": CASES[0]}, columns=("run_id", "suite", "case")).value) == {NEW}
    distinct = read_distinct(store, ["suite"], dataset_files(store, "records").files).value
    assert {row["suite"] for rows in distinct.values() for row in rows} == {NEW, OTHER}
    index = RunIndex.of_store(store)
    assert set(index.columns(list(index), ["suite"])["suite"]) == {NEW, OTHER}
    assert suites_of(index.records(list(index)).value) == {NEW, OTHER}


def test_filters_by_either_name_and_histories_find_rows_of_both(store: StoreLocation) -> None:
    runs = {run_id_of(number) for number in range(3)}
    assert {record.run_id for record in read_records(store, runs, where={"suite": NEW}).value} == runs
    for name in ([NEW], SUITE):
        assert set(read_frame(store, columns=["run_id", "suite"], where={"suite": name}).value["run_id"]) == runs
    records = read_series(store, where={"suite": NEW, "case": CASES[0]}, columns=("run_id", "suite", "case")).value
    assert {record.run_id for record in records} == runs and suites_of(records) == {NEW}
    whole = dict(WholeStore(store, ("run_id", "case", "implementation")).by_operator(("run_id", "suite")))
    assert {key[1:]: {record.run_id for record in records} for key, records in whole.items()} == {
        (NEW, "rms_norm"): runs,
        (OTHER, "other"): {run_id_of(0)},
    }


def test_documents_are_of_the_series_under_its_new_name(store: StoreLocation) -> None:
    new = replace(SERIES, suite=NEW)
    write_document(store, ACCEPTANCE)
    assert read_acceptances(store).value == {new: replace(ACCEPTANCE, series=new)}
    write_document(store, CALIBRATION)
    assert [set(one.floors) for one in read_calibrations(store).value] == [{new}]
    write_document(store, kept(suite=SUITE))
    assert [one.suite for one in read_breakdowns(store).value] == [NEW]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"a.py" = ', r"moved\.toml: cannot be read"),
        ('"a.py" = 3', r"'a\.py' is 3, expected another name of a suite"),
        ('"a.py" = "a.py"', r"'a\.py' is 'a\.py', expected another name"),
        ('"a.py" = "b.py"\n"b.py" = "c.py"', r"'b\.py' is an old name and a new one, expected the newest name"),
    ],
)
def test_the_file_beside_the_suites_is_read_and_a_wrong_one_refused(tmp_path: Path, text: str, words: str) -> None:
    assert moved_suites((tmp_path, tmp_path / "nowhere")) == {}
    (tmp_path / "moved.toml").write_text(f'"{SUITE}" = "{NEW}"\n')
    assert moved_suites((tmp_path,)) == {SUITE: NEW}
    (tmp_path / "moved.toml").write_text(text)
    with pytest.raises(SuiteError, match=words):
        moved_suites((tmp_path,))
