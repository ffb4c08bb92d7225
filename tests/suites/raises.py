"""Variants that raise: an ordinary error, a polite exit, an error that cannot even be printed, and other parameters."""

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


def other_names(input, inplace=False):
    return input * 2


raises = Operator(
    "raises",
    baseline=baseline,
    variants={
        "raises": raises,
        "leaves": leaves,
        "unprintable": unprintable,
        "other_names": other_names,
        "good": good,
    },
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
