"""A variant that writes to an address that is not its own, after which the CUDA context is lost."""

import triton
import triton.language as tl

from pairbench import Operator, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


@triton.jit
def _write_far_away(pointer):
    tl.store(pointer + (1 << 40), 1.0)


def illegal(x):
    _write_far_away[(1,)](x)
    return x * 2


gpu_illegal = Operator(
    "gpu_illegal",
    baseline=baseline,
    variants={"illegal": Variant(illegal, needs=("cuda", "triton")), "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
