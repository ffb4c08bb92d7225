"""A variant that fails a device-side assertion, after which the CUDA context of its process is lost."""

import torch

from pairbench import Operator, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def asserts(x):
    return x[torch.full((4,), 1 << 20, device=x.device)]


gpu_assert = Operator(
    "gpu_assert",
    baseline=baseline,
    variants={"asserts": Variant(asserts, needs="cuda"), "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
