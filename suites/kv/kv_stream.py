"""A stretch of streamed video decoding, as far as the key-value cache of one attention layer sees it.

A causal video transformer decodes block after block. Each block takes several denoise passes, of which each overwrites
what the one before it wrote, and a last one on the clean latents, whose keys and values stay. A query sees the first `sink`
tokens of its video and the newest others, `window` in all, its own block included. Of a block that is longer than that it
sees the newest tokens only.

Keys are rotated to their absolute position before they come here. So attention does not care where a token lies, and a
cache may lie in any order as long as it is known which slots count.

The ways to keep such a cache are `Form`s here, and `stream` is the loop around all of them. A cache is a dict, as in the
published code; its memory is allocated in each call and not filled, so that whatever reads a slot that nobody wrote is seen.
"""

from typing import NamedTuple

import torch
from kernels_kv import write_ring

from ..common.kernels_opaque import compile_apart

# -- which tokens count, and where a ring has them --------------------------------------------------------------------


def kept_of(start, count, window, sink):
    """Return which tokens of a block at positions `start` and on stay visible behind it, as at most two (begin, end)."""
    newest = min(max(sink, start + count - (window - sink), start) - start, count)
    first = min(max(sink - start, 0), count)
    if first >= newest:
        return [(0, count)]
    return [(0, first), (newest, count)] if first else [(newest, count)]


def ring_pieces(start, count, window, sink):
    """Return where a ring has those tokens, as (begin, end, slot) in the order of their positions.

    A token's slot follows from its position alone, so passes over a block write to the same slots, and nothing has to be
    advanced or reset.
    """
    room = window - sink
    pieces = []
    for begin, end in kept_of(start, count, window, sink):
        at = begin
        while at < end:
            position = start + at
            slot = position if position < sink else sink + (position - sink) % room
            length = min(end - at, (sink if position < sink else window) - slot)
            if pieces and pieces[-1][1] == at and pieces[-1][2] + at - pieces[-1][0] == slot:
                pieces[-1] = (pieces[-1][0], at + length, pieces[-1][2])
            else:
                pieces.append((at, at + length, slot))
            at += length
    return pieces


def visible_of(cache):
    """Return how many slots count: a prefix, for a ring as well, as long as it is not full."""
    return min(cache["end"], cache["window"])


# -- the plain form ---------------------------------------------------------------------------------------------------


def empty_cache(like, window, sink):
    """Return a cache for keys and values like `like`, [batch, tokens, heads, size]."""
    shape = (like.shape[0], window, *like.shape[2:])
    return {"k": like.new_empty(shape), "v": like.new_empty(shape), "window": window, "sink": sink, "end": 0}


def roll_write(cache, k, v, start):
    """Move what stays to the left when a new block does not fit, then write the block at the end."""
    window, sink, count = cache["window"], cache["sink"], k.shape[1]
    filled, end = visible_of(cache), start + count
    evicted = filled + count - window if end > cache["end"] else 0
    stay = filled - sink - evicted
    if evicted > 0 and stay > 0:
        for name in ("k", "v"):
            # The two ranges overlap.
            cache[name][:, sink : sink + stay] = cache[name][:, sink + evicted : sink + evicted + stay].clone()
    cache["end"] = end
    insert_last(cache, k, v, start)


def insert_last(cache, k, v, start):
    """Write what stays of a block to the last slots, or, of its tokens in the sink, to their own."""
    filled, count = visible_of(cache), k.shape[1]
    for begin, end in kept_of(start, count, cache["window"], cache["sink"]):
        slot = filled - (end - begin) if end == count else start
        cache["k"][:, slot : slot + end - begin] = k[:, begin:end]
        cache["v"][:, slot : slot + end - begin] = v[:, begin:end]


def copy_filled(cache):
    """Return keys and values by position, where they lie in that order."""
    return tuple(cache[name][:, : visible_of(cache)].clone() for name in ("k", "v"))


# -- two buffers ------------------------------------------------------------------------------------------------------


def empty_pair(like, window, sink):
    cache = empty_cache(like, window, sink)
    return cache | {"other_k": torch.empty_like(cache["k"]), "other_v": torch.empty_like(cache["v"])}


