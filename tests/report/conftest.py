"""Records to show."""

from collections.abc import Callable
from typing import Any

import pytest

from pairbench.model.record import Record

MEASURED: dict[str, Any] = {
    "run_id": "20260102T030405-aaaa",
    "started_at": "2026-01-02T03:04:05+00:00",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": True,
    "suite": "suites/norm.py",
    "operator": "rms_norm",
    "case": "rms_norm[dtype=bfloat16,tokens=4096]",
    "axes": '{"dtype": "bfloat16", "tokens": 4096}',
    "tier": "real",
    "implementation": "baseline",
    "role": "baseline",
    "mode": "eager",
    "device_name": "NVIDIA H200",
    "device_uuid": "GPU-1",
    "torch": "2.11.0",
    "environment": '{"tf32": false}',
    "status": "measured",
    "call_p50_ns": 41_000.0,
    "call_p50_ns_low": 40_900.0,
    "call_p50_ns_high": 41_100.0,
    "call_p95_ns": 43_000.0,
    "device_p50_ns": 39_000.0,
    "speedup": 1.0,
    "speedup_low": 1.0,
    "speedup_high": 1.0,
    "launches_per_call": 6,
    "kernels_per_call": 6,
    "ops_per_call": 9,
    "launch_status": "exact",
    "max_abs_error": 0.0078125,
    "oracle_ratio": 1.0,
}
NOTHING = dict.fromkeys(
    name for name in MEASURED if name.endswith(("_ns", "_low", "_high", "_per_call", "error", "ratio", "speedup"))
)


@pytest.fixture(scope="session")
def baseline() -> Callable[..., Record]:
    return lambda **changes: Record(**{**MEASURED, **changes})


@pytest.fixture(scope="session")
def variant() -> Callable[..., Record]:
    def make(name: str, speedup: float = 2.0, **changes: Any) -> Record:
        ends = {"speedup": speedup, "speedup_low": speedup - 0.02, "speedup_high": speedup + 0.02}
        return Record(**{**MEASURED, "role": "variant", "implementation": name, **ends, **changes})

    return make


@pytest.fixture(scope="session")
def ended() -> Callable[..., Record]:
    """Make a record of an implementation that was not measured."""

    def make(name: str, status: str, reason: str, **changes: Any) -> Record:
        fate = {"role": "variant", "implementation": name, "status": status, "reason": reason}
        return Record(**{**MEASURED, **NOTHING, **fate, **changes})

    return make
