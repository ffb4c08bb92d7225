"""Files of every released schema version stay readable: data/v<N>/ is never written again.

Columns that older files lack are derived as they are read: medians' ratios always, rounds and intervals from samples.

Before SCHEMA_VERSION is raised, add the old release's files by running this file with that release:
`python tests/store/test_versions.py`.
"""

import json
import math
import typing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pairbench.model.record import KernelCount, Record, Samples
from pairbench.store.reader import WholeStore, read_frame, read_records, read_run, read_samples
from pairbench.store.reading import DERIVED
from pairbench.store.schema import SCHEMA_VERSION, VERSION_KEY
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
    assert frame.to_numpy().tolist() == [["fused", 62e3 / 31.5e3]]
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


DATA = Path(__file__).parent / "data"
RUN = "20260102T030405-0123abcd"

SHARED: dict[str, Any] = {
    "run_id": RUN,
    "suite": "suites/norm.py",
    "operator": "rms_norm",
    "case": "rms_norm[dtype=bfloat16,tokens=4096]",
    "device_name": "NVIDIA H200",
    "device_uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "timer": "cuda_event",
    "mode": "eager",
    "stop_reason": "precise",
}
BASELINE: dict[str, Any] = {
    **SHARED,
    "confirms": "20260101T000000-00000000",
    "started_at": "2026-01-02T03:04:05+00:00",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "commit_at": "2026-01-01T00:00:00+00:00",
    "branch": "main",
    "dirty": False,
    "commit_subject": "Fuse the norm (#123)",
    "commit_author": "A. Author",
    "commit_number": 4711,
    "pull_request": 123,
    "definition_hash": "0011223344556677",
    "implementation_hash": "8899aabbccddeeff",
    "axes": '{"dtype": "bfloat16", "tokens": 4096}',
    "tier": "real",
    "dtype": "bfloat16",
    "float32_precision": "ieee",
    "implementation": "baseline",
    "role": "baseline",
    "device_kind": "cuda",
    "driver": "570.124.06",
    "cuda": "12.8",
    "cudnn": "91002",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "python": "3.12.3",
    "hostname": "box",
    "cpu": "a CPU",
    "environment_hash": "fedcba9876543210",
    "environment": '{"allow_tf32": false}',
    "status": "measured",
    "max_abs_error": 0.0078125,
    "mean_abs_error": 0.0001,
    "rel_l2_error": 0.002,
    "oracle_ratio": 1.0,
    "mismatched_fraction": 0.0,
    "rtol": 0.016,
    "atol": 1e-05,
    "margin": 1.0,
    "call_p50_ns": 41000.5,
    "call_p50_ns_low": 40900.0,
    "call_p50_ns_high": 41100.0,
    "call_p95_ns": 43000.0,
    "call_p95_ns_low": 42000.0,
    "call_p95_ns_high": float("nan"),
    "call_round_p50_ns": (41000.0, 41000.5, 41001.0),
    "call_round_p95_ns": (42900.0, 43000.0, 43100.5),
    "device_timer": "graph_replay",
    "device_p50_ns": 39000.0,
    "device_p50_ns_low": 38900.0,
    "device_p50_ns_high": 39100.0,
    "device_p95_ns": 39500.0,
    "device_p95_ns_low": 39400.0,
    "device_p95_ns_high": 39600.0,
    "device_round_p50_ns": (38990.0, 39000.0, 39010.0),
    "device_round_p95_ns": (39490.0, 39500.0, 39510.0),
    "host_p50_ns": 12000.0,
    "host_p50_ns_low": 11900.0,
    "host_p50_ns_high": 12100.0,
    "host_p95_ns": 13000.0,
    "host_p95_ns_low": 12500.0,
    "host_p95_ns_high": 13500.0,
    "host_round_p50_ns": (11990.0, 12000.0, 12010.0),
    "host_round_p95_ns": (12990.0, 13000.0, 13010.0),
    "host_round_lower_mean_ns": (11890.0, 11900.0, 11910.0),
    "bound": "device",
    "first_call_ns": 2.5e9,
    "warm_first_call_ns": 0.5e9,
    "compilations": 3,
    "recompilations": 1,
    "graph_breaks": 1,
    "compile_notes": ("norm breaks at norm.py:7: Unsupported Tensor.item() call", "norm again, 0/0: size mismatch"),
    "graph_capturable": False,
    "graph_capture_reason": "norm.py, line 7: AcceleratorError: operation not permitted when stream is capturing",
    "reuses_output": True,
    "autotuned": ("norm: BLOCK=1024, num_warps=8, num_stages=3",),
    "n_samples": 300,
    "n_rounds": 3,
    "round_p50_ns": (41000.0, 41000.5, 41001.0),
    "round_p95_ns": (42900.0, 43000.0, 43100.5),
    "speedup": 1.0,
    "device_speedup": 1.25,
    "device_speedup_low": 1.24,
    "device_speedup_high": 1.26,
    "host_speedup": 0.5,
    "launches_per_call": 6,
    "kernels_per_call": 6,
    "graph_launches_per_call": 0,
    "memcpys_per_call": 0,
    "memcpy_bytes_per_call": 0,
    "memsets_per_call": 0,
    "syncs_per_call": 0,
    "ops_per_call": 6,
    "launch_status": "exact",
    "kernels": (
        KernelCount(name="pow<c10::BFloat16>", count=1, total_ns=9000.25),
        KernelCount(name="mul<c10::BFloat16>", count=5, total_ns=30000.0),
    ),
    "peak_bytes": 2**40,
    "saved_bytes": 2**39,
    "allocations_per_call": 5,
    "flops": 1e9,
    "bytes_moved": 1.5e8,
    "tflops": 0.025,
    "gbps": 3800.0,
    "roofline_fraction": 0.85,
    "sm_clock_mhz": 1980.0,
    "temperature_c": 44.0,
    "power_w": 310.5,
    "throttle_reasons": "",
    "remeasured_blocks": 0,
}
FAILED = {
    name: BASELINE[name]
    for name in ("run_id", "started_at", "suite", "case", "device_kind", "device_name", "torch", "python", "hostname")
}
RECORDS = (
    Record(**BASELINE),
    Record(
        **FAILED, implementation="fused", cpu="a CPU", status="failed", reason='raised ValueError: "ß | x"', kernels=()
    ),
)
SAMPLES = (
    Samples(
        **SHARED,
        implementation="baseline",
        round=0,
        block=(0, 1, 2),
        position=(0, 1, 0),
        at_ns=(0, 100_000, 200_000),
        call_ns=(41000.0, 41000.5, 99000.0),
        host_ns=(12000.0, 12001.0, 12002.0),
        device_ns=None,
        throttled=(False, False, True),
        outlier=(False, False, True),
    ),
)


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


def test_the_current_version_has_its_files() -> None:
    assert (DATA / f"v{SCHEMA_VERSION}").is_dir()


def test_columns_do_not_change_within_a_version() -> None:
    expected = json.loads((DATA / f"v{SCHEMA_VERSION}" / "expected.json").read_text())
    assert list(asdict(RECORDS[0])) == list(expected["records"][0]), "raise SCHEMA_VERSION, see store/schema.py"
    assert list(asdict(SAMPLES[0])) == list(expected["samples"][0]), "raise SCHEMA_VERSION, see store/schema.py"


def write_current_version() -> None:
    """Write data/v<SCHEMA_VERSION>/."""
    store = DATA / f"v{SCHEMA_VERSION}"
    with RunWriter(store, run_id=RUN, device_slug="nvidia-h200", month="2026-01") as writer:
        writer.append_samples(SAMPLES)
        writer.append_records(RECORDS)
    rows = {"records": [asdict(row) for row in RECORDS], "samples": [asdict(row) for row in SAMPLES]}
    (store / "expected.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_current_version()
