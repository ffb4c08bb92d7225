"""A variant that asks the device for a number: right and legal in eager mode, impossible in a CUDA graph."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def syncs(x):
    return x * 2 if x.abs().sum().item() > 0 else x


syncs = Operator(
    "syncs",
    baseline=baseline,
    variants={"syncs": syncs, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
