"""A case with an axis that `inputs` does not take."""

from pairbench import Operator, grid

unknown_axis = Operator(
    "unknown_axis",
    baseline=lambda x: x + x,
    variants={"good": lambda x: x * 2},
    inputs=lambda make, rows: {"x": make.normal(rows)},
    cases=grid(rows=[4], columns=[16]),
)
