"""One element in ten thousand lies beyond the tolerance to the baseline: once because the baseline is off there, once because the variant is."""

from pairbench import Operator, Tolerance, grid

PLACE = 5


def inputs(make, elements, dtype):
    return {"x": make.normal(elements, dtype=dtype)}


def oracle(x):
    return _with(x, 1.0)


def _with(x, value):
    out = x.clone()
    out[PLACE] = value
    return out


def rounds_twice(x):
    return _with(x, 1.015625)


def nearer(x):
    return _with(x, 0.99)


def further(x):
    return _with(x, 0.9765625)


strays = Operator(
    "strays",
    baseline=rounds_twice,
    variants={"nearer": nearer, "further": further},
    inputs=inputs,
    cases=grid(elements=[20_000], dtype=["bfloat16"]),
    impostors={"doubled": lambda x: x * 2},
    oracle=oracle,
    tolerance=Tolerance(rtol=1.6e-2),
)
