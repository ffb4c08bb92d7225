"""Triton kernels of gated activations in training: silu(gate) * up and gelu(gate) * up, one kernel forward and one backward.

By hand, backward needs the gate, its activation and the other half; the kernels compute the activation again and keep only what they were given.
"""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

BLOCK = 1024


def silu_gated(gate, up):
    return _Gated.apply(gate, up, False)


def gelu_gated(gate, up):
    """With the tanh form of GELU."""
    return _Gated.apply(gate, up, True)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, gelu):
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        ctx.gelu = gelu
        out = torch.empty_like(gate)
        if count := gate.numel():
            _forward[(triton.cdiv(count, BLOCK),)](gate, up, out, count, GELU=gelu, SIZE=BLOCK, BY_HAND=INTERPRETED)
        return out

    @staticmethod
    def backward(ctx, gradient):
        gate, up = ctx.saved_tensors
        of_gate, of_up = torch.empty_like(gate), torch.empty_like(up)
        if count := gate.numel():
            _backward[(triton.cdiv(count, BLOCK),)](
                gate, up, gradient.contiguous(), of_gate, of_up, count, GELU=ctx.gelu, SIZE=BLOCK, BY_HAND=INTERPRETED
            )
        return of_gate, of_up, None


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _activated(x, GELU: tl.constexpr):
    """Return the activation of x and its derivative."""
    if GELU:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        # (1 + tanh(inner)) / 2 and (1 - tanh(inner)) / 2, either without the cancellation.
        up, down = 1.0 / (1.0 + tl.exp(-2.0 * inner)), 1.0 / (1.0 + tl.exp(2.0 * inner))
        slope = 0.7978845608028654 * (1.0 + 0.134145 * x * x)
        return x * up, up + 2.0 * x * up * down * slope
    else:
        half = 1.0 / (1.0 + tl.exp(-x))
        return x * half, half * (1.0 + x * (1.0 - half))


@_jit
def _forward(gate, up, out, count, GELU: tl.constexpr, SIZE: tl.constexpr, BY_HAND: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value, _ = _activated(tl.load(gate + at, mask=inside, other=0.0).to(tl.float32), GELU)
    value *= tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, rounded(value, out.dtype.element_ty, BY_HAND), mask=inside)


@_jit
def _backward(gate, up, gradient, of_gate, of_up, count, GELU: tl.constexpr, SIZE: tl.constexpr, BY_HAND: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value, slope = _activated(tl.load(gate + at, mask=inside, other=0.0).to(tl.float32), GELU)
    given = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(of_gate + at, rounded(given * other * slope, of_gate.dtype.element_ty, BY_HAND), mask=inside)
    tl.store(of_up + at, rounded(given * value, of_up.dtype.element_ty, BY_HAND), mask=inside)
