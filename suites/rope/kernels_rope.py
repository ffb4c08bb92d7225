"""Triton kernels that rotate the queries and keys of a token, all heads of it in one program, with or without a norm first."""

from __future__ import annotations

import math

import torch

from ..norm.kernels_norm_rms import INTERPRETED, narrowed, pieces, warps_for

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None


def rotate(q, k, cos, sin, sizes, start_frame):
    """Return q and k, [batch, tokens, heads, dim], rotated by their places in videos of `sizes`, in one launch.

    Only a batch of videos of different sizes takes more: one for each run of equal ones. `cos` and `sin` are float32,
    [positions, dim / 2], contiguous; the last dimension of q and k is adjacent, the others lie as they like.
    """
    rotated = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k)]
    if q.numel() == 0:
        return tuple(rotated)
    tokens, heads, dim = q.shape[1:]
    for run, size in runs(sizes):
        samples = [x[run] for x in (q, k, *rotated)]
        _rotate[(samples[0].shape[0] * tokens,)](
            *samples, cos, sin, tokens, *samples[0].stride()[:3], *samples[1].stride()[:3], start_frame, math.prod(size), *size[1:],
            BY_HAND=INTERPRETED, **_shape(heads, dim),
        )  # fmt: skip
    return tuple(rotated)


def norm_and_rotate(qkv, weights, cos, sin, heads, sizes, start_frame, eps, rounds):
    """Return queries and keys of packed rows, [batch, tokens, 3 * heads * dim], normed over all heads and rotated.

    One launch, as `rotate`; values are not read. `weights` are the norms', [2, heads * dim], contiguous. With `rounds` what
    is normed is rounded to qkv's dtype before it is multiplied with the weight and before it is rotated; without, all of it is
    float32 until it is written.
    """
    batch, tokens, width = qkv.shape
    dim = width // 3 // heads
    out = torch.empty((2, batch, tokens, heads, dim), dtype=qkv.dtype, device=qkv.device)
    if out.numel() == 0:
        return out[0], out[1]
    for run, size in runs(sizes):
        packed, target = qkv[run], out[:, run]
        _norm_and_rotate[(2 * packed.shape[0] * tokens,)](
            packed, weights, target, cos, sin, tokens, *packed.stride()[:2], *target.stride()[:2],
            start_frame, math.prod(size), *size[1:],
            EPS=eps, ROUNDS=rounds, BY_HAND=INTERPRETED, **_shape(heads, dim),
        )  # fmt: skip
    return out[0], out[1]


def runs(sizes):
    """Yield slices of neighbouring samples of one size, and the size."""
    first = 0
    for at in range(1, len(sizes) + 1):
        if at == len(sizes) or sizes[at] != sizes[first]:
            yield slice(first, at), sizes[first]
            first = at


def _shape(heads, dim):
    """Return the constants of a program that has all heads of a token, in two pieces.

    With 12 heads of 128 they are 8 and 4 on two warps, with 40 they are 32 and 8 on four: 24 or 40 values a thread, in loads of
    16 bytes. All heads of a token share its angles, which then cost 512 bytes beside 3 or 10 KiB of each tensor.
    """
    high, low = pieces(heads)
    third = dim // 2 // 3
    block = triton.next_power_of_2(dim)
    return dict(
        HEADS=heads, HIGH=high, LOW=low, DIM=dim, BLOCK=block, FRAME_PAIRS=dim // 2 - 2 * third, ROW_PAIRS=third,
        num_warps=warps_for(heads * block),
    )  # fmt: skip


# -- kernels ----------------------------------------------------------------------------------------------------------


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


def _jit_for_any_place(kernel):
    """Compile once for all places in a stream: 0, 3 and 48 frames in would otherwise be three kernels, by divisibility."""
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=["start_frame"])


