"""A Triton kernel for depthwise convolutions in two and three dimensions: one launch for padding, taps and bias."""

from __future__ import annotations

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variant needs="triton" is skipped there
    triton = None

ROWS = 4
"""Output rows of one program. An input row, once loaded, serves every one of them that a tap of it reaches: with 3 x 3 taps
18 loads for 4 rows instead of 36, with 7 x 7 70 instead of 196."""


def fused_kernel(x, weight, bias, padding, stride, dilation):
    """Convolve x, [batch, channels, (depth,) height, width], accumulating in float32. Knows no gradient."""
    sizes = output_sizes(x, weight, padding, stride, dilation)
    last = x.stride(1) == 1 and not x.is_contiguous()
    form = torch.contiguous_format if not last else torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    shape = (x.shape[0], weight.shape[0], *sizes)
    out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=form)
    if out.numel() == 0:
        return out
    volumes, filters, target = x, weight, out
    if x.dim() == 4:  # one plane is a volume of depth one
        volumes, filters, target = (value.unsqueeze(2) for value in (x, weight, out))
        padding, stride, dilation = (0, *padding), (1, *stride), (1, *dilation)
    block_c, block_w, warps = _tile(weight.shape[0], sizes[-1], last)
    tiles = triton.cdiv(weight.shape[0], block_c) * triton.cdiv(sizes[-2], ROWS) * triton.cdiv(sizes[-1], block_w)
    _depthwise[(x.shape[0] * target.shape[2] * tiles,)](
        volumes, filters, bias, target, *volumes.shape[2:], *target.shape[1:],
        *volumes.stride(), filters.stride(0), *filters.stride()[2:], *target.stride(), *padding,
        SD=stride[0], SH=stride[1], SW=stride[2], DD=dilation[0], DH=dilation[1], DW=dilation[2],
        KD=filters.shape[2], KH=filters.shape[3], KW=filters.shape[4], MULTIPLIER=weight.shape[0] // x.shape[1],
        MET=_met(filters.shape[3], stride[1], dilation[1]), ROWS=ROWS, BLOCK_C=block_c, BLOCK_W=block_w, num_warps=warps,
    )  # fmt: skip
    return out


def output_sizes(x, weight, padding, stride, dilation):
    """Return the spatial sizes of the result."""
    return tuple(
        (size + 2 * pad - reach * (taps - 1) - 1) // step + 1
        for size, taps, pad, step, reach in zip(x.shape[2:], weight.shape[2:], padding, stride, dilation, strict=True)
    )


def _tile(channels, width, last):
    """Return channels, columns and warps of one program; the tile is long in the direction that is contiguous in memory."""
    if last:
        block_c = min(64, triton.next_power_of_2(channels))
        return block_c, min(8, triton.next_power_of_2(width)), 4 if block_c > 16 else 1
    block_w = min(64, triton.next_power_of_2(width))
    block_c = min(256 // block_w, triton.next_power_of_2(channels))
    return block_c, block_w, 2 if block_c * block_w > 64 else 1


def _met(taps, step, reach):
    """Return which input rows of a program are met by a tap of any output row, as bits: with strides some are not."""
    return sum(1 << row for row in {o * step + tap * reach for o in range(ROWS) for tap in range(taps)})


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _depthwise(
    x, weight, bias, out, depth, height, width, channels_out, depth_out, height_out, width_out,
    x_batch, x_channel, x_plane, x_row, x_column, w_channel, w_plane, w_row, w_column,
    out_batch, out_channel, out_plane, out_row, out_column, pad_d, pad_h, pad_w,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, DD: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, MULTIPLIER: tl.constexpr,
    MET: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Compute ROWS rows of one plane, for a block of channels and columns."""
    program = tl.program_id(0)
    tiles_w = tl.cdiv(width_out, BLOCK_W)
    tiles_h = tl.cdiv(height_out, ROWS)
    tiles_c = tl.cdiv(channels_out, BLOCK_C)
    column = program % tiles_w * BLOCK_W + tl.arange(0, BLOCK_W)
    program = program // tiles_w
    row = program % tiles_h * ROWS
    program = program // tiles_h
    plane = program % depth_out
    program = program // depth_out
    channel = program % tiles_c * BLOCK_C + tl.arange(0, BLOCK_C)
    # 64-bit offsets: a batch of videos passes 2**31 elements.
    sample = (program // tiles_c).to(tl.int64)
    known = channel < channels_out
    wide = channel.to(tl.int64)

    start = tl.zeros((BLOCK_C, BLOCK_W), tl.float32)
    if bias is not None:
        start += tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[:, None]
    sums = ()
    for _ in tl.static_range(ROWS):
        sums = sums + (start,)
    signal = x + sample * x_batch + (wide // MULTIPLIER * x_channel)[:, None]
    filters = weight + wide * w_channel
    for step in tl.range(KD * KW):
        at_d = plane * SD + step // KW * DD - pad_d
        at_w = column * SW + step % KW * DW - pad_w
        inside = known[:, None] & ((at_w >= 0) & (at_w < width) & (at_d >= 0) & (at_d < depth))[None, :]
        columns = signal + at_d.to(tl.int64) * x_plane + (at_w.to(tl.int64) * x_column)[None, :]
        factors = ()
        for i in tl.static_range(KH):
            factor = filters + step // KW * w_plane + i * w_row + step % KW * w_column
            factors = factors + (tl.load(factor, mask=known, other=0.0).to(tl.float32)[:, None],)
        for r in tl.static_range((ROWS - 1) * SH + (KH - 1) * DH + 1):
            if (MET >> r) & 1:
                at_h = row * SH + r - pad_h
                here = inside & (at_h >= 0) & (at_h < height)
                value = tl.load(columns + at_h.to(tl.int64) * x_row, mask=here, other=0.0).to(tl.float32)
                new = ()
                for o in tl.static_range(ROWS):
                    if r - o * SH >= 0 and r - o * SH <= (KH - 1) * DH and (r - o * SH) % DH == 0:
                        new = new + (sums[o] + value * factors[(r - o * SH) // DH],)
                    else:
                        new = new + (sums[o],)
                sums = new

    target = out + sample * out_batch + plane.to(tl.int64) * out_plane
    target += (wide * out_channel)[:, None] + (column.to(tl.int64) * out_column)[None, :]
    for o in tl.static_range(ROWS):
        inside = known[:, None] & (column < width_out)[None, :] & (row + o < height_out)
        tl.store(target + (row + o).to(tl.int64) * out_row, sums[o].to(out.dtype.element_ty), mask=inside)
