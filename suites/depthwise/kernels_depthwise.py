"""Triton kernels of `depthwise_conv1d`, one launch each: a general tile, and rows of 16-bit values read in vectors."""

from __future__ import annotations

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variant needs="triton" is skipped there
    triton = None

HALF = (torch.float16, torch.bfloat16)


def output_length(length, taps, padding, stride, dilation):
    return (length + sum(padding) - dilation * (taps - 1) - 1) // stride + 1


def fused_kernel(x, weight, bias, padding, stride, dilation):
    """One Triton kernel for everything: padding, taps, bias; accumulated in float32. Knows no gradient."""
    batch, channels, length = x.shape
    channels_out, _, taps = weight.shape
    length_out = output_length(length, taps, padding, stride, dilation)
    last = x.stride(1) == 1 and x.stride(2) > 1
    out = _like(x, channels_out, length_out, last)
    if out.numel() == 0:
        return out
    unit = x.stride(2) == stride == dilation == 1 and channels_out == channels
    if unit and x.dtype in HALF and length_out >= 1024 and max(padding[0], taps - 1 - padding[0]) <= 8:
        _row_kernel[(batch * channels * triton.cdiv(length_out, 8 * ROW_BLOCK),)](
            x, weight, bias, out, channels, length, length_out,
            x.stride(0), x.stride(1), weight.stride(0), weight.stride(2),
            left=padding[0], taps=taps, block=ROW_BLOCK, num_warps=4,
        )  # fmt: skip
        return out
    block_c, block_l, warps = _tile(batch, channels_out, length_out, last)
    _tile_kernel[(batch * triton.cdiv(channels_out, block_c) * triton.cdiv(length_out, block_l),)](
        x, weight, bias, out, channels_out, length, length_out,
        *x.stride(), weight.stride(0), weight.stride(2), *out.stride(), padding[0],
        stride=stride, dilation=dilation, multiplier=channels_out // channels, taps=taps, unroll=min(taps, 8),
        block_c=block_c, block_l=block_l, num_warps=warps,
    )  # fmt: skip
    return out


def _like(x, channels_out, length_out, last):
    """Return an empty output in the layout of the input, so that neither side of the kernel is strided."""
    if last:
        return x.new_empty(x.shape[0], length_out, channels_out).transpose(1, 2)
    return x.new_empty(x.shape[0], channels_out, length_out)


