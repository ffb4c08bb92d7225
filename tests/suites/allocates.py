"""A variant that allocates host memory without end and touches every page.

It gives up by itself at 8 GiB, so that a harness that does not stop it fails a test and not the machine.
"""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


GIB = 1 << 30


def allocates(x):
    blocks = []
    for _ in range(8 * 16):
        blocks.append(b"x" * (GIB // 16))
    raise AssertionError("nobody stopped this variant at 8 GiB")


allocates = Operator(
    "allocates",
    baseline=baseline,
    variants={"allocates": allocates, "good": good},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
