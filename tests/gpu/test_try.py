"""`pairbench try` on a GPU: latencies of the device, launches, what an autotuner chose, and agreement with a run."""

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SUITE = """
import torch
import triton
import triton.language as tl
from pairbench import Cost, Operator, Variant, grid

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=8) for block in (1024, 4096)]

@triton.autotune(configs=CONFIGS, key=["count"])
@triton.jit
def _silu(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + at, mask=at < count)
    tl.store(target + at, x * tl.sigmoid(x), mask=at < count)

def tuned(x):
    out = torch.empty_like(x)
    _silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out

silu = Operator("silu", baseline=lambda x: x * torch.sigmoid(x), variants={"tuned": Variant(tuned, needs="triton")},
    inputs=lambda make, n: {"x": make.normal(n)}, cases={"real": grid(n=[2**24])},
    cost=lambda n: Cost(flops=4 * n, bytes=8 * n))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(SUITE)
    return tmp_path


def rows(folder: Path, verb: str, *arguments: str) -> dict[str, dict[str, Any]]:
    document = pairbench(verb, "ops.py", *arguments, folder=folder, XDG_CACHE_HOME=str(folder / "cache"))
    return {row["implementation"]: row for row in document["tries" if verb == "try" else "records"]}


def test_a_quick_look_sees_what_a_run_sees(folder: Path) -> None:
    run = rows(folder, "run")["tuned"]
    found = rows(folder, "try")["tuned"]
    assert found["device_p50_ns"] == pytest.approx(run["device_p50_ns"], rel=0.05)
    assert found["device_speedup"] == pytest.approx(run["device_speedup"], rel=0.05)
    assert (found["launches_per_call"], found["launch_status"]) == (1, "exact")
    assert found["stored_run"]["run_id"] == run["run_id"] and not found["stored_run"]["other_environment"]
    assert 0.3 < found["roofline_fraction"] < 1.1
    for row in (run, found):
        assert row["autotuned"] and all(text.startswith("_silu: BLOCK=") for text in row["autotuned"])
    assert rows(folder, "try")["tuned"]["last_try"]["p50_ns"] == found["device_p50_ns"]
