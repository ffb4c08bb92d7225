"""A Triton kernel that writes keys and values of a block to their slots of a ring, in one launch."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

TOKENS = 16
"""Of one program, which copies this many rows of keys and of values, at most COLUMNS wide."""
COLUMNS = 256


def write_ring(k, v, ring_k, ring_v, window, sink, start):
    """Write k and v, [batch, tokens, heads, size], to where a ring has the positions `start` and on.

    The ring is [batch, window, heads, size], contiguous. Below `sink` a position is its slot; the others go round in the rest.
    No more tokens than that, for those of one launch are written in no order.
    """
    batch, count = k.shape[:2]
    if k.numel() == 0:
        return
    keys, values = k.flatten(2), v.flatten(2)
    if keys.stride(2) != 1 or values.stride(2) != 1:
        keys, values = keys.contiguous(), values.contiguous()
    width = keys.shape[2]
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _write_ring[(triton.cdiv(count, TOKENS), triton.cdiv(width, columns), batch)](
        keys, values, ring_k, ring_v, count, width, window, sink, start, *keys.stride()[:2], *values.stride()[:2],
        TOKENS=TOKENS, COLUMNS=columns, num_warps=8,
    )  # fmt: skip


def _jit(kernel):
    # A compilation for each position that happens to be 1, or divisible by 16, would be one for nothing.
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=["start"])


@_jit
def _write_ring(
    keys, values, ring_k, ring_v, count, width, window, sink, start, k_batch, k_token, v_batch, v_token,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Copy a tile of tokens and columns; the slots are computed once a token."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    # 64-bit offsets: a batch of long windows passes 2**31 elements.
    sample = tl.program_id(2).to(tl.int64)
    inside = (token < count)[:, None] & (column < width)[None, :]
    position = start + token
    slot = tl.where(position < sink, position, sink + (position - sink) % (window - sink))
    target = (sample * window + slot)[:, None] * width + column[None, :]
    row = token.to(tl.int64)[:, None]
    key = tl.load(keys + sample * k_batch + row * k_token + column[None, :], mask=inside)
    value = tl.load(values + sample * v_batch + row * v_token + column[None, :], mask=inside)
    tl.store(ring_k + target, key, mask=inside)
    tl.store(ring_v + target, value, mask=inside)
