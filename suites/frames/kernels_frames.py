"""A Triton kernel that writes a video's bytes as frames of interleaved pixels, each value read and each byte written once."""

from __future__ import annotations

import torch

from ..common.kernels_opaque import opaque

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

BLOCK = 1024


@opaque  # to torch.compile, which would launch it without the option that forbids fusing
def quantised(x, rounding):
    """Return x, [batch, channels, frames, height, width] of any strides, as uint8 [batch, frames, height, width, channels]."""
    batch, channels, frames, height, width = x.shape
    out = torch.empty((batch, frames, height, width, channels), dtype=torch.uint8, device=x.device)
    if out.numel() == 0:
        return out
    size = height * width * channels
    _quantise[(batch * frames * triton.cdiv(size, BLOCK),)](
        x, out, frames, size, width, x.stride(0), x.stride(1), x.stride(2), x.stride(3), x.stride(4),
        CHANNELS=channels, FLAT=x.stride(3) == width * x.stride(4), ROUND=rounding == "round", BLOCK=BLOCK, num_warps=4,
        # A product and a sum fused into one would skip the rounding between them, and a tie would fall the other way.
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _quantise(
    x, out, frames, size, width, x_batch, x_channel, x_frame, x_row, x_column,
    CHANNELS: tl.constexpr, FLAT: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a stretch of one frame, in the order of the output: bytes are stored in vectors, planes are read side by side."""
    blocks = tl.cdiv(size, BLOCK)
    frame = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    pixel = at // CHANNELS
    # 64-bit offsets: the planes of a long video lie further apart than 2**31 values.
    source = x + frame // frames * x_batch + frame % frames * x_frame + (at % CHANNELS).to(tl.int64) * x_channel
    if FLAT:
        source += pixel.to(tl.int64) * x_column
    else:
        source += (pixel // width).to(tl.int64) * x_row + (pixel % width).to(tl.int64) * x_column
    value = tl.load(source, mask=inside, other=0.0)
    if x.dtype.element_ty != tl.float64:
        value = value.to(tl.float32)
    unit = value * 0.5 + 0.5
    # Comparisons that a NaN fails: it becomes 0 here, whatever a cast of it would give.
    unit = tl.where(unit > 0.0, unit, 0.0)
    unit = tl.where(unit < 1.0, unit, 1.0)
    level = _rounded_like(unit, x.dtype.element_ty) * 255.0
    if ROUND:
        # Adding 2**23 leaves float32 no bits behind the point: to the nearest integer, ties to the even one.
        level = (level + 8388608.0) - 8388608.0
    tl.store(out + frame * size + at, level.to(tl.int32).to(tl.uint8), mask=inside)


@_jit
def _rounded_like(unit, dtype: tl.constexpr):
    """Round values from 0 to 1 to what `dtype` can hold, and return them in float32."""
    if dtype == tl.bfloat16:
        # By hand, because Triton's interpreter cuts bits off where a GPU rounds to nearest.
        bits = unit.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.to(tl.float32, bitcast=True)
    elif dtype == tl.float16:
        return unit.to(tl.float16).to(tl.float32)
    else:
        return unit.to(tl.float32)
