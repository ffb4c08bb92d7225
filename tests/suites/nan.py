"""Variants with a NaN or an infinity where there is none, and a pair whose NaNs are the right answer."""

import torch

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def one_nan(x):
    out = x * 2
    out[-1, -1] = torch.nan
    return out


def one_infinity(x):
    out = x * 2
    out[0, 0] = torch.inf
    return out


nan = Operator(
    "nan",
    baseline=baseline,
    variants={"one_nan": one_nan, "one_infinity": one_infinity, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)

root = Operator(
    "root",
    baseline=lambda x: x.sqrt(),
    variants={"good": lambda x: torch.where(x < 0, torch.nan, x.abs().sqrt()), "no_nan": lambda x: x.abs().sqrt()},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
