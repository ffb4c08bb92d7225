"""An operator that declares one case in two tiers."""

from pairbench import Operator, grid

duplicate_case = Operator(
    "duplicate_case",
    baseline=lambda x: x + x,
    variants={"good": lambda x: x * 2},
    inputs=lambda make, rows: {"x": make.normal(rows)},
    cases={"smoke": grid(rows=[4, 8]), "real": grid(rows=[8, 16])},
)
