"""A variant that does the baseline's work twice: right, and half as fast."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.uniform(rows, 256, dtype=dtype)}


def baseline(x):
    for _ in range(20):
        x = x.sin()
    return x


def twice(x):
    baseline(x)
    return baseline(x)


slow = Operator(
    "slow",
    baseline=baseline,
    variants={"twice": twice, "same": lambda x: baseline(x)},
    inputs=inputs,
    cases=grid(rows=[64], dtype=["float32"]),
)
