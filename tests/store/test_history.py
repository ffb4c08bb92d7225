"""Narrow reading: one series over all runs, the heads of runs, and the statistics of a file's footer; and whole stores as columns."""

from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.errors import StoreError
from pairbench.model.record import Record
from pairbench.store.location import StoreLocation
from pairbench.store.opened import OpenedFile
from pairbench.store.reader import (
    TREND_COLUMNS,
    NarrowFile,
    WholeStore,
    read_distinct,
    read_records,
    read_run,
    read_series,
)
from pairbench.store.reading import dataset_files
from pairbench.store.run_index import RunIndex
from pairbench.store.schema import VERSION_KEY
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, only, run_id_of, write_runs

FUSED = {"device_name": DEVICE, "suite": SUITE, "case": CASES[1], "implementation": "fused", "mode": "eager"}


def files_of(store: Path) -> list[Path]:
    return sorted((store / "records").rglob("*.parquet"))


def test_one_series_over_all_runs_is_what_reading_everything_gives(tmp_path: Path) -> None:
    runs = [make_run(number) for number in range(5)]
    write_runs(tmp_path, *runs)
    everything = read_series(tmp_path, where=FUSED, columns=list(vars(runs[0][0])))
    assert everything.value == tuple(only(run, **FUSED)[0] for run in runs) and not everything.problems
    few = read_series(tmp_path, where=FUSED).value
    assert [record.call_p50_ns for record in few] == [record.call_p50_ns for record in everything.value]
    assert {record.kernels for record in few} == {None} and few[0].driver == "580.1"
    several = read_series(tmp_path, where={"case": CASES, "implementation": ["baseline"]}, run_ids=[run_id_of(3)])
    assert [(record.run_id, record.case) for record in several.value] == [(run_id_of(3), case) for case in CASES]
    assert read_series(tmp_path, where={"case": "other"}) == ((), ())
    assert set(TREND_COLUMNS) < set(vars(runs[0][0]))


def test_a_series_that_is_the_only_one_of_its_file(tmp_path: Path) -> None:
    """Then every column that is asked for is the same in all rows, and none is decoded."""
    write_runs(tmp_path, only(make_run(0), **FUSED))
    (record,) = read_series(tmp_path, where=FUSED).value
    assert record.call_p50_ns == only(make_run(0), **FUSED)[0].call_p50_ns


def test_a_column_that_does_not_exist_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    with pytest.raises(ValueError, match="no column 'colour'"):
        read_series(tmp_path, where={"colour": "red"})


def test_damaged_and_foreign_files_cost_only_themselves(tmp_path: Path) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(4)))
    first, second, third, _ = files_of(tmp_path)
    first.write_bytes(first.read_bytes()[:-100])
    second.write_bytes(b"")
    pq.write_table(pa.table({"run_id": ["x"]}), third)
    found = read_series(tmp_path, where=FUSED)
    assert [record.run_id for record in found.value] == [run_id_of(3)]
    assert [Path(problem.split(":")[0]) for problem in found.problems] == [first, second, third]
    index = RunIndex.of_store(tmp_path)
    assert [head.run_id for head in index] == [run_id_of(3)]
    assert len(index.problems) == 3 and any("not written by pairbench" in problem for problem in index.problems)


def test_a_page_that_is_damaged_is_found_where_it_is_decoded(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0), make_run(1))
    damaged = files_of(tmp_path)[0]
    content = bytearray(damaged.read_bytes())
    content[4:-4000] = b"\0" * len(content[4:-4000])
    damaged.write_bytes(content)
    found = read_series(tmp_path, where=FUSED)
    assert [record.run_id for record in found.value] == [run_id_of(1)]
    assert len(found.problems) == 1 and str(damaged) in found.problems[0]


def test_parts_of_a_run_that_was_killed_count_once(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    (whole,) = files_of(tmp_path)
    table = pq.read_table(whole, partitioning=None)
    half = len(table) // 2
    for number, part in enumerate((table[:half], table[half:])):
        pq.write_table(part, whole.with_name(f"{run_id_of(0)}.part-{number:06d}.parquet"))
    assert len(read_series(tmp_path, where=FUSED).value) == 1
    whole.unlink()
    assert len(read_series(tmp_path, where=FUSED).value) == 1
    (head,) = RunIndex.of_store(tmp_path)
    assert len(head.files) == 2


def test_nan_is_not_taken_for_the_one_value_of_a_column(tmp_path: Path) -> None:
    """Parquet's smallest and largest leave NaN out."""
    run = make_run(0)
    values = [float("nan"), 5.0, float("nan"), 5.0]
    write_runs(tmp_path, [replace(record, power_w=value) for record, value in zip(run, values, strict=True)])
    found = read_series(tmp_path, where={"suite": SUITE}, columns=["power_w", "case"])
    assert repr([record.power_w for record in found.value]) == repr(values)


def test_older_versions_lack_columns_and_are_read(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0), make_run(1))
    old = files_of(tmp_path)[0]
    table = pq.read_table(old, partitioning=None).drop_columns(["confirms", "round_p95_ns"])
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: b"1"}), old)
    found = read_series(tmp_path, where=FUSED, columns=["run_id", "confirms", "round_p95_ns"]).value
    assert [record.round_p95_ns is None for record in found] == [True, False]
    assert read_series(tmp_path, where={**FUSED, "confirms": "x"}) == ((), ())
    assert [head.confirms for head in RunIndex.of_store(tmp_path)] == [None, None]


