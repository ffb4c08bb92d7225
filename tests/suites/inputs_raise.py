"""Inputs that cannot be made for one case of two, and a baseline that fails on one case of two."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    if rows == 4:
        raise ValueError("4 rows cannot be")
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline_inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def picky_baseline(x):
    if len(x) == 4:
        raise ValueError("4 rows cannot be")
    return x + x


inputs_raise = Operator(
    "inputs_raise",
    baseline=baseline,
    variants={"good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)

baseline_raises = Operator(
    "baseline_raises",
    baseline=picky_baseline,
    variants={"good": good},
    inputs=baseline_inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
