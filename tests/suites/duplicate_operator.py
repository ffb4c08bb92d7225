"""Two operators of one name, so that their histories could not be told apart."""

from pairbench import Operator, grid


def declare():
    return Operator(
        "twin",
        baseline=lambda x: x + x,
        variants={"good": lambda x: x * 2},
        inputs=lambda make, rows: {"x": make.normal(rows)},
        cases=grid(rows=[4]),
    )


one = declare()
other = declare()
