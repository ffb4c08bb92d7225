"""How kernels were compiled, of Triton's own, of torch's compiler and of libraries, as the record of a real run says."""

from pathlib import Path

import pandas as pd
import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SUITE = """
import torch
import triton
import triton.language as tl
from pairbench import Operator, Variant, grid

@triton.jit
def _gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=at < n)

def by_triton(x, BLOCK=1024, warps=4):
    y = torch.empty_like(x)
    _gelu[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, num_warps=warps)
    return y

def spilling(x):
    return by_triton(x, BLOCK=16384, warps=1)

def baseline(x):
    return torch.nn.functional.gelu(x)

op = Operator("op", baseline=baseline, variants={"triton": by_triton, "spilling": spilling, "compiled": torch.compile(baseline, dynamic=False)},
    inputs=lambda make, rows: {"x": make.normal(rows, 4096)}, cases={"real": grid(rows=[256])})
"""


def test_kernels_of_each_kind_have_what_is_known_of_them(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(SUITE)
    document = pairbench("run", "ops.py", "--device", "cuda:0", "--tier", "real", "--rounds", "1", folder=tmp_path)
    records = pd.read_parquet(tmp_path / "results" / "records").set_index("implementation")
    assert set(records.status) == {"measured"}, document["records"]
    builds = {name: list(value) for name, value in records.kernel_builds.items()}
    (triton,), (spilled,) = builds["triton"], builds["spilling"]
    assert triton["name"] == spilled["name"] == "_gelu"
    assert (triton["warps"], triton["spills"], triton["shared_bytes"]) == (4, 0, 0)
    assert 0 < triton["registers"] < spilled["registers"] and spilled["spills"] > 0 and spilled["warps"] == 1
    assert triton["stages"] and len(triton["code"]) == 16 and triton["code"] != spilled["code"]
    (compiled,) = builds["compiled"]
    assert compiled["name"].startswith("triton_") and compiled["registers"] > 0 and compiled["spills"] == 0
    (library,) = builds["baseline"]
    assert library["registers"] > 0 and library["warps"] > 0 and library["spills"] is None and library["code"] is None
    rows = {row["implementation"]: row for row in document["records"]}
    assert rows["spilling"]["kernel_builds"][0]["spills"] == spilled["spills"]
