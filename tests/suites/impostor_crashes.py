"""Impostors that are worse than wrong: rejected all the same, and nothing else of the case is harmed."""

import os

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def exits(x):
    os._exit(3)


impostor_crashes = Operator(
    "impostor_crashes",
    baseline=lambda x: x * 2,
    variants={"good": lambda x: x + x},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
    impostors={"wrong": lambda x: x * 3, "exits": exits, "also_wrong": lambda x: x * 4},
)