def pair_write(cache, k, v, start):
    """Copy what stays straight into a second buffer: no clone, for twice the memory."""
    window, sink, count = cache["window"], cache["sink"], k.shape[1]
    filled, end = visible_of(cache), start + count
    evicted = filled + count - window if end > cache["end"] else 0
    stay = filled - sink - evicted
    if evicted > 0 and stay > 0:
        for name, other in (("k", "other_k"), ("v", "other_v")):
            cache[other][:, :sink] = cache[name][:, :sink]
            cache[other][:, sink : sink + stay] = cache[name][:, sink + evicted : sink + evicted + stay]
            cache[name], cache[other] = cache[other], cache[name]
    cache["end"] = end
    insert_last(cache, k, v, start)


# -- rings ------------------------------------------------------------------------------------------------------------


def ring_write(cache, k, v, start):
    """Write a block to the slots of its positions: one slice, or two where the ring wraps."""
    write_pieces(cache, k, v, ring_pieces(start, k.shape[1], cache["window"], cache["sink"]))
    cache["end"] = start + k.shape[1]


def write_pieces(cache, k, v, pieces):
    for begin, end, slot in pieces:
        cache["k"][:, slot : slot + end - begin] = k[:, begin:end]
        cache["v"][:, slot : slot + end - begin] = v[:, begin:end]


def copy_in_order(cache):
    """Return a ring's keys and values by position."""
    pieces = ring_pieces(0, cache["end"], cache["window"], cache["sink"])
    spans = [(slot, slot + end - begin) for begin, end, slot in pieces]
    return tuple(torch.cat([cache[name][:, first:last] for first, last in spans], dim=1) for name in ("k", "v"))


def index_write(cache, k, v, start):
    """Write a block through a table of slots on the device, made once a call: wrapping is no case of its own."""
    for begin, end in kept_of(start, k.shape[1], cache["window"], cache["sink"]):
        slots = cache["slots"][start + begin : start + end]
        cache["k"].index_copy_(1, slots, k[:, begin:end])
        cache["v"].index_copy_(1, slots, v[:, begin:end])
    cache["end"] = start + k.shape[1]


def slot_table(positions, window, sink):
    """Return the ring's slots of positions, a tensor."""
    return torch.where(positions < sink, positions, sink + (positions - sink) % (window - sink))


def kernel_write(cache, k, v, start):
    """Write keys and values in one kernel, which finds the slots itself."""
    for begin, end in kept_of(start, k.shape[1], cache["window"], cache["sink"]):
        ring = cache["k"], cache["v"], cache["window"], cache["sink"]
        write_ring(k[:, begin:end], v[:, begin:end], *ring, start + begin)
    cache["end"] = start + k.shape[1]


class Form(NamedTuple):
    """A way to keep a cache."""

    write: object
    """`write(cache, k, v, start)` takes a pass over the block that begins at position `start` of its video."""
    in_order: object = copy_in_order
    """`in_order(cache)` returns copies of the visible keys and values by position."""
    empty: object = empty_cache
    """`empty(like, window, sink)` returns a cache, for the whole call."""


ROLL = Form(roll_write, copy_filled)
TWO_BUFFERS = Form(pair_write, copy_filled, empty_pair)
RING = Form(ring_write)
INDEX = Form(index_write)
KERNEL = Form(kernel_write)


# -- the loop ---------------------------------------------------------------------------------------------------------


def stream(k, v, window, sink, videos, form, q=None, attend=None):
    """Decode videos one after the other with one cache.

    Args:
        k: Keys of all passes, [blocks, passes, batch, tokens, heads, size]; the blocks of all videos.
        v: Their values.
        window: Tokens that a query sees.
        sink: How many of them are the video's first ones.
        videos: How many, of equally many blocks.
        form: How the cache is kept.
        q: Queries, shaped like `k`, with `attend`.
        attend: `attend(cache, q)` is called in each pass.

    Returns:
        What `attend` returned, in one tensor like `q`, or without it a list of keys and values by position at the end of each
        video.
    """
    blocks, passes, count = len(k) // videos, k.shape[1], k.shape[3]
    cache = form.empty(k[0, 0], window, sink)
    if form.write is index_write:
        cache["slots"] = slot_table(torch.arange(blocks * count, device=k.device), window, sink)
    seen, kept = None if q is None else torch.empty_like(q), []
    for video in range(videos):
        reset(cache)
        for block in range(blocks):
            compile_apart()
            at = video * blocks + block
            for step in range(passes):
                form.write(cache, k[at, step], v[at, step], block * count)
                if attend is not None:
                    seen[at, step] = attend(cache, q[at, step])
        if attend is None:
            kept.append(form.in_order(cache))
    return kept if attend is None else seen


def reset(cache):
    """Begin a new video: its end is at zero; what lies in the slots stays there, as published."""
    cache["end"] = 0
