"""What is written comes back, for us and for pandas: whole runs, series over all runs, heads of runs, whole stores as columns, and samples by series."""

import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from pairbench.errors import StoreError
from pairbench.model.record import Record, Samples, Series, columns
from pairbench.store import schema
from pairbench.store.location import StoreLocation
from pairbench.store.reader import (
    RunIndex,
    WholeStore,
    latency_samples,
    read_frame,
    read_records,
    read_run,
    read_samples,
    read_series,
    runs,
)
from pairbench.store.writer import RunWriter
from tests.builders import CASES, DEVICE, SUITE, by_run, ended, make_run, make_samples, only, run_id_of, write_runs
from tests.store.rows import any_row, before_opening, record, samples

RUN = "20260102T030405-aaaa"


def write(store: Any, records: list[Record], samples: list[Samples], *, run_id: str = RUN, batch: int = 2) -> None:
    with RunWriter(store, run_id=run_id, device_slug="nvidia-h200", month="2026-01") as writer:
        for start in range(0, len(samples), batch):
            writer.append_samples(samples[start : start + batch])
        for start in range(0, len(records), batch):
            writer.append_records(records[start : start + batch])


@given(st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_row_comes_back(data: st.DataObject) -> None:
    records = data.draw(st.lists(any_row(Record), min_size=1, max_size=3))
    samples = data.draw(st.lists(any_row(Samples), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as store:
        write(store, records, samples)
        # repr tells NaN from None and is exact for floats.
        assert repr(read_run(store).value) == repr(tuple(records))
        assert repr(read_samples(store, RUN).value) == repr(tuple(samples))


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(TypeError, match=r"Record\.n_samples: .*expected int64"):
        schema.to_table([record(n_samples="many")], Record)


def test_plain_pandas_is_enough(tmp_path: Path) -> None:
    write(tmp_path, [record(), record(implementation="baseline", role="baseline", speedup=None)], [samples()])
    frame = pd.read_parquet(tmp_path / "records")
    assert list(frame.columns) == [*columns(Record), "device", "month"]
    assert frame["implementation"].tolist() == ["fused", "baseline"]
    assert frame["device"].tolist() == ["nvidia-h200"] * 2
    assert frame["month"].tolist() == ["2026-01"] * 2
    assert frame["round_p50_ns"][0].tolist() == [12345.0, 12345.5, 12346.0]
    assert frame["kernels"][0].tolist() == [{"name": "rms<bf16>", "count": 1, "total_ns": 9000.0}]
    assert pd.read_parquet(tmp_path / "samples").explode(["block", "call_ns"])["call_ns"].tolist() == [12345.0, 12346.0]
    several = pd.read_parquet(
        tmp_path / "records", filters=[("device", "==", "nvidia-h200"), ("month", ">=", "2026-01")]
    )
    assert len(several) == 2
    (path,) = (tmp_path / "records").rglob("*.parquet")
    assert pq.read_metadata(path).row_group(0).column(0).compression == "LZ4"


def test_frames_are_cut_by_column_row_and_run(tmp_path: Path) -> None:
    for run_id in ("20260103", "20260101", "20260102"):
        write(tmp_path, [record(run_id, mode=mode) for mode in ("eager", "graph")], [], run_id=run_id)
    frame = read_frame(tmp_path, columns=["run_id", "mode", "device"], where={"mode": ["graph", "compile"]}).value
    assert frame.to_dict("list") == {
        "run_id": ["20260101", "20260102", "20260103"],
        "mode": ["graph"] * 3,
        "device": ["nvidia-h200"] * 3,
    }
    assert len(read_frame(tmp_path, where={"mode": "eager"}, run_ids=["20260102"]).value) == 1
    assert list(read_frame(tmp_path).value.columns) == [*columns(Record), "device", "month"]
    with pytest.raises(ValueError, match="no column 'mood', expected one of run_id"):
        read_frame(tmp_path, columns=["mood"])


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    write(tmp_path, [record("20260101"), record("20260101", status="failed")], [], run_id="20260101")
    write(tmp_path, [record("20260102", device_name="B200", dirty=True)], [], run_id="20260102")
    newest, oldest = runs(tmp_path).value
    assert (newest.run_id, newest.devices, newest.dirty, newest.n_records) == ("20260102", ("B200",), True, 1)
    assert oldest.statuses == {"measured": 1, "failed": 1}


@pytest.mark.parametrize("url", [True, False])
def test_the_url_of_a_folder_and_a_store_without_renaming_work_alike(tmp_path: Path, url: bool) -> None:
    """As on an object store, whose files appear by one put."""
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    place = StoreLocation.of(tmp_path.as_uri()) if url else StoreLocation(filesystem=files, root="a/b", name="s3://x")
    assert place.is_local is url
    write(place, [record(), record()], [samples()], batch=1)
    assert len(read_run(place).value) == 2
    assert len(read_samples(place, RUN).value) == 1
    assert [path.name for path in tmp_path.rglob("*.parquet")] == [f"{RUN}.parquet"] * 2


SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASES[0], implementation="fused", mode="eager")


def round_of(number: int, call_ns: tuple[float, ...], throttled: tuple[bool, ...], **changes: Any) -> Samples:
    return make_samples(make_run(0)[1], call_ns, round=number, throttled=throttled, **changes)


def write_rounds(store: Path, *rounds: Samples) -> str:
    write(store, list(make_run(0)), list(rounds), run_id=make_run(0)[0].run_id)
    return make_run(0)[0].run_id


def test_rounds_are_put_together_without_what_was_measured_again(tmp_path: Path) -> None:
    device, stream = (0.1, 0.2, 0.3), (None, 0.2, 0.3)
    run_id = write_rounds(
        tmp_path,
        round_of(0, (1.0, 2.0, 3.0), (False, True, False), device_ns=device, stream_ns=stream),
        # Throttled throughout: measuring again did not help, so all of it counts.
        round_of(1, (4.0, 5.0), (True, True)),
    )
    found = latency_samples(tmp_path, run_id)
    assert list(found.value) == [SERIES] and not found.problems
    assert sorted(found.value[SERIES]["call"]) == pytest.approx([1.0, 3.0, 4.0, 5.0])
    # Of the second round the device's latency could not be taken, and of a stream there are few samples.
    assert sorted(found.value[SERIES]["device"]) == pytest.approx([0.1, 0.3])
    assert list(found.value[SERIES]["stream"]) == pytest.approx([0.3])


def test_what_has_no_latency_on_the_device_or_was_pruned_has_no_samples_of_it(tmp_path: Path) -> None:
    run_id = write_rounds(tmp_path, round_of(0, (1.0,), (False,)))
    assert list(latency_samples(tmp_path, run_id).value[SERIES]) == ["call"]
    for path in (tmp_path / "samples").rglob("*.parquet"):
        path.unlink()
    assert latency_samples(tmp_path, run_id) == ({}, ()) and read_samples(tmp_path, run_id).value == ()


FUSED = {"device_name": DEVICE, "suite": SUITE, "case": CASES[1], "implementation": "fused", "mode": "eager"}


def files_of(store: Path) -> list[Path]:
    return sorted((store / "records").rglob("*.parquet"))


def test_one_series_over_all_runs_is_what_reading_everything_gives(tmp_path: Path) -> None:
    runs = [make_run(number) for number in range(5)]
    write_runs(tmp_path, *runs)
    everything = read_series(tmp_path, where=FUSED)
    made = tuple(only(run, **FUSED)[0] for run in runs)
    assert everything.value == made and not everything.problems
    # They are not made by their class's own __init__.
    assert repr(everything.value) == repr(made) and hash(everything.value) == hash(made)
    few = read_series(tmp_path, where=FUSED, columns=["call_p50_ns", "driver"]).value
    assert [record.call_p50_ns for record in few] == [record.call_p50_ns for record in everything.value]
    assert {record.kernels for record in few} == {None} and few[0].driver == "580.1"
    several = read_series(tmp_path, where={"case": CASES, "implementation": ["baseline"]}, run_ids=[run_id_of(3)])
    assert [(record.run_id, record.case) for record in several.value] == [(run_id_of(3), case) for case in CASES]
    assert read_series(tmp_path, where={"case": "other"}) == ((), ())
    with pytest.raises(ValueError, match="no column 'colour'"):
        read_series(tmp_path, where={"colour": "red"})


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


def test_nan_is_not_taken_for_the_one_value_of_a_column(tmp_path: Path) -> None:
    """The minimum and maximum in a Parquet file's statistics leave NaN out."""
    run = make_run(0)
    values = [float("nan"), 5.0, float("nan"), 5.0]
    write_runs(tmp_path, [replace(record, power_w=value) for record, value in zip(run, values, strict=True)])
    found = read_series(tmp_path, where={"suite": SUITE}, columns=["power_w", "case"])
    assert repr([record.power_w for record in found.value]) == repr(values)


def test_several_row_groups_and_a_series_that_is_the_only_one_of_its_file(tmp_path: Path) -> None:
    """Nobody writes them here, but a user's own tool may; of one series every column is the same in all rows, and none is decoded."""
    write_runs(tmp_path / "one", only(make_run(0), **FUSED))
    (record,) = read_series(tmp_path / "one", where=FUSED).value
    assert record.call_p50_ns == only(make_run(0), **FUSED)[0].call_p50_ns
    write_runs(tmp_path, make_run(0))
    (file,) = files_of(tmp_path)
    pq.write_table(pq.read_table(file, partitioning=None), file, row_group_size=1)
    assert read_series(tmp_path, where=FUSED).value[0].call_p50_ns == only(make_run(0), **FUSED)[0].call_p50_ns
    assert [head.commit for head in RunIndex.of_store(tmp_path)] == [make_run(0)[0].commit]


def test_heads_come_newest_first_and_are_read_as_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(tmp_path, *(make_run(number, cases=CASES[:1]) for number in range(12)))
    opened: list[str] = []
    before_opening(monkeypatch, lambda path: opened.append(Path(path).stem))
    index = RunIndex.of_store(tmp_path)
    assert [head.run_id for head in index.first(3)] == [run_id_of(11), run_id_of(10), run_id_of(9)]
    assert len(opened) < 10
    assert [head.run_id for head in index.beginning(run_id_of(2))] == [run_id_of(2)]
    assert [head.run_id for head in index] == [run_id_of(number) for number in range(11, -1, -1)]
    assert len(opened) == len(set(opened)) == 12


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


EVERYTHING = [item.name for item in fields(Record)]
OTHER = "softmax[dtype=bfloat16,tokens=64]"


def test_operators_and_runs_are_what_the_files_hold(tmp_path: Path) -> None:
    three_runs = [make_run(number, cases=(*CASES, OTHER)) for number in range(3)]
    write_runs(tmp_path, *three_runs)
    whole = WholeStore(tmp_path, EVERYTHING)
    runs = dict(by_run(whole, EVERYTHING))
    assert list(runs) == [(run_id_of(number), DEVICE) for number in range(3)]
    for run in three_runs:
        assert runs[run[0].run_id, DEVICE] == read_records(tmp_path, [run[0].run_id]).value
    by_operator = dict(whole.by_operator(EVERYTHING))
    assert list(by_operator) == [(DEVICE, SUITE, "rms_norm"), (DEVICE, SUITE, "softmax")]
    assert by_operator[DEVICE, SUITE, "softmax"] == tuple(
        r for run in three_runs for r in run if r.operator == "softmax"
    )
    assert not whole.problems
    (_, records), *_ = newest = list(by_run(WholeStore(tmp_path, ["case", "call_p50_ns", "driver"], last=2), ["case"]))
    assert [key[0] for key, _ in newest] == [run_id_of(1), run_id_of(2)]
    assert [record.case for record in records] == [record.case for record in three_runs[1]]
    assert {(record.call_p50_ns, record.driver, record.kernels) for record in records} == {(None, None, None)}
    with pytest.raises(ValueError, match="no column 'speed'"):
        WholeStore(tmp_path, ["speed"])


def test_nulls_are_values_and_no_operator_is_no_group(tmp_path: Path) -> None:
    run = make_run(0)
    broken = replace(ended(run[0], "failed", "no such file"), operator=None, case=None)
    write_runs(tmp_path, (*run, broken))
    whole = WholeStore(tmp_path, EVERYTHING)
    assert [key for key, _ in whole.by_operator(EVERYTHING)] == [(DEVICE, SUITE, "rms_norm")]
    ((_, records),) = by_run(whole, EVERYTHING)
    assert records[-1] == broken and len(records) == len(run) + 1


def test_a_whole_store_of_nothing_but_damaged_files_is_nothing(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    files_of(tmp_path)[0].write_bytes(b"PAR1")
    whole = WholeStore(tmp_path, ["case"])
    assert [*by_run(whole, ["case"]), *whole.by_operator(["case"])] == [] and len(whole.problems) == 1
