"""What is written comes back, for us and for pandas; latencies of samples come back by series, as the statistics take them."""

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from pairbench.model.record import Record, Samples, Series, columns
from pairbench.store import schema
from pairbench.store.location import StoreLocation
from pairbench.store.reader import latency_samples, read_frame, read_run, read_samples, runs
from pairbench.store.writer import RunWriter
from tests.builders import CASES, DEVICE, SUITE, make_run, make_samples
from tests.store.rows import any_row, record, samples

RUN = "20260102T030405-aaaa"


def write(store: Any, records: list[Record], samples: list[Samples], *, run_id: str = RUN, batch: int = 2) -> None:
    with RunWriter(store, run_id=run_id, device_slug="nvidia-h200", month="2026-01") as writer:
        for start in range(0, len(samples), batch):
            writer.append_samples(samples[start : start + batch])
        for start in range(0, len(records), batch):
            writer.append_records(records[start : start + batch])


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_row_comes_back(data: st.DataObject) -> None:
    records = data.draw(st.lists(any_row(Record), min_size=1, max_size=3))
    samples = data.draw(st.lists(any_row(Samples), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as store:
        write(store, records, samples)
        # repr tells NaN from None and is exact for floats.
        assert repr(read_run(store).value) == repr(tuple(records))
        assert repr(read_samples(store, RUN).value) == repr(tuple(samples))


def test_types_follow_the_annotations() -> None:
    of_records = schema.schema_of(Record)
    assert of_records.names == list(columns(Record))
    assert of_records.field("dirty").type == pa.bool_()
    assert of_records.field("n_samples").type == pa.int64()
    assert of_records.field("round_p50_ns").type == pa.list_(pa.float64())
    kernel = pa.struct([("name", pa.string()), ("count", pa.int64()), ("total_ns", pa.float64())])
    assert of_records.field("kernels").type == pa.list_(kernel)
    assert schema.schema_of(Samples).field("throttled").type == pa.list_(pa.bool_())


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


def test_a_file_says_its_version_and_is_compressed(tmp_path: Path) -> None:
    write(tmp_path, [record()], [])
    (path,) = (tmp_path / "records").rglob("*.parquet")
    metadata = pq.read_metadata(path)
    assert metadata.metadata[schema.VERSION_KEY] == str(schema.SCHEMA_VERSION).encode()
    assert metadata.row_group(0).column(0).compression == "LZ4"


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


def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    for run_id in ("20260101-aa", "20260101-bb", "20260102-aa"):
        write(tmp_path, [record(run_id)], [], run_id=run_id)
    assert read_run(tmp_path).value[0].run_id == "20260102-aa"
    assert read_run(tmp_path, "20260101-b").value[0].run_id == "20260101-bb"
    assert read_run(tmp_path, "20260101-aa").value[0].run_id == "20260101-aa"


def test_pruned_samples_are_no_error(tmp_path: Path) -> None:
    write(tmp_path, [record()], [])
    assert read_samples(tmp_path, RUN).value == ()


def test_merging_stores_is_copying_files(tmp_path: Path) -> None:
    write(tmp_path / "one", [record("run-1")], [], run_id="run-1")
    write(tmp_path / "two", [record("run-2")], [], run_id="run-2")
    (folder,) = (tmp_path / "one").glob("records/*/*")
    (path,) = (tmp_path / "two").glob("records/*/*/*.parquet")
    path.rename(folder / path.name)
    assert [run.run_id for run in runs(tmp_path / "one").value] == ["run-2", "run-1"]


def test_a_store_without_renaming_works_alike(tmp_path: Path) -> None:
    """As on an object store, whose files appear by one put."""
    place = StoreLocation(
        filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), root="bucket/prefix", name="s3://x"
    )
    assert not place.is_local
    write(place, [record(), record()], [samples()], batch=1)
    assert len(read_run(place).value) == 2
    assert len(read_samples(place, RUN).value) == 1
    assert [path.name for path in tmp_path.glob("bucket/prefix/*/*/*/*")] == [f"{RUN}.parquet"] * 2


def test_file_urls_are_local(tmp_path: Path) -> None:
    write(tmp_path.as_uri(), [record()], [])
    assert StoreLocation.of(tmp_path.as_uri()).is_local
    assert len(read_run(str(tmp_path)).value) == 1


SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASES[0], implementation="fused", mode="eager")


def round_of(number: int, call_ns: tuple[float, ...], throttled: tuple[bool, ...], **changes: Any) -> Samples:
    return make_samples(make_run(0)[1], call_ns, round=number, throttled=throttled, **changes)


def write_rounds(store: Path, *rounds: Samples) -> str:
    write(store, list(make_run(0)), list(rounds), run_id=make_run(0)[0].run_id)
    return make_run(0)[0].run_id


def test_rounds_are_put_together_without_what_was_measured_again(tmp_path: Path) -> None:
    run_id = write_rounds(
        tmp_path,
        round_of(0, (1.0, 2.0, 3.0), (False, True, False), device_ns=(0.1, 0.2, 0.3)),
        # Throttled throughout: measuring again did not help, so all of it counts.
        round_of(1, (4.0, 5.0), (True, True)),
    )
    found = latency_samples(tmp_path, run_id)
    assert list(found.value) == [SERIES] and not found.problems
    assert sorted(found.value[SERIES]["call"]) == pytest.approx([1.0, 3.0, 4.0, 5.0])
    # Of the second round the device's latency could not be taken.
    assert sorted(found.value[SERIES]["device"]) == pytest.approx([0.1, 0.3])


def test_what_has_no_latency_on_the_device_has_no_samples_of_it(tmp_path: Path) -> None:
    run_id = write_rounds(tmp_path, round_of(0, (1.0,), (False,)))
    assert list(latency_samples(tmp_path, run_id).value[SERIES]) == ["call"]


def test_samples_that_were_pruned_are_none(tmp_path: Path) -> None:
    run_id = write_rounds(tmp_path, round_of(0, (1.0,), (False,)))
    for path in (tmp_path / "samples").rglob("*.parquet"):
        path.unlink()
    assert latency_samples(tmp_path, run_id) == ({}, ())


def test_a_stream_has_the_samples_of_the_blocks_in_which_it_was_taken(tmp_path: Path) -> None:
    taken = round_of(0, (1.0, 2.0, 3.0), (False, True, False), stream_ns=(None, 0.2, 0.3))
    found = latency_samples(tmp_path, write_rounds(tmp_path, taken)).value[SERIES]
    assert list(found["stream"]) == pytest.approx([0.3])
