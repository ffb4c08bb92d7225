"""Triton kernels, one right and one wrong: verified everywhere, timed where there is a GPU."""

import torch
import triton
import triton.language as tl

from pairbench import Operator, Variant, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


@triton.jit
def _double(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count) * 2, mask=at < count)


def kernel(x):
    out = torch.empty_like(x)
    _double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def off_by_one(x):
    out = torch.empty_like(x)
    _double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel() - 1, BLOCK=64)
    return out


def declare(name, variant):
    return Operator(
        name,
        baseline=baseline,
        variants={"kernel": Variant(variant, needs="triton")},
        inputs=inputs,
        cases={"edge": grid(rows=[1], dtype=["float32"]), "smoke": grid(rows=[5], dtype=["float32"])},
    )


interpreted = declare("interpreted", kernel)
interpreted_wrong = declare("interpreted_wrong", off_by_one)
