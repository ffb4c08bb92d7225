"""A Triton kernel of rotary embedding in training: queries and keys rotated in one launch; backward is the rotation back."""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None


def rotated(q, k, cos, sin):
    """Rotate [tokens, heads, dim] by the angles of each token, whose cosines and sines are [tokens, dim]."""
    return _Rotated.apply(q, k, cos, sin)


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin)
        return _both(q, k, cos, sin, 1.0)

    @staticmethod
    def backward(ctx, of_q, of_k):
        return *_both(of_q, of_k, *ctx.saved_tensors, -1.0), None, None


def _both(q, k, cos, sin, sign):
    q, k, cos, sin = q.contiguous(), k.contiguous(), cos.contiguous(), sin.contiguous()
    outs = torch.empty_like(q), torch.empty_like(k)
    tokens, heads, dim = q.shape
    if tokens:
        _rotate[(tokens, heads + k.shape[1])](
            q, k, cos, sin, *outs, sign,
            HEADS=heads, KEYS=k.shape[1], HALF=dim // 2, BLOCK=triton.next_power_of_2(dim // 2), BY_HAND=INTERPRETED, num_warps=1,
        )  # fmt: skip
    return outs


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _rotate(
    q, k, cos, sin, q_out, k_out, sign,
    HEADS: tl.constexpr, KEYS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < HALF
    c = tl.load(cos + token * 2 * HALF + column, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + token * 2 * HALF + column, mask=inside, other=0.0).to(tl.float32) * sign
    if head < HEADS:
        at = (token * HEADS + head) * 2 * HALF + column
        first = tl.load(q + at, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(q + at + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(q_out + at, rounded(first * c - second * s, q_out.dtype.element_ty, BY_HAND), mask=inside)
        tl.store(q_out + at + HALF, rounded(second * c + first * s, q_out.dtype.element_ty, BY_HAND), mask=inside)
    else:
        at = (token * KEYS + head - HEADS) * 2 * HALF + column
        first = tl.load(k + at, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(k + at + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(k_out + at, rounded(first * c - second * s, k_out.dtype.element_ty, BY_HAND), mask=inside)
        tl.store(k_out + at + HALF, rounded(second * c + first * s, k_out.dtype.element_ty, BY_HAND), mask=inside)
