"""A Triton kernel for attention whose queries see intervals of keys: a tile of queries walks its intervals, and needs no mask.

The softmax is kept online, in float32 and base 2. Only the last piece of an interval is masked, for what lies beyond it.
"""

from __future__ import annotations

import math

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variant needs="triton" is skipped there
    triton = None

INTERPRETED = triton is not None and triton.knobs.runtime.interpret
"""Triton's interpreter multiplies bfloat16 as the integers that it keeps them in, so there the products are of float32."""

LOG2_E = math.log2(math.e)

ROWS = (16, 32, 64, 128)
"""Queries that a tile may have."""


def attend_intervals(q, k, v, tiles):
    """Return attention of [batch, tokens, heads, dim], contiguous.

    Args:
        q: Of any strides, as k and v are.
        k: May have another number of tokens than q.
        v: As k.
        tiles: What `tables` makes: which queries a program takes, and which keys these see.
    """
    batch, _, heads, dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    wide = q.dtype == torch.float32
    rows = max(size for size in tiles if size <= (32 if wide else 64 if dim > 128 else 128))
    count = tiles[rows].shape[0]
    if not (count and batch * heads):
        return out
    _attend[(count, batch * heads)](
        q, k, v, out, tiles[rows], heads, LOG2_E / math.sqrt(dim), *q.stride(), *k.stride(), *v.stride(), *out.stride(),
        DIM=dim, ROWS=rows, KEYS=16 if wide else 32 if dim > 128 else min(128, rows), WIDEN=INTERPRETED,
        num_warps=8 if rows == 128 or dim > 128 else 4, num_stages=2,
    )  # fmt: skip
    return out


def tables(segments, device):
    """Return a table of tiles for each number of queries that a tile may have.

    A table is [tiles, 6] int32: the begin and end of the tile's queries, then those of two intervals of keys. No tile lies in
    two segments, and those with the most keys come first, so that the device ends with the shortest ones.
    """
    longest = max((segment.end - segment.begin for segment in segments), default=0)
    return {rows: _table(segments, device, rows) for rows in ROWS if rows < 2 * longest or rows == ROWS[0]}


def _table(segments, device, rows):
    table = []
    for begin, end, spans in segments:
        keys = [bound for span in spans for bound in span] + [0, 0] * (2 - len(spans))
        table += [[start, min(start + rows, end), *keys] for start in range(begin, end, rows)]
    table.sort(key=lambda tile: tile[3] - tile[2] + tile[5] - tile[4], reverse=True)
    return torch.tensor(table, dtype=torch.int32, device=device).reshape(-1, 6)


def triton_valid(q, **_):
    if q.dtype == torch.float64:
        return "float64; the kernel accumulates in float32"
    if q.shape[-1] not in (16, 32, 64, 128, 256):
        return f"{q.shape[-1]} features a head; the kernel takes a power of two from 16 to 256"
    return True


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _attend(
    q, k, v, out, tiles, heads, scale,
    q_batch, q_token, q_head, q_dim, k_batch, k_token, k_head, k_dim,
    v_batch, v_token, v_head, v_dim, out_batch, out_token, out_head, out_dim,
    DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Compute a tile of queries of one head; neighbouring programs share the head's keys."""
    tiles += tl.program_id(0) * 6
    begin, end = tl.load(tiles), tl.load(tiles + 1)
    # 64-bit offsets: a long clip of many heads passes 2**31 values.
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    feature = tl.arange(0, DIM)
    row = begin + tl.arange(0, ROWS)
    known = row < end
    q_at = batch * q_batch + head * q_head + row.to(tl.int64)[:, None] * q_token + feature[None, :] * q_dim
    queried = tl.load(q + q_at, mask=known[:, None], other=0.0)
    if WIDEN:
        queried = queried.to(tl.float32)
    k_first = k + batch * k_batch + head * k_head
    v_first = v + batch * v_batch + head * v_head
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, DIM), tl.float32)
    for interval in tl.static_range(2):
        low, high = tl.load(tiles + 2 + 2 * interval), tl.load(tiles + 3 + 2 * interval)
        mixed, total, top = _walk(
            queried, k_first, v_first, mixed, total, top, low, high, scale, k_token, k_dim, v_token, v_dim, feature,
            KEYS, WIDEN,
        )  # fmt: skip
    mixed /= total[:, None]
    out_at = batch * out_batch + head * out_head + row.to(tl.int64)[:, None] * out_token + feature[None, :] * out_dim
    tl.store(out + out_at, mixed.to(out.dtype.element_ty), mask=known[:, None])


@_jit
def _walk(
    queried, k, v, mixed, total, top, low, high, scale, k_token, k_dim, v_token, v_dim, feature,
    KEYS: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Take an interval of keys in: whole pieces without a mask, then what is left."""
    whole = low + (high - low) // KEYS * KEYS
    for first in tl.range(low, whole, KEYS):
        mixed, total, top = _step(
            queried, k, v, mixed, total, top, first, high, scale, k_token, k_dim, v_token, v_dim, feature,
            KEYS, WIDEN, MASKED=False,
        )  # fmt: skip
    if whole < high:
        mixed, total, top = _step(
            queried, k, v, mixed, total, top, whole, high, scale, k_token, k_dim, v_token, v_dim, feature,
            KEYS, WIDEN, MASKED=True,
        )  # fmt: skip
    return mixed, total, top


@_jit
def _step(
    queried, k, v, mixed, total, top, first, high, scale, k_token, k_dim, v_token, v_dim, feature,
    KEYS: tl.constexpr, WIDEN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, KEYS)
    seen = first + column < high
    # Only where a piece begins is 64 bits wide: within it, offsets that every step computes anew stay short.
    start = tl.zeros((), tl.int64) + first
    # Keys are fetched transposed, as the product wants them.
    keyed_at = k + start * k_token + (column[None, :] * k_token + feature[:, None] * k_dim)
    values_at = v + start * v_token + (column[:, None] * v_token + feature[None, :] * v_dim)
    if MASKED:
        keyed = tl.load(keyed_at, mask=seen[None, :], other=0.0)
        values = tl.load(values_at, mask=seen[:, None], other=0.0)
    else:
        keyed, values = tl.load(keyed_at), tl.load(values_at)
    if WIDEN:
        keyed = keyed.to(tl.float32)
    scores = tl.dot(queried, keyed, input_precision="ieee") * scale
    if MASKED:
        scores = tl.where(seen[None, :], scores, float("-inf"))
    highest = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp2(scores - highest[:, None])
    shrunk = tl.exp2(top - highest)
    total = total * shrunk + tl.sum(weights, 1)
    mixed = mixed * shrunk[:, None]
    if WIDEN:
        mixed += tl.dot(weights, values.to(tl.float32), input_precision="ieee")
    else:
        mixed = tl.dot(weights.to(values.dtype), values, mixed, input_precision="ieee")
    return mixed, total, highest
