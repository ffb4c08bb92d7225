"""Variants that break a GPU: after a device-side assertion or a write to a foreign address the CUDA context of the process is lost."""

import torch
import triton
import triton.language as tl

from pairbench import Operator, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def declare(name, variant, *needs):
    return Operator(
        f"gpu_{name}",
        baseline=baseline,
        variants={variant.__name__: Variant(variant, needs=("cuda", *needs)), "good": good},
        inputs=inputs,
        cases=grid(rows=[4, 8], dtype=["float32"]),
    )


def asserts(x):
    return x[torch.full((4,), 1 << 20, device=x.device)]


@triton.jit
def _write_far_away(pointer):
    tl.store(pointer + (1 << 40), 1.0)


def illegal(x):
    _write_far_away[(1,)](x)
    return x * 2


def allocates(x):
    """Ask for more device memory than there is."""
    blocks = []
    while True:
        blocks.append(torch.empty(1 << 32, dtype=torch.uint8, device=x.device))


gpu_assert = declare("assert", asserts)
gpu_illegal = declare("illegal", illegal, "triton")
gpu_oom = declare("oom", allocates)
