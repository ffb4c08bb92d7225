"""A Triton kernel of an RMS norm over channels with SiLU behind it: each value of a video is read once and written once."""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants that need="triton" are skipped there
    triton = None

LARGEST = 4096
"""Channels that one tile holds."""


def norm_silu(x, gamma):
    """Return silu(x / ||x|| * sqrt(c) * gamma) of a video [b, c, t, h, w] with its norms over c, in the layout of x.

    Everything between the load and the store is in float32, in float64 for float64, and rounded once.

    Args:
        x: Contiguous or channels-last; copied to channels-last if it is neither.
        gamma: [c, 1, 1, 1], contiguous.
    """
    if not x.is_contiguous():
        x = x.contiguous(memory_format=torch.channels_last_3d)
    out = torch.empty_like(x)
    if out.numel() == 0:
        return out
    b, c = x.shape[:2]
    pixels = x[0, 0].numel()
    channels_last = not x.is_contiguous()
    step, across = (c, 1) if channels_last else (1, pixels)
    block, count, warps = tile(c, channels_last)
    _norm_silu[(triton.cdiv(pixels, count), b)](
        x, gamma, out, pixels, c * pixels, step, across,
        C=c, ROOT=c**0.5, BLOCK=block, PIXELS=count, BY_HAND=INTERPRETED, num_warps=warps,
    )  # fmt: skip
    return out


def tile(channels, channels_last):
    """Return the block of channels, how many pixels a program has with it, and its warps.

    Measured on an H200 (torch 2.11, triton 3.6; bfloat16), in microseconds, a copy in brackets:

    ===========================  ===============================  ==========================================================
    video [1, c, t, h, w]        chosen                           others
    ===========================  ===============================  ==========================================================
    96, 4, 720, 1280, last       32 pixels, 4 warps: 379 (335)    16, 2 warps: 373; 16, 4: 409; 32, 2: 590; 64, 8: 393
    192, 4, 360, 640, last       16 pixels, 4 warps: 192 (172)    8, 2 warps: 204; 16, 8: 214; 32, 8: 206
    384, 2, 180, 320, last       8 pixels, 4 warps: 55 (46)       8, 8 warps: 61; 16, 8: 57; 32, 16: 69
    96, 4, 720, 1280, first      64 pixels, 4 warps: 388 (336)    16, 2 warps: 799; 32, 2: 454; 64, 8: 401; 128, 8: 403
    192, 4, 360, 640, first      64 pixels, 8 warps: 204 (171)    32, 4 warps: 215; 64, 16: 244; 128, 16: 306
    384, 2, 180, 320, first      32 pixels, 8 warps: 60 (47)      16, 4 warps: 70; 32, 16: 80; 64, 16: 94
    ===========================  ===============================  ==========================================================

    That is 32 values a thread where channels lie side by side, and 64 where pixels do: a channel then needs many of them, or
    what a warp loads of it is a small part of each line of memory.
    """
    block = triton.next_power_of_2(channels)
    pixels = max(1, 4096 // block if channels_last else min(64, 16384 // block))
    return block, pixels, max(1, min(32, block * pixels // (1024 if channels_last else 2048)))


# -- kernel -----------------------------------------------------------------------------------------------------------


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _norm_silu(
    x, gamma, out, pixels, video, step, across,
    C: tl.constexpr, ROOT: tl.constexpr, BLOCK: tl.constexpr, PIXELS: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    """Norm the channels of several pixels; `step` is from pixel to pixel and `across` from channel to channel."""
    # 64-bit offsets: long videos pass 2**31 values.
    pixel = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.arange(0, BLOCK)
    at = tl.program_id(1).to(tl.int64) * video + pixel[:, None] * step + channel[None, :].to(tl.int64) * across
    inside = (pixel < pixels)[:, None] & (channel < C)[None, :]
    value = tl.load(x + at, inside, other=0.0)
    scale = tl.load(gamma + channel, channel < C, other=0.0)
    if x.dtype.element_ty != tl.float64:
        value, scale = value.to(tl.float32), scale.to(tl.float32)
    length = tl.sqrt(tl.sum(value * value, 1))
    normed = value * (ROOT / tl.maximum(length, 1e-12))[:, None] * scale[None, :]
    result = normed / (1.0 + tl.exp(-normed))
    tl.store(out + at, rounded(result, x.dtype.element_ty, BY_HAND), inside)
