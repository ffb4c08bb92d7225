"""A variant whose one-off work fails before it is ever called."""

from pairbench import Operator, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype), "weight": make.ones(16, dtype=dtype)}


def baseline(x, weight):
    return x * weight


def good(x, weight):
    return weight * x


def prepare(weight):
    raise RuntimeError("this layout needs a multiple of 32 columns")


prepare_raises = Operator(
    "prepare_raises",
    baseline=baseline,
    variants={"prepared": Variant(good, prepare=prepare), "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
    constants=["weight"],
)
