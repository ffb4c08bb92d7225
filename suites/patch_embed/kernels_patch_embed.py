"""A Triton product of a video's patches with a matrix: the patches are gathered where they lie, tokens are what it writes."""

from __future__ import annotations

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variant needs="triton" is skipped there
    triton = None

INTERPRETED = triton is not None and triton.knobs.runtime.interpret
"""Triton's interpreter multiplies bfloat16 as the integers that it keeps them in, so there the products are of float32."""


def gathered_product(x, matrix, bias, kernel):
    """Return [batch, tokens, features] of x, [batch, channels, time, height, width], cut into patches without overlap.

    `matrix` is [features, channels * kt * kh * kw], contiguous. What does not fill a patch at the far ends is left out.
    """
    batch = x.shape[0]
    steps, lines, columns = (size // taps for size, taps in zip(x.shape[2:], kernel, strict=True))
    features, inner = matrix.shape
    out = torch.empty((batch, steps * lines * columns, features), dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    tokens = batch * steps * lines * columns
    block_t = min(128, max(16, triton.next_power_of_2(tokens)))
    block_f = min(128, max(16, triton.next_power_of_2(features)))
    wide = x.dtype == torch.float32
    block_k = 16 if inner <= 16 else 32 if wide else 64
    _gathered_product[(triton.cdiv(tokens, block_t) * triton.cdiv(features, block_f),)](
        x, matrix, bias, out, tokens, features, inner, steps, lines, columns, *x.stride(),
        KT=kernel[0], KH=kernel[1], KW=kernel[2], WIDEN=INTERPRETED,
        BLOCK_T=block_t, BLOCK_F=block_f, BLOCK_K=block_k, num_warps=8 if block_t == block_f == 128 else 4,
    )  # fmt: skip
    return out


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _gathered_product(
    x, matrix, bias, out, tokens, features, inner, steps, lines, columns, x_batch, x_channel, x_step, x_line, x_column,
    KT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, WIDEN: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute a tile of tokens and features; neighbouring programs share the patches."""
    tiles_f = tl.cdiv(features, BLOCK_F)
    token = tl.program_id(0) // tiles_f * BLOCK_T + tl.arange(0, BLOCK_T)
    feature = tl.program_id(0) % tiles_f * BLOCK_F + tl.arange(0, BLOCK_F)
    known, wanted = token < tokens, feature < features
    step = token // columns // lines
    # 64-bit offsets: a batch of long videos passes 2**31 values, and so do its tokens.
    corner = (step // steps).to(tl.int64) * x_batch + (step % steps * KT).to(tl.int64) * x_step
    corner += (token // columns % lines * KH).to(tl.int64) * x_line + (token % columns * KW).to(tl.int64) * x_column
    total = tl.zeros((BLOCK_T, BLOCK_F), tl.float32)
    for first in tl.range(0, inner, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        within = (k // (KT * KH * KW)).to(tl.int64) * x_channel + (k // (KH * KW) % KT).to(tl.int64) * x_step
        within += (k // KW % KH).to(tl.int64) * x_line + (k % KW).to(tl.int64) * x_column
        inside = k < inner
        patches = tl.load(x + corner[:, None] + within[None, :], mask=known[:, None] & inside[None, :], other=0.0)
        at = feature.to(tl.int64)[None, :] * inner + k[:, None]
        weights = tl.load(matrix + at, mask=wanted[None, :] & inside[:, None], other=0.0)
        if WIDEN:
            total += tl.dot(patches.to(tl.float32), weights.to(tl.float32), input_precision="ieee")
        else:
            total = tl.dot(patches, weights, total, input_precision="ieee")
    if bias is not None:
        total += tl.load(bias + feature, mask=wanted, other=0.0).to(tl.float32)[None, :]
    target = out + token.to(tl.int64)[:, None] * features + feature[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=known[:, None] & wanted[None, :])
