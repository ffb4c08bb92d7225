"""Rows to store: plain ones to tell apart, and any that the types allow."""

import json
import typing
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from pairbench.model.record import KernelCount, Record, Samples
from pairbench.store.files.conform import IDENTITY

_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    bool: st.booleans(),
    KernelCount: st.builds(KernelCount, name=st.text(max_size=12), count=st.integers(0, 99), total_ns=st.floats()),
}


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _SCALARS:
        return _SCALARS[hint]
    options = [inner for inner in typing.get_args(hint) if inner is not type(None)]
    if typing.get_origin(hint) is tuple:
        return st.lists(_strategy(options[0]), max_size=3).map(tuple)
    return st.none() | _strategy(options[0])


def any_row(row_type: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for rows of every value that the annotations allow, and a store takes."""
    hints = typing.get_type_hints(row_type)
    columns = {item.name: _strategy(hints[item.name]) for item in fields(row_type)}
    columns |= {name: _OBJECTS for name in ("axes", "environment") if name in columns}
    dataset = "records" if row_type is Record else "samples"
    texts = [name for name in IDENTITY[dataset] if hints[name] is str]
    columns |= {name: st.text(min_size=1, max_size=12) for name in texts}
    columns["run_id"] = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,9}", fullmatch=True)
    return st.builds(row_type, **columns).map(_beside if row_type is Samples else lambda row: row)


_OBJECTS = st.dictionaries(st.text(max_size=4), st.integers(), max_size=2).map(json.dumps)


def _beside(row: Samples) -> Samples:
    """Return samples with a value of each kind for each."""
    lists: dict[str, Any] = {name: value for name, value in vars(row).items() if isinstance(value, tuple)}
    count = min(map(len, lists.values()))
    cut: dict[str, Any] = {name: value[:count] for name, value in lists.items()}
    return replace(row, **cut)


@pytest.fixture(scope="session")
def rows_of() -> Callable[[type[Any]], st.SearchStrategy[Any]]:
    return any_row


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """Make a plausible record of a run, to be varied by keyword."""

    def make(run_id: str = "20260102T030405-aaaa", **changes: Any) -> Record:
        plain: dict[str, Any] = {
            "run_id": run_id,
            "started_at": "2026-01-02T03:04:05+00:00",
            "commit": "0123456789abcdef0123456789abcdef01234567",
            "commit_at": "2026-01-01T00:00:00+00:00",
            "branch": "main",
            "dirty": False,
            "suite": "suites/norm.py",
            "operator": "rms_norm",
            "definition_hash": "d" * 16,
            "implementation_hash": "e" * 16,
            "case": "rms_norm[dtype=bfloat16,tokens=4096]",
            "axes": '{"dtype": "bfloat16", "tokens": 4096}',
            "tier": "real",
            "dtype": "bfloat16",
            "implementation": "fused",
            "role": "variant",
            "mode": "eager",
            "device_kind": "cuda",
            "device_name": "NVIDIA H200",
            "device_uuid": "GPU-0",
            "driver": "570.1",
            "cuda": "12.8",
            "torch": "2.11.0",
            "python": "3.12.3",
            "hostname": "box",
            "cpu": "a CPU",
            "environment_hash": "f" * 16,
            "environment": '{"tf32": false}',
            "status": "measured",
            "timer": "cuda_event",
            "call_p50_ns": 12345.5,
            "call_p95_ns": float("nan"),
            "n_samples": 300,
            "n_rounds": 3,
            "round_p50_ns": (12345.0, 12345.5, 12346.0),
            "speedup": 2.0,
            "kernels_per_call": 1,
            "launch_status": "exact",
            "kernels": (KernelCount(name="rms<bf16>", count=1, total_ns=9000.0),),
            "peak_bytes": 2**40,
        }
        return Record(**{**plain, **changes})

    return make


@pytest.fixture(scope="session")
def samples() -> Callable[..., Samples]:
    """Return the samples of one round; keyword arguments replace single columns."""

    def make(run_id: str = "20260102T030405-aaaa", **changes: Any) -> Samples:
        plain: dict[str, Any] = {
            "run_id": run_id,
            "device_name": "NVIDIA H200",
            "device_uuid": "GPU-0",
            "suite": "suites/norm.py",
            "operator": "rms_norm",
            "case": "rms_norm[dtype=bfloat16,tokens=4096]",
            "implementation": "fused",
            "mode": "eager",
            "timer": "cuda_event",
            "round": 0,
            "stop_reason": "precise",
            "block": (0, 1),
            "position": (1, 0),
            "at_ns": (10, 20),
            "call_ns": (12345.0, 12346.0),
            "host_ns": (1000.0, 1001.0),
            "device_ns": None,
            "throttled": (False, False),
            "outlier": (False, True),
        }
        return Samples(**{**plain, **changes})

    return make
