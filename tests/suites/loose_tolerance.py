"""Tolerances that let zeros through as an answer, beside the same pair with one that does not.

Of the loose ones, floats still have the oracle rule to tell right from wrong; integers have nothing.
"""

import torch

from pairbench import Operator, Tolerance, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def declare(name, tolerance, convert=lambda out: out):
    return Operator(
        name,
        baseline=lambda x: convert(x + x),
        variants={"good": lambda x: convert(x * 2)},
        inputs=inputs,
        cases=grid(rows=[4, 8], dtype=["float32"]),
        tolerance=tolerance,
    )


loose_floats = declare("loose_floats", Tolerance(atol=100.0))
loose_integers = declare("loose_integers", Tolerance(atol=100.0), lambda out: (out > 0).to(torch.int64))
tight = declare("tight", Tolerance(rtol=1e-6))
