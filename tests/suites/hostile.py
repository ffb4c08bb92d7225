"""Pairs that fail in every way that a suite, which can be loaded, may fail in: each is no more than one mistake.

Of those that differ in their size one case is enough on a CPU: after each bad entry a new process is started.
"""

import ctypes
import os
import sys

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


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no words")


def raises(x):
    raise RuntimeError("the kernel was built for another shape")


def leaves(x):
    sys.exit(0)


def unprintable(x):
    raise Unprintable


def other_names(input, inplace=False):
    return input * 2


# What is right, and changes a global setting of PyTorch for everyone after it.


def matmul_precision(x):
    torch.set_float32_matmul_precision("medium")
    return x * 2


def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x * 2


def threads(x):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return x * 2


fails = declare("fails", raises, leaves, unprintable, other_names, matmul_precision, default_dtype, threads)


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


# What is wrong: in single elements, in shape, structure or dtype, by an answer of before, as the allocator gave it, in what becomes of the input.


def one_nan(x):
    out = x * 2
    out[-1, -1] = torch.nan
    return out


def one_infinity(x):
    out = x * 2
    out[0, 0] = torch.inf
    return out


def cropped(x):
    return (x * 2)[:, :-1]


def broadcasts(x):
    return (x * 2)[:1]


def flattened(x):
    return (x * 2).flatten()


def wrapped(x):
    return (x * 2, x)


def nothing(x):
    return None


def wider(x):
    return (x * 2).double()


def narrower(x):
    return (x * 2).half()


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


_calls = 0
_answer = None


def later(x):
    """Compute for as many calls as verifying takes, and then return the last answer: only the recheck of the calls that were timed can see it."""
    global _calls, _answer
    _calls += 1
    if _calls <= 10:
        _answer = x * 2
    return _answer


def all_of_it(x):
    return torch.empty_like(x)


def tail(x):
    out = torch.empty_like(x)
    out[:-1] = x[:-1] * 2
    return out


def overwrites(x):
    out = x * 2
    x.zero_()
    return out


def in_place(x):
    return x.mul_(2)


wrong = declare(
    "wrong",
    *(one_nan, one_infinity, cropped, broadcasts, flattened, wrapped, nothing, wider, narrower),
    *(by_address, first_call, later, all_of_it, tail, overwrites, in_place),
)


def no_nan(x):
    return x.abs().sqrt()


def root_by_hand(x):
    """Be right, with NaN where the baseline has it."""
    return torch.where(x < 0, torch.nan, x.abs().sqrt())


root = declare("root", baseline=lambda x: x.sqrt(), variants={"good": root_by_hand, "no_nan": no_nan})


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


def picky_baseline(x):
    if len(x) == 4:
        raise ValueError("4 rows cannot be")
    return x + x


inputs_raise = declare("inputs_raise", inputs=picky_inputs, rows=(4, 8))
baseline_raises = declare("baseline_raises", baseline=picky_baseline, rows=(4, 8))


# Tolerances that let zeros through, beside one that does not: floats still have the oracle rule to tell right from wrong, integers have nothing.


def as_integers(x):
    return (x + x > 0).to(torch.int64)


def good_integers(x):
    return (x * 2 > 0).to(torch.int64)


loose_floats = declare("loose_floats", tolerance=Tolerance(atol=100.0))
loose_integers = declare(
    "loose_integers", baseline=as_integers, variants={"good": good_integers}, tolerance=Tolerance(atol=100.0)
)
tight = declare("tight", tolerance=Tolerance(rtol=1e-6))


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


# A key cache that a whole decode loop fills: one variant keeps it right, one forgets it, one rewrites the past.


def cache_inputs(make, steps, capacity, width, dtype):
    return {
        "cache": make.normal(capacity, width, dtype=dtype),
        "queries": make.normal(steps, width, dtype=dtype),
        "keys": make.normal(steps, width, dtype=dtype),
    }


def attend(query, cache):
    return torch.softmax(cache @ query, dim=0) @ cache


def concatenate(cache, queries, keys):
    out = []
    for query, key in zip(queries, keys, strict=True):
        cache.copy_(torch.cat([cache[1:], key[None]]))
        out.append(attend(query, cache))
    return torch.stack(out)


def roll(cache, queries, keys):
    out = torch.empty_like(queries)
    for step in range(len(queries)):
        cache[:-1] = cache[1:].clone()
        cache[-1] = keys[step]
        out[step] = attend(queries[step], cache)
    return out


def forgets(cache, queries, keys):
    return concatenate(cache.clone(), queries, keys)


def rewrites(cache, queries, keys):
    out = concatenate(cache, queries, keys)
    cache[0] = 0
    return out


stateful = Operator(
    "stateful",
    baseline=concatenate,
    variants={"forgets": forgets, "rewrites": rewrites, "good": roll},
    inputs=cache_inputs,
    cases=grid(steps=[3], capacity=[8], width=[16], dtype=["float32"]),
    state=["cache"],
)
