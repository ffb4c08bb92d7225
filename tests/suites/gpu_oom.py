"""A variant that asks for more device memory than there is."""

import torch

from pairbench import Operator, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def allocates(x):
    blocks = []
    while True:
        blocks.append(torch.empty(1 << 32, dtype=torch.uint8, device=x.device))


gpu_oom = Operator(
    "gpu_oom",
    baseline=baseline,
    variants={"allocates": Variant(allocates, needs="cuda"), "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
