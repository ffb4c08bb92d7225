"""Variants whose output is right and whose input is changed."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def overwrites(x):
    out = x * 2
    x.zero_()
    return out


def in_place(x):
    return x.mul_(2)


mutates = Operator(
    "mutates",
    baseline=baseline,
    variants={"overwrites": overwrites, "in_place": in_place, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
