"""A whole store as columns: what comes out an operator or a run at a time is what reading the files gives."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from pairbench.model.record import Record
from pairbench.store.reader import WholeStore, read_records
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, run_id_of, write_runs

EVERYTHING = [item.name for item in fields(Record)]
OTHER = "softmax[dtype=bfloat16,tokens=64]"


@pytest.fixture
def runs() -> list[tuple[Record, ...]]:
    return [make_run(number, cases=(*CASES, OTHER)) for number in range(3)]


def test_operators_and_runs_are_what_the_files_hold(tmp_path: Path, runs: list[tuple[Record, ...]]) -> None:
    write_runs(tmp_path, *runs)
    whole = WholeStore(tmp_path, EVERYTHING)
    by_run = dict(whole.by_run(EVERYTHING))
    assert list(by_run) == [(run_id_of(number), DEVICE) for number in range(3)]
    for run in runs:
        assert by_run[run[0].run_id, DEVICE] == read_records(tmp_path, [run[0].run_id]).value
    by_operator = dict(whole.by_operator(EVERYTHING))
    assert list(by_operator) == [(DEVICE, SUITE, "rms_norm"), (DEVICE, SUITE, "softmax")]
    assert by_operator[DEVICE, SUITE, "softmax"] == tuple(r for run in runs for r in run if r.operator == "softmax")
    assert not whole.problems


def test_only_the_columns_that_are_asked_for(tmp_path: Path, runs: list[tuple[Record, ...]]) -> None:
    write_runs(tmp_path, *runs)
    whole = WholeStore(tmp_path, ["case", "call_p50_ns", "driver"])
    (_, records), *_ = whole.by_run(["case"])
    assert [record.case for record in records] == [record.case for record in runs[0]]
    assert {(record.call_p50_ns, record.driver, record.kernels) for record in records} == {(None, None, None)}
    with pytest.raises(ValueError, match="no column 'speed'"):
        WholeStore(tmp_path, ["speed"])


def test_nulls_are_values_and_no_operator_is_no_group(tmp_path: Path) -> None:
    run = make_run(0)
    broken = replace(ended(run[0], "failed", "no such file"), operator=None, case=None)
    write_runs(tmp_path, (*run, broken))
    whole = WholeStore(tmp_path, EVERYTHING)
    assert [key for key, _ in whole.by_operator(EVERYTHING)] == [(DEVICE, SUITE, "rms_norm")]
    ((_, records),) = whole.by_run(EVERYTHING)
    assert records[-1] == broken and len(records) == len(run) + 1


def test_the_newest_runs_only(tmp_path: Path, runs: list[tuple[Record, ...]]) -> None:
    write_runs(tmp_path, *runs)
    assert [key[0] for key, _ in WholeStore(tmp_path, ["case"], last=2).by_run(["case"])] == [
        run_id_of(1),
        run_id_of(2),
    ]
