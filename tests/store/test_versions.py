"""Files of every released schema version stay readable: data/v<N>/ is never written again.

Before SCHEMA_VERSION is raised, add the old release's files by running this file with that release:
`python tests/store/test_versions.py`.
"""

import json
import typing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pairbench.model.record import KernelCount, Record, Samples
from pairbench.store.reader import read_run, read_samples
from pairbench.store.reading import DERIVED
from pairbench.store.schema import SCHEMA_VERSION, VERSION_KEY
from pairbench.store.writer import RunWriter

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