def test_several_row_groups(tmp_path: Path) -> None:
    """Nobody writes them here, but a user's own tool may."""
    write_runs(tmp_path, make_run(0))
    (file,) = files_of(tmp_path)
    pq.write_table(pq.read_table(file, partitioning=None), file, row_group_size=1)
    assert read_series(tmp_path, where=FUSED).value[0].call_p50_ns == only(make_run(0), **FUSED)[0].call_p50_ns
    assert [head.commit for head in RunIndex.of_store(tmp_path)] == [make_run(0)[0].commit]


def test_distinct_values_of_some_columns(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0, cases=CASES[:1]), make_run(1))
    files = dataset_files(StoreLocation.of(tmp_path), "records").files
    found = read_distinct(tmp_path, ("case", "device_name"), files).value
    assert [[row["case"] for row in rows] for rows in found.values()] == [[CASES[0]], list(CASES)]


def test_heads_come_newest_first_and_are_read_as_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(tmp_path, *(make_run(number, cases=CASES[:1]) for number in range(20)))
    opened: list[str] = []
    real = NarrowFile.__init__

    def counted(self: NarrowFile, file: OpenedFile) -> None:
        opened.append(Path(file.path).stem)
        real(self, file)

    monkeypatch.setattr(NarrowFile, "__init__", counted)
    index = RunIndex.of_store(tmp_path)
    assert [head.run_id for head in index.first(3)] == [run_id_of(19), run_id_of(18), run_id_of(17)]
    assert len(opened) < 10
    assert [head.run_id for head in index.beginning(run_id_of(2))] == [run_id_of(2)]
    assert [head.run_id for head in index] == [run_id_of(number) for number in range(19, -1, -1)]
    assert len(opened) == len(set(opened)) == 20


def test_a_renamed_file_still_holds_its_run(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0), make_run(1))
    first = files_of(tmp_path)[0]
    first.rename(first.with_name("kept.parquet"))
    index = RunIndex.of_store(tmp_path)
    heads = {head.run_id: head for head in index}
    assert sorted(heads) == [run_id_of(0), run_id_of(1)]
    assert {record.run_id for record in index.records([heads[run_id_of(0)]]).value} == {run_id_of(0)}


def test_one_file_is_an_index_of_its_own(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    index = RunIndex.of_file(str(files_of(tmp_path)[0]))
    (head,) = index
    assert index.records([head]).value == read_run(tmp_path).value
    with pytest.raises(StoreError, match=r"nowhere\.parquet: there is no such file"):
        RunIndex.of_file(str(tmp_path / "nowhere.parquet"))
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(StoreError, match=r"bad\.parquet: cannot be read"):
        RunIndex.of_file(str(tmp_path / "bad.parquet"))


def test_rows_that_are_read_are_like_those_that_were_made(tmp_path: Path) -> None:
    """They are not made by their class's own __init__."""
    write_runs(tmp_path, make_run(0))
    found = read_records(tmp_path, [run_id_of(0)], where={"case": [CASES[0]]}).value
    made = only(make_run(0), case=CASES[0])
    assert found == made and repr(found) == repr(made) and [hash(one) for one in found] == [hash(one) for one in made]


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


def test_a_whole_store_of_nothing_but_damaged_files_is_nothing(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    files_of(tmp_path)[0].write_bytes(b"PAR1")
    whole = WholeStore(tmp_path, ["case"])
    assert [*whole.by_run(["case"]), *whole.by_operator(["case"])] == [] and len(whole.problems) == 1


def test_the_newest_runs_only(tmp_path: Path, runs: list[tuple[Record, ...]]) -> None:
    write_runs(tmp_path, *runs)
    assert [key[0] for key, _ in WholeStore(tmp_path, ["case"], last=2).by_run(["case"])] == [
        run_id_of(1),
        run_id_of(2),
    ]
