"""A declared impostor that is right, so that rejecting impostors proves nothing here, and one that is right in one case."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def right_of_four(x):
    return x * 2 if len(x) == 4 else x


def zero(x):
    return x * 0


impostor_passes = Operator(
    "impostor_passes",
    baseline=baseline,
    variants={"good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
    impostors={"zero": zero, "not_one": good, "right_of_four": right_of_four},
)
