"""A declared impostor that is right, so that rejecting impostors proves nothing here."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def zero(x):
    return x * 0


impostor_passes = Operator(
    "impostor_passes",
    baseline=baseline,
    variants={"good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
    impostors={"zero": zero, "not_one": good},
)
