"""The key-value cache of one attention layer over a stretch of streamed video decoding: rolled, or kept as a ring.

The published cache moves all that stays to the left for every new block, as a clone and a copy. Attention does not ask for
an order, since keys are rotated to their absolute positions before they are cached; so a ring of fixed slots does, where
nothing moves. What has to be right is which tokens count: see `kv_stream`.

This is the movement alone; `kv_ring_attention` attends as well. The result is what the cache holds at the end of each video,
by absolute position, equal to the bit. Every implementation copies that once a video, so that none hands out its own memory.

Where the counters live is another pair, `kv_index_host`; here they are numbers on the host for all.
"""

import torch
from kv_ring_cases import (
    EDGE,
    HEADLINE,
    REAL,
    SHARED_IMPOSTORS,
    SMOKE,
    ends_wrapped,
    positions,
    projections,
    writes_past_end,
)
from kv_stream import INDEX, KERNEL, RING, ROLL, TWO_BUFFERS, copy_filled, ring_pieces, stream

from pairbench import EXACT, Cost, Operator, Variant


def inputs(
    make,
    window,
    block,
    tokens,
    blocks,
    passes=4,
    heads=12,
    size=128,
    sink=0,
    videos=1,
    batch=1,
    layout="contiguous",
    dtype="bfloat16",
):
    """Window, block and sink are in frames of so many tokens; there are so many blocks in each video."""
    shape = (window, block, tokens, blocks, passes, heads, size, sink, videos, batch, layout, dtype)
    k, v = projections(make, 2, *shape)
    return {"k": k, "v": v, "window": window * tokens, "sink": sink * tokens, "videos": videos}


def cost(window, block, tokens, blocks, passes=4, heads=12, size=128, videos=1, batch=1, dtype="bfloat16", **_):
    row = 2 * batch * heads * size * getattr(torch, dtype).itemsize
    written = blocks * passes * block * tokens
    return Cost(flops=0.0, bytes=float(row * videos * (written + min(window, blocks * block) * tokens)))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def roll(k, v, window, sink, videos):
    """Move what stays to the left for a new block, by a clone and a copy each for keys and values."""
    return stream(k, v, window, sink, videos, ROLL)


def two_buffers(k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, TWO_BUFFERS)


def ring(k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, RING)


def ring_index_copy(k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, INDEX)


def ring_triton(k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, KERNEL)


# -- an oracle that has no cache --------------------------------------------------------------------------------------


def by_position(k, v, window, sink, videos):
    """Put the last passes of a video's blocks side by side, and pick positions."""
    results = []
    for video in range(videos):
        last = [x.unflatten(0, (videos, -1))[video, :, -1].transpose(0, 1).flatten(1, 2) for x in (k, v)]
        chosen = torch.tensor(positions(last[0].shape[1], window, sink), device=k.device)
        results.append(tuple(x.index_select(1, chosen) for x in last))
    return results


# -- deliberately wrong -----------------------------------------------------------------------------------------------


UNORDERED = RING._replace(in_order=copy_filled)


def as_it_lies(k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, UNORDERED)


def stale_after_reset(k, v, window, sink, videos):
    """Go on counting when a new video begins."""
    blocks = len(k) // videos
    return [stream(k[: blocks * (i + 1)], v, window, sink, 1, RING)[0] for i in range(videos)]


def out_of_order(k, window, sink, videos, **_):
    slots = [slot for _, _, slot in ring_pieces(0, len(k) // videos * k.shape[3], window, sink)]
    return slots != sorted(slots)


def ends_before_full(k, window, sink, videos, **_):
    return videos > 1 and len(k) // videos * k.shape[3] < window


# -- the pair -----------------------------------------------------------------------------------------------------

kv_cache_ring = Operator(
    "kv_cache_ring",
    baseline=roll,
    variants={
        "two_buffers": two_buffers,
        "ring": ring,
        "ring_index_copy": ring_index_copy,
        "ring_triton": Variant(ring_triton, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors=SHARED_IMPOSTORS
    | {
        "writes_past_end": Variant(writes_past_end, valid=ends_wrapped),
        "as_it_lies": Variant(as_it_lies, valid=out_of_order),
        "stale_after_reset": Variant(stale_after_reset, valid=ends_before_full),
    },
    oracle=by_position,
    tolerance=EXACT,
    cost=cost,
    source="Self-Forcing, Matrix-Game-2: CausalWanSelfAttention",
)
