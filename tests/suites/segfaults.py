"""A variant that reads address 0."""

import ctypes

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def segfaults(x):
    return ctypes.string_at(0)


segfaults = Operator(
    "segfaults",
    baseline=baseline,
    variants={"segfaults": segfaults, "good": good},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