def _tile(batch, channels_out, length_out, last):
    """Return channels, steps and warps of one program; the tile is long in the direction that is contiguous in memory.

    1024 outputs, or 256 where that would leave multiprocessors idle: [1, 2048, 21] with 3 taps took 1.53 us in
    float32 and 1.72 us in bfloat16 with tiles of 8 x 32, and 1.83 and 1.91 us with 32 x 32 (graph replay, H200,
    torch 2.11, Triton 3.6).
    """
    size, warps = (1024, 4) if batch * channels_out * length_out >= 2**17 else (256, 2)
    if last:
        block_c = min(128, triton.next_power_of_2(channels_out))
        return block_c, min(size // block_c, triton.next_power_of_2(length_out)), warps
    block_l = min(size, triton.next_power_of_2(length_out))
    return min(size // block_l, triton.next_power_of_2(channels_out)), block_l, warps


# Kernels

ROW_BLOCK = 256
"""Vectors of eight steps a program of the row kernel: two for each thread of four warps."""


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _tile_kernel(
    x, weight, bias, out, channels_out, length, length_out,
    x_batch, x_channel, x_step, w_channel, w_tap, out_batch, out_channel, out_step, left,
    stride: tl.constexpr, dilation: tl.constexpr, multiplier: tl.constexpr, taps: tl.constexpr,
    unroll: tl.constexpr, block_c: tl.constexpr, block_l: tl.constexpr,
):  # fmt: skip
    """Compute a tile of channels and time steps of any geometry; each tap is loaded where it lies."""
    tiles_l = tl.cdiv(length_out, block_l)
    tiles_c = tl.cdiv(channels_out, block_c)
    program = tl.program_id(0)
    sample = (program // tiles_l // tiles_c).to(tl.int64)
    channel = (program // tiles_l % tiles_c) * block_c + tl.arange(0, block_c)
    step = (program % tiles_l) * block_l + tl.arange(0, block_l)
    known = channel < channels_out
    # 64-bit offsets: a batch of long sequences passes 2**31 elements.
    rows = x + sample * x_batch + (channel // multiplier).to(tl.int64)[:, None] * x_channel
    total = tl.zeros((block_c, block_l), tl.float32)
    for tap in tl.range(taps, loop_unroll_factor=unroll):
        at = step * stride + tap * dilation - left
        inside = known[:, None] & ((at >= 0) & (at < length))[None, :]
        value = tl.load(rows + at.to(tl.int64)[None, :] * x_step, mask=inside, other=0.0)
        factor = tl.load(weight + channel * w_channel + tap * w_tap, mask=known, other=0.0)
        total += value.to(tl.float32) * factor.to(tl.float32)[:, None]
    if bias is not None:
        total += tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[:, None]
    target = out + sample * out_batch + channel.to(tl.int64)[:, None] * out_channel
    target += step.to(tl.int64)[None, :] * out_step
    tl.store(target, total.to(out.dtype.element_ty), mask=known[:, None] & (step < length_out)[None, :])


@_jit
def _row_kernel(
    x, weight, bias, out, channels, length, length_out, x_batch, x_channel, w_channel, w_tap,
    left: tl.constexpr, taps: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute a stretch of one channel from whole vectors of eight steps, shifting them in registers.

    Loading each tap where it lies reads the signal once for each tap, from addresses that are off a vector's
    alignment, two bytes at a time. Here a thread loads the vector of its own eight outputs, the one before and the one
    after, as far as the taps reach: aligned, 16 bytes at a time, the neighbours' from the cache. For 16-bit types, whose
    columns then stay in the thread; eight float32 would be exchanged through shared memory.

    [8, 6144, 16384] with 4 taps in bfloat16: 0.85 ms or 3.8 TB/s on an H200 (torch 2.11, Triton 3.6), where a copy
    reaches about 4.3.
    """
    tiles = tl.cdiv(length_out, 8 * block)
    program = tl.program_id(0)
    row = program // tiles
    channel = row % channels
    signal = x + (row // channels).to(tl.int64) * x_batch + channel.to(tl.int64) * x_channel
    vector = (program % tiles) * block + tl.arange(0, block)
    lanes = (
        _lanes(signal, vector - 1, length, block)
        + _lanes(signal, vector, length, block)
        + _lanes(signal, vector + 1, length, block)
    )
    offset = 0.0
    if bias is not None:
        offset = tl.load(bias + channel).to(tl.float32)
    o0 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 8 - left, taps)
    o1 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 9 - left, taps)
    o2 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 10 - left, taps)
    o3 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 11 - left, taps)
    o4 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 12 - left, taps)
    o5 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 13 - left, taps)
    o6 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 14 - left, taps)
    o7 = _dot(lanes, weight + channel * w_channel, w_tap, offset, 15 - left, taps)
    even = tl.join(tl.join(o0, o4), tl.join(o2, o6))
    odd = tl.join(tl.join(o1, o5), tl.join(o3, o7))
    result = tl.reshape(tl.join(even, odd), (block, 8))
    at = vector[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + row.to(tl.int64) * length_out + at, result.to(out.dtype.element_ty), mask=at < length_out)


@_jit
def _lanes(signal, vector, length, block: tl.constexpr):
    """Load vectors of eight steps and return the eight columns."""
    at = vector[:, None] * 8 + tl.arange(0, 8)[None, :]
    value = tl.load(signal + at, mask=(at >= 0) & (at < length), other=0.0).to(tl.float32)
    even, odd = tl.split(tl.reshape(value, (block, 2, 2, 2)))
    low_even, high_even = tl.split(even)
    low_odd, high_odd = tl.split(odd)
    x0, x4 = tl.split(low_even)
    x2, x6 = tl.split(high_even)
    x1, x5 = tl.split(low_odd)
    x3, x7 = tl.split(high_odd)
    return x0, x1, x2, x3, x4, x5, x6, x7


@_jit
def _dot(lanes, weight, w_tap, offset, first: tl.constexpr, taps: tl.constexpr):
    """Return the weighted sum of consecutive lanes."""
    total = lanes[first] * tl.load(weight).to(tl.float32) + offset
    for tap in tl.static_range(1, taps):
        total += lanes[first + tap] * tl.load(weight + tap * w_tap).to(tl.float32)
    return total


# What is valid
