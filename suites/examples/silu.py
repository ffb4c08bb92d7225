"""SiLU, a pair to read first: the plain form, PyTorch's own, and a Triton kernel.

`pairbench verify suites/examples/silu.py --impostors` checks it on any machine, `pairbench run suites/examples/silu.py` times it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from pairbench import Cost, Operator, Variant, grid

BLOCK = 1024


def inputs(make, n, dtype):
    """Return the arguments of every implementation. Each parameter but `make` is an axis of the cases."""
    return {"x": make.normal(n, dtype=dtype)}


def by_hand(x):
    """Two kernels: the sigmoid is written to memory, and read again for the product."""
    return x * torch.sigmoid(x)


@triton.jit
def _silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + place, mask=place < n).to(tl.float32)
    tl.store(out_ptr + place, value * tl.sigmoid(value), mask=place < n)


def builtin(x):
    """PyTorch's own, which is one kernel too."""
    return F.silu(x)


def in_triton(x):
    """One kernel, in float32 within."""
    out = torch.empty_like(x)
    if x.numel():
        _silu[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out


def without_the_product(x):
    """What somebody may forget: an impostor, which verification has to reject."""
    return torch.sigmoid(x)


silu = Operator(
    "silu",
    baseline=by_hand,
    variants={"builtin": Variant(builtin, kind="library"), "triton": Variant(in_triton, needs="triton")},
    inputs=inputs,
    cases={
        "edge": grid(n=[0, 1, BLOCK + 1], dtype=["float32"]),
        "smoke": grid(n=[1024, 1048576], dtype=["float32", "bfloat16"]),
    },
    # Without elements every answer is right.
    impostors={"without_the_product": Variant(without_the_product, valid=lambda x: x.numel() > 0)},
    cost=lambda n, dtype: Cost(flops=5.0 * n, bytes=2.0 * n * getattr(torch, dtype).itemsize),
    source="an example",
)
