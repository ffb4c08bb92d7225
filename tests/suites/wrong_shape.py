"""Variants with the right numbers in another shape or structure, one of which broadcasts to the right one."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def cropped(x):
    return (x * 2)[:, :-1]


def broadcasts(x):
    return (x * 2)[:1]


def flattened(x):
    return (x * 2).flatten()


def wrapped(x):
    return (x * 2, x)


def nothing(x):
    return None


wrong_shape = Operator(
    "wrong_shape",
    baseline=baseline,
    variants={
        "cropped": cropped,
        "broadcasts": broadcasts,
        "flattened": flattened,
        "wrapped": wrapped,
        "nothing": nothing,
        "good": good,
    },
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
