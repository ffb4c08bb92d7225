"""A Triton kernel of RMS norms: each row is read once, held in registers and written once."""

from __future__ import annotations

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variant needs="triton" is skipped there
    triton = None

LARGEST = 32768
"""Values of the longest row: with 32 warps each thread then holds 32 of them, and as many of the weight."""

INTERPRETED = triton is not None and triton.knobs.runtime.interpret


def rms_norm(x, weight, eps):
    """Return x / rms(x) * weight over the last dimension, contiguous, in x's dtype.

    Like Wan's, it rounds to x's dtype before the multiplication with the weight, and again after it. x is any shape whose
    rows lie at even distances (`row_stride`), its last dimension adjacent; weight is contiguous, of x's dtype.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    dim = x.shape[-1]
    rows = x.numel() // dim
    if dim <= 1024:
        block = triton.next_power_of_2(dim)
        count, warps = rows_a_program(rows, block)
        _short_rows[(triton.cdiv(rows, count),)](
            x, weight, out, rows, row_stride(x),
            EPS=eps, DIM=dim, BLOCK=block, ROWS=count, BY_HAND=INTERPRETED, num_warps=warps,
        )  # fmt: skip
        return out
    high, low = pieces(dim)
    _long_row[(rows,)](
        x, weight, out, row_stride(x),
        EPS=eps, DIM=dim, HIGH=high, LOW=low, BY_HAND=INTERPRETED, num_warps=warps_for(dim),
    )  # fmt: skip
    return out


def row_stride(x):
    """Return the distance of neighbouring rows in memory, or None where there is no single one."""
    stride = None
    extent = 1
    for size, step in zip(reversed(x.shape[:-1]), reversed(x.stride()[:-1]), strict=True):
        if size == 1:
            continue
        if stride is None:
            stride = step
        elif step != stride * extent:
            return None
        extent *= size
    return x.shape[-1] if stride is None else stride


def pieces(count):
    """Return two powers of two that cover a count: the largest that fits into it, and one for the rest, 0 if there is none.

    The widths of models are sums of two (1536, 3072, 5120, 12 or 40 heads), so that no lane is idle; the next power of
    two alone would leave up to half of them so.
    """
    high = 1 << (count.bit_length() - 1)
    return high, triton.next_power_of_2(count - high) if count > high else 0


def warps_for(values):
    """Return the warps for a row of so many values: 24 to 48 a thread, three to six loads of 16 bytes in flight.

    Eight values of the lower piece a thread is what the widths of models come to, so that its loads are of 16 bytes too.
    """
    return min(32, max(1, 1 << (max(1, values // 768).bit_length() - 1)))


def rows_a_program(rows, block):
    """Return how many short rows one program takes, and its warps.

    4096 values, 32 a thread: four loads of 16 bytes in flight. Fewer where there are so few rows that multiprocessors
    (132 on an H200, a few programs each) would be idle, but enough for one warp.
    """
    count = max(1, 4096 // block)
    while count > 1 and count * block > 512 and rows < 512 * count:
        count //= 2
    return count, min(4, max(1, count * block // 512))


# -- kernels ----------------------------------------------------------------------------------------------------------


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _short_rows(
    x, weight, out, rows, x_row,
    EPS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    """Norm several rows: a warp or a part of one has a row, and rows share the weight that was loaded."""
    # 64-bit offsets: long videos pass 2**31 values.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None]
    scale = tl.load(weight + column, mask=column < DIM, other=0.0)
    if DIM != BLOCK:
        inside = inside & (column < DIM)[None, :]
    value = widened(tl.load(x + row[:, None] * x_row + column[None, :], mask=inside, other=0.0))
    factor = tl.rsqrt(tl.sum(value * value, 1) / DIM + EPS)
    normed = narrowed(value * factor[:, None], x.dtype.element_ty, BY_HAND)
    result = narrowed(normed * widened(scale)[None, :], x.dtype.element_ty, BY_HAND)
    tl.store(out + row[:, None] * DIM + column[None, :], result.to(out.dtype.element_ty), mask=inside)


@_jit
def _long_row(
    x, weight, out, x_row,
    EPS: tl.constexpr, DIM: tl.constexpr, HIGH: tl.constexpr, LOW: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    """Norm one row in two pieces. Both are loaded before anything is waited for; the weight stays in the caches."""
    row = tl.program_id(0).to(tl.int64)
    high = tl.arange(0, HIGH)
    first, first_scale = widened(tl.load(x + row * x_row + high)), tl.load(weight + high)
    total = tl.sum(first * first, 0)
    if LOW:
        low = HIGH + tl.arange(0, LOW)
        second = widened(tl.load(x + row * x_row + low, mask=low < DIM, other=0.0))
        second_scale = tl.load(weight + low, mask=low < DIM, other=0.0)
        total += tl.sum(second * second, 0)
    factor = tl.rsqrt(total / DIM + EPS)
    normed = narrowed(first * factor, x.dtype.element_ty, BY_HAND)
    result = narrowed(normed * widened(first_scale), x.dtype.element_ty, BY_HAND)
    tl.store(out + row * DIM + high, result.to(out.dtype.element_ty))
    if LOW:
        normed = narrowed(second * factor, x.dtype.element_ty, BY_HAND)
        result = narrowed(normed * widened(second_scale), x.dtype.element_ty, BY_HAND)
        tl.store(out + row * DIM + low, result.to(out.dtype.element_ty), mask=low < DIM)


@_jit
def widened(value):
    """Return what is summed up in: float32, or float64 for itself."""
    if value.dtype == tl.float64:
        return value
    else:
        return value.to(tl.float32)


@_jit
def narrowed(value, dtype: tl.constexpr, BY_HAND: tl.constexpr):
    """Round to what `dtype` can hold, and return that as wide as before.

    `BY_HAND` for Triton's interpreter, which cuts bfloat16's bits off where a GPU rounds to nearest. Finite values only.
    """
    if dtype == tl.bfloat16 and BY_HAND:
        bits = value.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.to(tl.float32, bitcast=True)
    else:
        return value.to(dtype).to(value.dtype)
