"""A suite with everything but an operator."""

from pairbench import grid

cases = grid(rows=[4], dtype=["float32"])


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, dtype=dtype)}
