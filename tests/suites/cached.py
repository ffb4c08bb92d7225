"""Variants that compute once and then return yesterday's answer."""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


_answers = {}


def by_address(x):
    key = (x.data_ptr(), x.shape)
    if key not in _answers:
        _answers[key] = x * 2
    return _answers[key]


def first_call(x):
    if x.shape not in _answers:
        _answers[x.shape] = x * 2
    return _answers[x.shape]


cached = Operator(
    "cached",
    baseline=baseline,
    variants={"by_address": by_address, "first_call": first_call, "good": good},
    inputs=inputs,
    cases=grid(rows=[4, 8], dtype=["float32"]),
)
