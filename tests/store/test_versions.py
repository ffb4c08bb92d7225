"""Files of every released schema version stay readable: data/v<N>/ is never written again.

Columns that older files lack are derived as they are read: medians' ratios always, rounds and intervals from samples.

Before SCHEMA_VERSION is raised, add the old release's files by running this file with that release:
`python tests/store/test_versions.py`.
"""

import json
import math
import typing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pairbench.model.record import Record, Samples
from pairbench.store.reader import WholeStore, read_frame, read_records, read_run, read_samples
from pairbench.store.reading import DERIVED
from pairbench.store.schema import SCHEMA_VERSION, VERSION_KEY, from_columns
from pairbench.store.writer import RunWriter
from tests.builders import CASES, by_run, make_run, make_samples, with_device

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


def test_what_a_file_of_this_version_lacks_stays_away(tmp_path: Path) -> None:
    old_store(tmp_path, version="4")
    _, fused = read_run(tmp_path).value
    assert {getattr(fused, name) for name in DERIVED} == {None}


def test_a_part_of_the_columns_and_rows(tmp_path: Path) -> None:
    (expected, *_) = old_store(tmp_path)
    frame = read_frame(tmp_path, columns=["implementation", "device_speedup"], where={"implementation": "fused"}).value
    assert list(frame.columns) == ["implementation", "device_speedup"]
    assert frame.to_numpy().tolist() == [["fused", 62e3 / 31.5e3]]
    assert len(read_records(tmp_path, [expected.run_id], where={"case": [CASE]}).value) == 2


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("samples", [False, True])
def test_without_samples_there_are_the_medians(tmp_path: Path, samples: bool, whole: bool) -> None:
    """Of a whole store the samples are read where somebody asks for them."""
    old_store(tmp_path, samples=samples or whole)
    names = {"case", "implementation", "device_speedup", "device_speedup_low", "device_round_p50_ns", "bound"}
    records = read_run(tmp_path).value
    if whole:
        ((_, records),) = by_run(WholeStore(tmp_path, names, samples=samples), names)
    fused = next(record for record in records if record.implementation == "fused")
    assert fused.device_speedup == 62e3 / 31.5e3 and fused.bound == "host"
    assert (fused.device_round_p50_ns is not None) is (fused.device_speedup_low is not None) is samples


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


DATA = Path(__file__).parent / "data"
RUN = "20260102T030405-0123abcd"
NEWEST = max(DATA.iterdir(), key=lambda path: int(path.name.removeprefix("v")))
ADDED: dict[str, Any] = {}
"""Values of columns that are newer than the newest files, for the first record."""


def rows_of_newest() -> tuple[tuple[Record, ...], tuple[Samples, ...]]:
    """Return the rows of the newest files: a record with a value in nearly every column, one that failed, and samples."""
    expected = json.loads((NEWEST / "expected.json").read_text())
    columns = {name: {key: [row[key] for row in rows] for key in rows[0]} for name, rows in expected.items()}
    first, *others = from_columns(columns["records"], Record)
    return (replace(first, **ADDED), *others), from_columns(columns["samples"], Samples)


@pytest.mark.parametrize("version", [path.name for path in sorted(DATA.iterdir())])
def test_every_released_version_is_read(version: str) -> None:
    store = DATA / version
    expected = json.loads((store / "expected.json").read_text())
    hints = {"records": typing.get_type_hints(Record), "samples": typing.get_type_hints(Samples)}
    for dataset, rows in (("records", read_run(store).value), ("samples", read_samples(store, RUN).value)):
        found = json.loads(json.dumps([asdict(row) for row in rows]))
        assert len(found) == len(expected[dataset])
        for row, wanted in zip(found, expected[dataset], strict=True):
            # A text that every row has is empty where a file has none.
            filled = {
                name: "" if value is None and hints[dataset][name] is str else value for name, value in wanted.items()
            }
            assert repr({name: row[name] for name in wanted}) == repr(filled)
            assert {row[name] for name in row.keys() - wanted.keys() - DERIVED} <= {None}
    assert len(pd.read_parquet(store / "records")) == len(expected["records"])
    (path,) = (store / "records").rglob("*.parquet")
    assert pq.read_metadata(path).metadata[VERSION_KEY].decode() == version.removeprefix("v")


def test_the_current_version_has_its_files_and_columns_do_not_change_within_it() -> None:
    expected = json.loads((DATA / f"v{SCHEMA_VERSION}" / "expected.json").read_text())
    records, samples = rows_of_newest()
    for dataset, row in (("records", records[0]), ("samples", samples[0])):
        assert list(vars(row)) == list(expected[dataset][0]), "raise SCHEMA_VERSION, see store/schema.py"


if __name__ == "__main__":
    STORE = DATA / f"v{SCHEMA_VERSION}"
    RECORDS, SAMPLES = rows_of_newest()
    with RunWriter(STORE, run_id=RUN, device_slug="nvidia-h200", month="2026-01") as WRITER:
        WRITER.append_samples(SAMPLES)
        WRITER.append_records(RECORDS)
    ROWS = {"records": [asdict(row) for row in RECORDS], "samples": [asdict(row) for row in SAMPLES]}
    (STORE / "expected.json").write_text(json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n")
