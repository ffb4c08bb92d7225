"""Variants that leave their output, or the tail of it, as the allocator gave it."""

import torch

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def all_of_it(x):
    return torch.empty_like(x)


def tail(x):
    out = torch.empty_like(x)
    out[:-1] = x[:-1] * 2
    return out


unwritten = Operator(
    "unwritten",
    baseline=baseline,
    variants={"all_of_it": all_of_it, "tail": tail, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
