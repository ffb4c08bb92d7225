"""Variants that raise: an ordinary error, a polite exit, and an error that cannot even be printed."""

import sys

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no words")


def raises(x):
    raise RuntimeError("the kernel was built for another shape")


def leaves(x):
    sys.exit(0)


def unprintable(x):
    raise Unprintable


raises = Operator(
    "raises",
    baseline=baseline,
    variants={"raises": raises, "leaves": leaves, "unprintable": unprintable, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
