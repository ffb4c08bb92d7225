"""Variants that are right, and change a global setting of PyTorch for everyone after them."""

import torch

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def matmul_precision(x):
    torch.set_float32_matmul_precision("medium")
    return x * 2


def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x * 2


def threads(x):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return x * 2


flags = Operator(
    "flags",
    baseline=baseline,
    variants={
        "matmul_precision": matmul_precision,
        "default_dtype": default_dtype,
        "threads": threads,
        "good": good,
    },
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
