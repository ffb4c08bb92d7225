"""Rounding for Triton kernels, the same on a GPU and in Triton's interpreter."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

INTERPRETED = triton is not None and triton.knobs.runtime.interpret


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def rounded(value, dtype: tl.constexpr, by_hand: tl.constexpr):
    """Return float32 values in `dtype`, rounded to nearest, ties to even.

    `by_hand` for Triton's interpreter, which makes a bfloat16 by cutting bits off.
    """
    if by_hand and dtype == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        value = bits.to(tl.float32, bitcast=True)
    return value.to(dtype)
