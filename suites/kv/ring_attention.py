"""Attention over the key-value cache of streamed video decoding, in every pass: what rolling it, or not, is a part of.

The cache is that of `ring.py`. A ring hands attention its tokens in another order, and nothing else: the sums are the same,
associated otherwise. As long as it is not full its filled slots are a prefix, so a slice does; with a mask in its place every
pass has one shape, for which attention reads slots that do not count.

Each pass copies what it attended to its place in one tensor, as the layer behind it would read it.
"""

import functools

import torch
import torch.nn.functional as F
from kv_ring_cases import (
    EDGE,
    HEADLINE,
    REAL,
    SHARED_IMPOSTORS,
    SMOKE,
    positions,
    projections,
    wraps,
    writes_past_end,
)
from kv_stream import INDEX, KERNEL, RING, ROLL, TWO_BUFFERS, empty_cache, stream, visible_of

from pairbench import REASSOCIATED, Cost, Operator, Variant


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
    shape = (window, block, tokens, blocks, passes, heads, size, sink, videos, batch, layout, dtype)
    q, k, v = projections(make, 3, *shape)
    # As a projection's bias gives it. Thousands of values that cancel leave little more than what softmax weights are rounded by.
    v.add_(0.05)
    return {"q": q, "k": k, "v": v, "window": window * tokens, "sink": sink * tokens, "videos": videos}


def cost(window, block, tokens, blocks, passes=4, heads=12, size=128, videos=1, batch=1, dtype="bfloat16", **_):
    """Queries, keys and values are read once, and the outputs are as large."""
    width, count = videos * batch * heads * size, block * tokens
    seen = sum(min(window * tokens, (i + 1) * count) for i in range(blocks))
    moved = 4 * width * blocks * passes * count * getattr(torch, dtype).itemsize
    return Cost(flops=4.0 * width * passes * count * seen, bytes=float(moved))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def attend(cache, q):
    """Attend to the slots that count, wherever a token lies in them."""
    count = visible_of(cache)
    return _attend(q, cache["k"][:, :count], cache["v"][:, :count])


def _attend(q, k, v, mask=None):
    q, k, v = (value.transpose(1, 2) for value in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def attend_masked(cache, q):
    """Attend to all slots, with those that do not count masked: one shape from the first block on."""
    return _attend(q, cache["k"], cache["v"], (cache["at"] < visible_of(cache)).view(1, 1, 1, -1))


def empty_for_mask(like, window, sink):
    """Fill the slots with zeros: a NaN in one that is masked would come through as 0 * NaN."""
    cache = zeroed_cache(like, window, sink)
    return cache | {"at": torch.arange(window, device=like.device)}


def zeroed_cache(like, window, sink):
    cache = empty_cache(like, window, sink)
    cache["k"].zero_()
    cache["v"].zero_()
    return cache


def roll(q, k, v, window, sink, videos):
    """Roll the cache for a new block; attend to its filled part in each pass."""
    return stream(k, v, window, sink, videos, ROLL, q, attend)


def two_buffers(q, k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, TWO_BUFFERS, q, attend)


def ring(q, k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, RING, q, attend)


def ring_index_copy(q, k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, INDEX, q, attend)


def ring_triton(q, k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, KERNEL, q, attend)


def ring_masked(q, k, v, window, sink, videos):
    return stream(k, v, window, sink, videos, RING._replace(empty=empty_for_mask), q, attend_masked)


# -- an oracle that has no cache --------------------------------------------------------------------------------------


def by_formula(q, k, v, window, sink, videos):
    """Attend by the formula to picked positions of what every block committed, one head at a time for its memory."""
    result = torch.empty_like(q)
    blocks, passes, count = len(k) // videos, k.shape[1], k.shape[3]
    for at in range(len(k)):
        first = at - at % blocks
        chosen = torch.tensor(positions((at - first + 1) * count, window, sink), device=k.device)
        for step in range(passes):
            seen = [torch.cat([*x[first:at, -1], x[at, step]], 1).index_select(1, chosen) for x in (k, v)]
            keys, values, queries = (x.transpose(1, 2) for x in (*seen, q[at, step]))
            for head in range(keys.shape[1]):
                result[at, step, :, :, head] = _softmax(queries[:, head], keys[:, head], values[:, head])
    return result


def _softmax(q, k, v):
    return ((q * q.shape[-1] ** -0.5) @ k.mT).softmax(-1) @ v


# -- deliberately wrong -----------------------------------------------------------------------------------------------


ZEROED = RING._replace(empty=zeroed_cache)


def attend_to_all(cache, q):
    return _attend(q, cache["k"], cache["v"])


def stale_after_reset(q, k, v, window, sink, videos):
    """Go on counting when a new video begins."""
    return stream(k, v, window, sink, 1, RING, q, attend)


def empty_slots_unmasked(q, k, v, window, sink, videos):
    """Attend to slots that hold zeros still, which take their part of the probability."""
    return stream(k, v, window, sink, videos, ZEROED, q, attend_to_all)


def begins_empty(k, window, **_):
    return k.shape[3] < window


def begins_again(k, window, videos, **_):
    return videos > 1 and k.shape[3] < window


def attending(impostor):
    """Return a wrong cache's variant that attends."""
    return Variant(functools.partial(impostor.function, attend=attend), valid=impostor.valid)


# -- the pair -----------------------------------------------------------------------------------------------------

kv_ring_attention = Operator(
    "kv_ring_attention",
    baseline=roll,
    variants={
        "two_buffers": two_buffers,
        "ring": ring,
        "ring_index_copy": ring_index_copy,
        "ring_triton": Variant(ring_triton, needs="triton"),
        "ring_masked": ring_masked,
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={name: attending(impostor) for name, impostor in SHARED_IMPOSTORS.items()}
    | {
        "writes_past_end": attending(Variant(writes_past_end, valid=wraps)),
        "empty_slots_unmasked": Variant(empty_slots_unmasked, valid=begins_empty),
        "stale_after_reset": Variant(stale_after_reset, valid=begins_again),
    },
    oracle=by_formula,
    tolerance=REASSOCIATED,
    cost=cost,
    source="Self-Forcing, Matrix-Game-2: CausalWanSelfAttention",
)
