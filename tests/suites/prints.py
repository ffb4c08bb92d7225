"""A variant that fills stdout and stderr, through Python and past it."""

import os
import sys

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def prints(x):
    for line in range(2_000):
        print(f"line {line} " + "-" * 60)
        print(f"line {line} " + "-" * 60, file=sys.stderr)
    os.write(1, b'{"not": "a message"}\n\x00\xff')
    return x * 2


prints = Operator(
    "prints",
    baseline=baseline,
    variants={"prints": prints, "good": good},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
