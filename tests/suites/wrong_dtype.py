"""Variants with the right numbers in another dtype."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def wider(x):
    return (x * 2).double()


def narrower(x):
    return (x * 2).half()


wrong_dtype = Operator(
    "wrong_dtype",
    baseline=baseline,
    variants={"wider": wider, "narrower": narrower, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
