"""Variants that end their process without a word, with a failing and with a successful exit code."""

import os

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def exits(x):
    os._exit(3)


def exits_quietly(x):
    os._exit(0)


exits = Operator(
    "exits",
    baseline=baseline,
    variants={"exits": exits, "exits_quietly": exits_quietly, "good": good},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
