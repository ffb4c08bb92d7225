"""Triton kernels of `causal_conv3d`: frames put together in one pass, and the convolution as an implicit GEMM.

They stand apart from `causal.py` so that the declaration there stays readable; nothing here knows the harness.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ..common.kernels_opaque import opaque

# Which bfloat16 parts of a float32 x and weight (0 the largest) are multiplied besides the two largest: the products that
# reach 2**-24 of those, smallest first. Packed two bits each: x parts 0 1 2 0 1, weight parts 2 1 0 1 0.
_X_PARTS = tl.constexpr(0 | 1 << 2 | 2 << 4 | 0 << 6 | 1 << 8)
_W_PARTS = tl.constexpr(2 | 1 << 2 | 0 << 4 | 1 << 6 | 0 << 8)

# Triton's interpreter multiplies bfloat16 as the integers it keeps them in, so there the products are of float32.
_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


class Tile(NamedTuple):
    """What one program computes: `groups` rows of `cols` pixels, `n0` + `n1` output channels.

    A row of activations, once loaded, serves every output row and vertical tap that needs it: 12 products for 6 loads
    with 4 groups, where a GEMM over patches loads 12 times. Two widths add up to channel counts that are no power of two.
    """

    groups: int
    cols: int
    n0: int
    n1: int
    k: int
    stages: int
    warps: int = 4


@triton.jit
def _gather_frames(
    x, cache, out, total, c, t, h, w, cached, front,
    xb, xc, xt, xh, xw, cb, cc, ct, ch, cw, ob, oc, ot, oh, ow,
    CHANNELS_FAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write frames [zeros, cache, x] to `out`, element by element in the order of its memory."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    frames = front + t
    if CHANNELS_FAST:
        ic = i % c
        iw = i // c % w
        ih = i // c // w % h
        it = i // c // w // h % frames
        ib = i // c // w // h // frames
    else:
        iw = i % w
        ih = i // w % h
        it = i // w // h % frames
        ic = i // w // h // frames % c
        ib = i // w // h // frames // c
    f = it - front
    from_x = inside & (f >= 0)
    value = tl.load(x + ib * xb + ic * xc + f * xt + ih * xh + iw * xw, from_x, other=0)
    if cached > 0:
        from_cache = inside & (f < 0) & (f >= -cached)
        at = ib * cb + ic * cc + (f + cached) * ct + ih * ch + iw * cw
        value = tl.where(from_cache, tl.load(cache + at, from_cache, other=0), value)
    tl.store(out + ib * ob + ic * oc + it * ot + ih * oh + iw * ow, value, inside)


def gather_frames(x, cache, front, memory_format):
    """Return [zeros, cache, x] along time with `front` frames before x, in one kernel."""
    b, c, t, h, w = x.shape
    out = torch.empty((b, c, front + t, h, w), dtype=x.dtype, device=x.device, memory_format=memory_format)
    cached = 0 if cache is None else min(front, cache.shape[2])
    cache = x if not cached else cache[:, :, cache.shape[2] - cached :]
    block = 1024
    _gather_frames[(triton.cdiv(out.numel(), block),)](
        x, cache, out, out.numel(), c, t, h, w, cached, front, *x.stride(), *cache.stride(), *out.stride(),
        CHANNELS_FAST=memory_format == torch.channels_last_3d, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _to_channels_last(
    x, out, c, t, pixels, padded, part, xb, xc, xt, xp,
    PARTS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    frame = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    i = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    at = frame // t * xb + frame % t * xt + p[:, None] * xp + i[None, :].to(tl.int64) * xc
    value = tl.load(x + at, (p < pixels)[:, None] & (i < c)[None, :], other=0)
    to = out + (frame * pixels + p[:, None]) * padded + i[None, :]
    inside = (p < pixels)[:, None] & (i < padded)[None, :]
    for k in tl.static_range(PARTS):
        rounded = value.to(out.dtype.element_ty)
        tl.store(to + k * part, rounded, inside)
        if k + 1 < PARTS:
            value -= rounded.to(tl.float32)


def to_channels_last(x, dtype, parts):
    """Return x as [parts * b * t, h, w, c], c padded with zeros to a multiple of 8; the parts add up to x."""
    b, c, t, h, w = x.shape
    if x.stride(3) != w * x.stride(4):
        x = x.contiguous()
    padded = triton.cdiv(c, 8) * 8
    out = torch.empty((parts * b * t, h, w, padded), dtype=dtype, device=x.device)
    block_c = 64 if padded % 64 == 0 else min(128, triton.next_power_of_2(padded))
    block_p = 8192 // max(64, block_c) if h * w >= 128 else 16
    _to_channels_last[(triton.cdiv(h * w, block_p), b * t, triton.cdiv(padded, block_c))](
        x, out, c, t, h * w, padded, out.numel() // parts, *x.stride()[:3], x.stride(4),
        PARTS=parts, BLOCK_P=block_p, BLOCK_C=block_c, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _dot(a, b, total):
    if _INTERPRETED:
        return total + tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a, b, total)


@triton.jit
def _accumulate(
    sums, x, w0, w1, tap_begin, tap_end, frame, row, col, n, part_frames, part_taps,
    KH: tl.constexpr, KW: tl.constexpr, KC: tl.constexpr, PRODUCTS: tl.constexpr, PROMOTE: tl.constexpr,
    GROUPS: tl.constexpr, M: tl.constexpr, N0: tl.constexpr, N1: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add the products of the temporal taps from `tap_begin` to `tap_end`, all of whose frames are in `x`."""
    PER_TAP: tl.constexpr = KW * PRODUCTS * KC
    SUMS: tl.constexpr = 2 if N1 > 0 else 1
    for step in tl.range(tap_begin * PER_TAP, tap_end * PER_TAP, num_stages=STAGES):
        i = step // PER_TAP
        j = step // (PRODUCTS * KC) % KW
        k = step % KC * K
        source = frame + i
        tap = i * (KH * KW) + j
        if PRODUCTS > 1:
            product = step // KC % PRODUCTS
            source += (_X_PARTS >> (2 * product) & 3) * part_frames
            tap += (_W_PARTS >> (2 * product) & 3) * part_taps
        rows = ()
        for r in tl.static_range(GROUPS + KH - 1):
            rows = rows + (x.load([source, row + r, col + j, k]).reshape(M, K),)
        weights = ()
        for dh in tl.static_range(KH):
            weights = weights + (w0.load([tap + dh * KW, k, n]).reshape(K, N0),)
            if N1 > 0:
                weights = weights + (w1.load([tap + dh * KW, k, n + N0]).reshape(K, N1),)
        if PROMOTE:
            new = ()
            for s in tl.static_range(GROUPS * SUMS):
                partial = tl.zeros_like(sums[s])
                for dh in tl.static_range(KH):
                    partial = _dot(rows[s // SUMS + dh], weights[dh * SUMS + s % SUMS], partial)
                new = new + (sums[s] + partial,)
            sums = new
        else:
            for dh in tl.static_range(KH):
                new = ()
                for s in tl.static_range(GROUPS * SUMS):
                    new = new + (_dot(rows[s // SUMS + dh], weights[dh * SUMS + s % SUMS], sums[s]),)
                sums = new
    return sums


@triton.jit
def _store(total, out, bias, row, col, n, h, w, oc, oh, ow, cout, HAS_BIAS: tl.constexpr,
           COLS: tl.constexpr, N: tl.constexpr):  # fmt: skip
    cols = col + tl.arange(0, COLS)
    channels = n + tl.arange(0, N)
    if HAS_BIAS:
        total += tl.load(bias + channels, channels < cout, other=0).to(tl.float32)[None, :]
    at = (row.to(tl.int64) * oh + cols * ow)[:, None] + (channels.to(tl.int64) * oc)[None, :]
    inside = ((row < h) & (cols < w))[:, None] & (channels < cout)[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), inside)


@triton.jit
def _conv3d(
    x, cache, w0, w1, bias, out, t_in, cached, cache_frames, front, stride_t,
    t, h, w, cout, pad_h, pad_w, x_part, cache_part, w_part, ob, oc, ot, oh, ow,
    HAS_CACHE: tl.constexpr, HAS_BIAS: tl.constexpr, SPLIT: tl.constexpr,
    KT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, KC: tl.constexpr,
    GROUPS: tl.constexpr, COLS: tl.constexpr,
    N0: tl.constexpr, N1: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    # Neighbours in this order share activations: channel tiles of one place, then places of a row, then its frames.
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(cout, N0 + N1)
    tiles_w = tl.cdiv(w, COLS)
    tiles_h = tl.cdiv(h, GROUPS)
    n = pid % tiles_n * (N0 + N1)
    pid = pid // tiles_n
    col = pid % tiles_w * COLS
    pid = pid // tiles_w
    it = pid % t
    pid = pid // t
    row = pid % tiles_h * GROUPS
    ib = pid // tiles_h

    sums = ()
    for _ in tl.static_range(GROUPS):
        sums = sums + (tl.zeros((COLS, N0), tl.float32),)
        if N1 > 0:
            sums = sums + (tl.zeros((COLS, N1), tl.float32),)
    # Frame of tap i, relative to x: first + i. Negative frames are the cache's, those before it are zero and skipped.
    first = it * stride_t - front
    in_x = tl.minimum(tl.maximum(-first, 0), KT)
    in_cache = tl.minimum(tl.maximum(-first - cached, 0), KT)
    x_frame = ib * t_in + first
    cache_frame = ib * cache_frames + cache_frames + first
    row_in = row - pad_h
    col_in = col - pad_w
    if SPLIT:
        if HAS_CACHE:
            sums = _accumulate(
                sums, cache, w0, w1, in_cache, in_x, cache_frame, row_in, col_in, n, cache_part, w_part,
                KH, KW, KC, 5, False, GROUPS, COLS, N0, N1, K, STAGES,
            )  # fmt: skip
        sums = _accumulate(
            sums, x, w0, w1, in_x, KT, x_frame, row_in, col_in, n, x_part, w_part,
            KH, KW, KC, 5, False, GROUPS, COLS, N0, N1, K, STAGES,
        )  # fmt: skip
    if HAS_CACHE:
        sums = _accumulate(
            sums, cache, w0, w1, in_cache, in_x, cache_frame, row_in, col_in, n, cache_part, w_part,
            KH, KW, KC, 1, SPLIT, GROUPS, COLS, N0, N1, K, STAGES,
        )  # fmt: skip
    # Tensor cores round sums towards zero, which adds up along one accumulator: 4 to 9 times the error of a float32
    # convolution. Hence the small products first, and the large ones summed outside the tensor core.
    sums = _accumulate(
        sums, x, w0, w1, in_x, KT, x_frame, row_in, col_in, n, x_part, w_part,
        KH, KW, KC, 1, SPLIT, GROUPS, COLS, N0, N1, K, STAGES,
    )  # fmt: skip
    out += ib.to(tl.int64) * ob + it.to(tl.int64) * ot
    for g in tl.static_range(GROUPS):
        if N1 > 0:
            _store(sums[2 * g], out, bias, row + g, col, n, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N0)
            _store(sums[2 * g + 1], out, bias, row + g, col, n + N0, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N1)
        else:
            _store(sums[g], out, bias, row + g, col, n, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N0)


def pack_weight(weight):
    """Return the weight as [parts * taps, c, out] with c and out padded to multiples of 8: a GEMM's right operand.

    Float32 is split into three bfloat16 parts that add up to it.
    """
    cout, cin = weight.shape[:2]
    packed = weight.new_zeros((weight.shape[2:].numel(), triton.cdiv(cin, 8) * 8, triton.cdiv(cout, 8) * 8))
    packed[:, :cin, :cout] = weight.permute(2, 3, 4, 1, 0).reshape(-1, cin, cout)
    if weight.dtype != torch.float32:
        return packed
    parts = []
    for _ in range(3):
        parts.append(packed.to(torch.bfloat16))
        packed = packed - parts[-1]
    return torch.cat(parts)


@opaque  # to torch.compile: it cannot trace the descriptors, and there is nothing around the kernels to fuse
def implicit_gemm(x, cache, packed, bias, kernel, cout, stride, padding, memory_format, convolve, tile=None):
    """Convolve without a padded copy: cache and x are read where they lie, what lies outside is zero by hardware.

    Channels-last half-precision activations are read as they are; others are re-laid once, float32 into three bfloat16
    parts, whose six larger products keep float32's accuracy.
    """
    b, c, t, h, w = x.shape
    front = 2 * padding[0]
    cached = min(front, cache.shape[2]) if cache is not None else 0
    cache_frames = cache.shape[2] if cached else 0
    out_t = (t + front - kernel[0]) // stride[0] + 1
    out_h, out_w = (size + 2 * pad - k + 1 for size, pad, k in zip((h, w), padding[1:], kernel[1:], strict=True))
    out = torch.empty((b, cout, out_t, out_h, out_w), dtype=x.dtype, device=x.device, memory_format=memory_format)
    frames = _frames(x)
    before = _frames(cache) if cached else frames
    rows = out
    if (*kernel[1:], *padding[1:]) == (1, 1, 0, 0):  # a pixel meets itself alone: take a frame for one long row
        frames, before = (value.view(value.shape[0], 1, -1, value.shape[3]) for value in (frames, before))
        rows = out.view(b, cout, out_t, 1, -1) if out.is_contiguous() else _one_row(out)
    convolve(frames, before, packed, bias, rows, b, t, cached, cache_frames, front, stride[0], padding, kernel, c, tile)
    return out


def _one_row(out):
    """View channels-last [b, c, t, h, w] as [b, c, t, 1, h * w]."""
    return out.permute(0, 2, 3, 4, 1).flatten(2, 3).unsqueeze(2).permute(0, 4, 1, 2, 3)


def choose_tile(cin, cout, h, w):
    """Return the tile for a shape, by rule instead of autotuning: the same choice in every run, no first-call search.

    Measured on an H200 (torch 2.11, triton 3.6; bfloat16, channels-last), in microseconds: 64 -> 64 channels, 4 x 32 frames
    of 128 x 128, 4 rows of 64 pixels in 4 warps 684 (2 rows 1098; 3 stages 892; k 64 914; 128 pixels in 8 warps 988);
    96 -> 96, 4 frames of 480 x 832, 4 rows 64+32 wide 1500 to 1660 (2 rows 1542; one width of 128 2255; 8 warps 1868);
    192 -> 192, 4 of 240 x 416, 2 rows 128+64 wide 1304 (4 rows, 64: 1353); 96 -> 3, 8 rows 703 (4 rows 887).
    """
    k = 32 if cin > 16 else 16
    cols = min(64, max(16, triton.next_power_of_2(w)))
    groups = 4 if h >= 4 else 1
    if cout % 96 == 0 and cout % 64 != 0:
        return Tile(groups, cols, 64, 32, k, stages=2)
    if cout % 192 == 0 and w >= 256:
        return Tile(min(2, groups), cols, 128, 64, k, stages=2)
    if cout <= 16:
        return Tile(8 if h >= 8 else groups, cols, 16, 0, k, stages=2)
    return Tile(groups, cols, min(64, triton.next_power_of_2(cout)), 0, k, stages=2)


def convolve(x, cache, packed, bias, out, b, t, cached, cache_frames, front, stride_t, padding, kernel, c, tile):
    """Fill `out` from frames [b * t, h, w, c]."""
    _, cout, out_t, out_h, out_w = out.shape
    tile = tile or choose_tile(c, cout, out_h, out_w)
    block = [1, 1, tile.cols, tile.k]
    grid = b * out_t * triton.cdiv(out_h, tile.groups) * triton.cdiv(out_w, tile.cols)
    frames = TensorDescriptor.from_tensor(x, block)
    _conv3d[(grid * triton.cdiv(cout, tile.n0 + tile.n1),)](
        frames, TensorDescriptor.from_tensor(cache, block) if cached else frames,
        TensorDescriptor.from_tensor(packed, [1, tile.k, tile.n0]),
        TensorDescriptor.from_tensor(packed, [1, tile.k, tile.n1 or tile.n0]),
        packed if bias is None else bias, out, t, cached, cache_frames, front, stride_t,
        out_t, out_h, out_w, cout, padding[1], padding[2], b * t, b * cache_frames,
        kernel[0] * kernel[1] * kernel[2], *out.stride(),
        HAS_CACHE=cached > 0, HAS_BIAS=bias is not None, SPLIT=out.dtype == torch.float32,
        KT=kernel[0], KH=kernel[1], KW=kernel[2], KC=triton.cdiv(c, tile.k),
        GROUPS=tile.groups, COLS=tile.cols, N0=tile.n0, N1=tile.n1, K=tile.k, STAGES=tile.stages,
        num_warps=tile.warps,
    )  # fmt: skip


def _frames(x):
    """Return x as [b * t, h, w, c]: itself where it lies so and a tensor descriptor can address it, else a copy."""
    b, c, t, h, w = x.shape
    split = x.dtype == torch.float32
    addressable = c % 8 == 0 and x.data_ptr() % 16 == 0 and x.dtype.itemsize == 2
    if not split and addressable and x.is_contiguous(memory_format=torch.channels_last_3d):
        return x.permute(0, 2, 3, 4, 1).view(b * t, h, w, c)
    return to_channels_last(x, torch.bfloat16 if split else x.dtype, 3 if split else 1)