@_jit_for_any_place
def _rotate(
    q, k, q_out, k_out, cos, sin, tokens, q_batch, q_token, q_head, k_batch, k_token, k_head, start_frame, video, height, width,
    BY_HAND: tl.constexpr, HEADS: tl.constexpr, HIGH: tl.constexpr, LOW: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    FRAME_PAIRS: tl.constexpr, ROW_PAIRS: tl.constexpr,
):  # fmt: skip
    """Rotate one token's queries and keys: everything is loaded before the first store, which no load may overtake."""
    program = tl.program_id(0)
    # 64-bit offsets: a batch of long videos passes 2**31 values. Divided before, which takes a fraction of the time in 32.
    sample, token = (program // tokens).to(tl.int64), program % tokens
    c, s = _angles(cos, sin, token, start_frame, video, height, width, DIM, BLOCK, FRAME_PAIRS, ROW_PAIRS)
    q += sample * q_batch + token.to(tl.int64) * q_token
    k += sample * k_batch + token.to(tl.int64) * k_token
    at = program.to(tl.int64) * (HEADS * DIM)
    q_high = _load_heads(q, q_head, 0, HIGH, HEADS, DIM, BLOCK)
    k_high = _load_heads(k, k_head, 0, HIGH, HEADS, DIM, BLOCK)
    if LOW:
        q_low = _load_heads(q, q_head, HIGH, LOW, HEADS, DIM, BLOCK)
        k_low = _load_heads(k, k_head, HIGH, LOW, HEADS, DIM, BLOCK)
    # A branch, which all threads take alike. Multiplying by one and zero would make NaN of an infinity behind the video, and
    # choosing value by value kept the compiler from converting two values at once.
    if token < video:
        _store_heads(q_out + at, _turned(q_high, c, s, HIGH, BLOCK), 0, HIGH, HEADS, DIM, BLOCK, BY_HAND)
        _store_heads(k_out + at, _turned(k_high, c, s, HIGH, BLOCK), 0, HIGH, HEADS, DIM, BLOCK, BY_HAND)
        if LOW:
            _store_heads(q_out + at, _turned(q_low, c, s, LOW, BLOCK), HIGH, LOW, HEADS, DIM, BLOCK, BY_HAND)
            _store_heads(k_out + at, _turned(k_low, c, s, LOW, BLOCK), HIGH, LOW, HEADS, DIM, BLOCK, BY_HAND)
    else:
        _store_heads(q_out + at, q_high.to(tl.float32), 0, HIGH, HEADS, DIM, BLOCK, BY_HAND)
        _store_heads(k_out + at, k_high.to(tl.float32), 0, HIGH, HEADS, DIM, BLOCK, BY_HAND)
        if LOW:
            _store_heads(q_out + at, q_low.to(tl.float32), HIGH, LOW, HEADS, DIM, BLOCK, BY_HAND)
            _store_heads(k_out + at, k_low.to(tl.float32), HIGH, LOW, HEADS, DIM, BLOCK, BY_HAND)


@_jit_for_any_place
def _norm_and_rotate(
    qkv, weights, out, cos, sin, tokens, qkv_batch, qkv_token, out_part, out_batch, start_frame, video, height, width,
    EPS: tl.constexpr, ROUNDS: tl.constexpr, BY_HAND: tl.constexpr,
    HEADS: tl.constexpr, HIGH: tl.constexpr, LOW: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    FRAME_PAIRS: tl.constexpr, ROW_PAIRS: tl.constexpr,
):  # fmt: skip
    """Norm and rotate one token's queries or keys; the program beside it has the other."""
    part = (tl.program_id(0) % 2).to(tl.int64)
    program = tl.program_id(0) // 2
    sample, token = (program // tokens).to(tl.int64), program % tokens
    c, s = _angles(cos, sin, token, start_frame, video, height, width, DIM, BLOCK, FRAME_PAIRS, ROW_PAIRS)
    source = qkv + sample * qkv_batch + token.to(tl.int64) * qkv_token + part * (HEADS * DIM)
    weights += part * (HEADS * DIM)
    out += part * out_part + sample * out_batch + token.to(tl.int64) * (HEADS * DIM)
    high = _load_heads(source, DIM, 0, HIGH, HEADS, DIM, BLOCK).to(tl.float32)
    high_weight = _load_heads(weights, DIM, 0, HIGH, HEADS, DIM, BLOCK)
    total = tl.sum(tl.sum(high * high, 1), 0)
    if LOW:
        low = _load_heads(source, DIM, HIGH, LOW, HEADS, DIM, BLOCK).to(tl.float32)
        low_weight = _load_heads(weights, DIM, HIGH, LOW, HEADS, DIM, BLOCK)
        total += tl.sum(tl.sum(low * low, 1), 0)
    factor = tl.rsqrt(total / (HEADS * DIM) + EPS)
    high = _weighted(high * factor, high_weight, ROUNDS, BY_HAND)
    if LOW:
        low = _weighted(low * factor, low_weight, ROUNDS, BY_HAND)
    if token < video:
        _store_heads(out, _turned(high, c, s, HIGH, BLOCK), 0, HIGH, HEADS, DIM, BLOCK, BY_HAND)
        if LOW:
            _store_heads(out, _turned(low, c, s, LOW, BLOCK), HIGH, LOW, HEADS, DIM, BLOCK, BY_HAND)
    else:
        _store_heads(out, high, 0, HIGH, HEADS, DIM, BLOCK, BY_HAND)
        if LOW:
            _store_heads(out, low, HIGH, LOW, HEADS, DIM, BLOCK, BY_HAND)


@_jit
def _angles(
    cos, sin, token, start_frame, video, height, width,
    DIM: tl.constexpr, BLOCK: tl.constexpr, FRAME_PAIRS: tl.constexpr, ROW_PAIRS: tl.constexpr,
):  # fmt: skip
    """Return cosines and sines of a token's pairs; behind the video there are none to be read."""
    pair = tl.arange(0, BLOCK // 2)
    frame, row, column = start_frame + token // width // height, token // width % height, token % width
    position = tl.where(pair < FRAME_PAIRS, frame, tl.where(pair < FRAME_PAIRS + ROW_PAIRS, row, column))
    known = (token < video) & (pair < DIM // 2)
    c = tl.load(cos + position * (DIM // 2) + pair, mask=known, other=1.0)
    s = tl.load(sin + position * (DIM // 2) + pair, mask=known, other=0.0)
    return c, s


@_jit
def _turned(value, c, s, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Rotate the pairs of some heads in float32. Eight values lie in one thread, so that splitting them moves nothing."""
    even, odd = tl.split(tl.reshape(value.to(tl.float32), (COUNT, BLOCK // 2, 2)))
    turned = tl.join(even * c[None, :] - odd * s[None, :], even * s[None, :] + odd * c[None, :])
    return tl.reshape(turned, (COUNT, BLOCK))


@_jit
def _weighted(normed, weight, ROUNDS: tl.constexpr, BY_HAND: tl.constexpr):
    if ROUNDS and weight.dtype != tl.float32:
        normed = narrowed(normed, weight.dtype, BY_HAND)
        return narrowed(normed * weight.to(tl.float32), weight.dtype, BY_HAND)
    else:
        return normed * weight.to(tl.float32)


# Few helpers in helpers: Triton's interpreter takes some milliseconds for every call of one.


@_jit
def _load_heads(
    base, stride, first: tl.constexpr, COUNT: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr
):
    head, column = first + tl.arange(0, COUNT), tl.arange(0, BLOCK)
    inside = (head < HEADS)[:, None]
    if DIM != BLOCK:
        inside = inside & (column < DIM)[None, :]
    return tl.load(base + head.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)


@_jit
def _store_heads(
    base, value, first: tl.constexpr, COUNT: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    BY_HAND: tl.constexpr,
):  # fmt: skip
    head, column = first + tl.arange(0, COUNT), tl.arange(0, BLOCK)
    inside = (head < HEADS)[:, None]
    if DIM != BLOCK:
        inside = inside & (column < DIM)[None, :]
    if BY_HAND and base.dtype.element_ty == tl.bfloat16:
        value = narrowed(value, tl.bfloat16, BY_HAND)
    tl.store(base + head[:, None] * DIM + column[None, :], value.to(base.dtype.element_ty), mask=inside)
