"""A variant that never returns. One case, for every one costs the whole timeout."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def hangs(x):
    while True:
        pass


hangs = Operator(
    "hangs",
    baseline=baseline,
    variants={"hangs": hangs, "good": good},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
