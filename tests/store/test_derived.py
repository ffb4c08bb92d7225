"""Columns that older files lack are derived as they are read: medians' ratios always, rounds and intervals from samples."""

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pairbench.model.record import Record
from pairbench.store.reader import WholeStore, read_frame, read_records, read_run
from pairbench.store.reading import DERIVED
from pairbench.store.schema import VERSION_KEY
from pairbench.store.writer import RunWriter
from tests.builders import CASES, make_run, make_samples, with_device

CASE = CASES[0]
ROUNDS = {"baseline": ((60e3, 61e3, 62e3), (63e3, 64e3, 66e3)), "fused": ((30e3, 31e3, 32e3), (30e3, 33e3, 34e3))}
"""Device samples of each round in ns; the last of each was taken while the GPU throttled."""


def old_store(folder: Path, *, samples: bool = True, version: str = "3") -> tuple[Record, ...]:
    """Write a store whose one run is a file of an older version, and return its records as they were."""
    records = tuple(
        with_device([record], device=(level,), host=(45e3,))[0]
        for record, level in zip(make_run(0, cases=[CASE]), (62e3, 31.5e3), strict=True)
    )
    with RunWriter(folder, run_id=records[0].run_id, device_slug="nvidia-h200", month="2024-01") as writer:
        writer.append_samples(
            [
                make_samples(record, values, round=number, device_ns=values, throttled=(False, False, True))
                for record in records
                for number, values in enumerate(ROUNDS[record.implementation or ""])
            ]
        )
        writer.append_records(records)
    (file,) = (folder / "records").rglob("*.parquet")
    new = [*DERIVED, "host_round_p50_ns", "host_round_p95_ns", "host_p95_ns"]
    table = pq.read_table(file, partitioning=None).drop_columns(new)
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: version.encode()}), file)
    if not samples:
        next((folder / "samples").rglob("*.parquet")).unlink()
    return records


def test_rounds_and_intervals_come_from_the_samples(tmp_path: Path) -> None:
    old_store(tmp_path)
    baseline, fused = read_run(tmp_path).value
    # Without what was taken while the GPU throttled.
    assert fused.device_round_p50_ns == (30.5e3, 31.5e3) and baseline.device_round_p50_ns == (60.5e3, 63.5e3)
    assert fused.device_round_p95_ns == tuple(np.percentile(values[:2], 95) for values in ROUNDS["fused"])
    logs = np.log(fused.device_round_p50_ns)
    low, high = stats.t.interval(0.95, 1, loc=logs.mean(), scale=stats.sem(logs))
    assert (fused.device_p50_ns_low, fused.device_p50_ns_high) == pytest.approx((math.exp(low), math.exp(high)))
    assert fused.device_speedup == 62e3 / 31.5e3 and baseline.device_speedup is None
    assert (fused.device_speedup_low or 9) < 60.5 / 30.5 < (fused.device_speedup_high or 0)
    assert (baseline.bound, fused.bound) == ("device", "host")
    assert fused.host_speedup == 1.0
    assert fused.host_round_p50_ns is None  # of these files it was taken in another way
    assert fused.call_round_p50_ns == fused.round_p50_ns


def test_without_samples_there_are_the_medians(tmp_path: Path) -> None:
    old_store(tmp_path, samples=False)
    _, fused = read_run(tmp_path).value
    assert fused.device_speedup == 62e3 / 31.5e3 and fused.bound == "host"
    assert fused.device_round_p50_ns is None and fused.device_speedup_low is None


def test_what_a_file_of_this_version_lacks_stays_away(tmp_path: Path) -> None:
    old_store(tmp_path, version="4")
    _, fused = read_run(tmp_path).value
    assert {getattr(fused, name) for name in DERIVED} == {None}


def test_a_part_of_the_columns_and_rows(tmp_path: Path) -> None:
    (expected, *_) = old_store(tmp_path)
    frame = read_frame(tmp_path, columns=["implementation", "device_speedup"], where={"implementation": "fused"}).value
    assert list(frame.columns) == ["implementation", "device_speedup"]
    assert frame.values.tolist() == [["fused", 62e3 / 31.5e3]]
    assert len(read_records(tmp_path, [expected.run_id], where={"case": [CASE]}).value) == 2


@pytest.mark.parametrize("samples", [False, True])
def test_a_whole_store(tmp_path: Path, samples: bool) -> None:
    old_store(tmp_path)
    names = {"case", "implementation", "device_speedup", "device_speedup_low", "device_round_p50_ns", "bound"}
    ((_, records),) = WholeStore(tmp_path, names, samples=samples).by_run(names)
    fused = next(record for record in records if record.implementation == "fused")
    assert fused.device_speedup == 62e3 / 31.5e3 and fused.bound == "host"
    assert (fused.device_round_p50_ns is not None) is samples
    assert (fused.device_speedup_low is not None) is samples


def test_a_record_without_a_device_latency_gets_none(tmp_path: Path) -> None:
    """One round of it had no device samples."""
    old_store(tmp_path)
    (file,) = (tmp_path / "records").rglob("*.parquet")
    table = pq.read_table(file, partitioning=None)
    index = table.schema.get_field_index("device_p50_ns")
    lacking = table.set_column(index, table.schema.field(index), [[62e3, None]])
    pq.write_table(lacking, file)
    _, fused = read_run(tmp_path).value
    assert fused.device_round_p50_ns is None and fused.device_speedup is None and fused.bound is None
