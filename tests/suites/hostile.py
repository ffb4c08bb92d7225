"""Pairs that fail in each way that a run treats by itself: each is no more than one mistake.

What is said of each wrong output is for tests/execute/worker/verify: here one of a kind is enough, for after each bad entry a new process is started.
"""

import ctypes
import os

import torch

from pairbench import Operator, Tolerance, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def declare(name, *variants, baseline=baseline, inputs=inputs, rows=(4,), **more):
    """Declare functions as variants of a pair, by their names, and a good one that comes last."""
    named = {variant.__name__: variant for variant in (*variants, good)}
    cases = grid(rows=list(rows), dtype=["float32"])
    return Operator(name, **{"baseline": baseline, "variants": named, "inputs": inputs, "cases": cases, **more})


# What raises.


def raises(x):
    raise RuntimeError("the kernel was built for another shape")


def other_names(input, inplace=False):
    return input * 2


# What is right, and changes a global setting of PyTorch for everyone after it.


def matmul_precision(x):
    torch.set_float32_matmul_precision("medium")
    return x * 2


fails = declare("fails", raises, other_names, matmul_precision)


# What ends its process: without a word, by reading address 0, or by taking all memory there is.


def exits(x):
    os._exit(3)


def exits_quietly(x):
    os._exit(0)


def segfaults(x):
    return ctypes.string_at(0)


GIB = 1 << 30


def allocates(x):
    """Allocate without end, touching every page; give up at 8 GiB, so that a harness that does not stop it fails a test and not the machine."""
    blocks = []
    for _ in range(8 * 16):
        blocks.append(b"x" * (GIB // 16))
    raise AssertionError("nobody stopped this variant at 8 GiB")


ends = declare("ends", exits, exits_quietly, segfaults, allocates)


def hangs(x):
    while True:
        pass


hangs = declare("hangs", hangs)


# What is wrong: in its shape, by an answer of before, as the allocator gave it, in what becomes of the input.


def cropped(x):
    return (x * 2)[:, :-1]


_answers = {}


def by_address(x):
    key = (x.data_ptr(), x.shape)
    if key not in _answers:
        _answers[key] = x * 2
    return _answers[key]


_calls = 0
_answer = None


def later(x):
    """Compute for as many calls as verifying takes, and then return the last answer: only the recheck of the calls that were timed can see it."""
    global _calls, _answer
    _calls += 1
    if _calls <= 10:
        _answer = x * 2
    return _answer


def tail(x):
    out = torch.empty_like(x)
    out[:-1] = x[:-1] * 2
    return out


def in_place(x):
    return x.mul_(2)


wrong = declare("wrong", cropped, by_address, later, tail, in_place)


# What fails before it is called, or in one case of two.


def prepare(weight):
    raise RuntimeError("this layout needs a multiple of 32 columns")


def scaled(x, weight):
    return weight * x


prepare_raises = declare(
    "prepare_raises",
    baseline=lambda x, weight: x * weight,
    variants={"prepared": Variant(scaled, prepare=prepare), "good": scaled},
    inputs=lambda make, rows, dtype: {**inputs(make, rows, dtype), "weight": make.ones(16, dtype=dtype)},
    constants=["weight"],
)


def picky_inputs(make, rows, dtype):
    if rows == 4:
        raise ValueError("4 rows cannot be")
    return inputs(make, rows, dtype)


inputs_raise = declare("inputs_raise", inputs=picky_inputs, rows=(4, 8))


# A tolerance that lets zeros through.


loose = declare("loose", tolerance=Tolerance(atol=100.0))


# One element in ten thousand beyond the tolerance to the baseline: once because the baseline is off there, once because the variant is.


def with_stray(value):
    def strays(x):
        out = x.clone()
        out[5] = value
        return out

    return strays


strays = Operator(
    "strays",
    baseline=with_stray(1.015625),
    variants={"nearer": with_stray(0.99), "further": with_stray(0.9765625)},
    inputs=lambda make, elements, dtype: {"x": make.normal(elements, dtype=dtype)},
    cases=grid(elements=[20_000], dtype=["bfloat16"]),
    impostors={"doubled": lambda x: x * 2},
    oracle=with_stray(1.0),
    tolerance=Tolerance(rtol=1.6e-2),
)
