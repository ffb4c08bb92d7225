"""Ways to count what the caches of all layers hold, and the stretch of decoding that they count; for `index.py`."""

from typing import NamedTuple

import torch
from kv_stream import copy_filled, copy_in_order, empty_cache, ring_pieces, slot_table, write_pieces

from ..common.kernels_opaque import compile_apart


class Way(NamedTuple):
    """A way to count."""

    empty: object
    """`empty(like, window, sink, layers)` returns the layers' caches."""
    reset: object
    """`reset(caches)` begins a video."""
    begin: object
    """`begin(caches, start, count)` begins a pass over a block; what it returns is for `write`."""
    write: object
    """`write(cache, k, v, pass_)` takes one layer's pass."""
    commit: object
    """`commit(caches, count)` ends a block."""
    in_order: object
    """`in_order(cache)` returns copies of the visible keys and values by position."""


def stretch(k, v, window, sink, layers, videos, way):
    """Decode videos one after the other; return keys and values of each video and layer, by position."""
    blocks, passes, count = len(k) // videos, k.shape[1], k.shape[3]
    caches = way.empty(k[0, 0], window, sink, layers)
    kept = []
    for video in range(videos):
        way.reset(caches)
        for block in range(blocks):
            at = video * blocks + block
            for step in range(passes):
                compile_apart()
                pass_ = way.begin(caches, block * count, count)
                for layer, cache in enumerate(caches):
                    turn = (step + layer) % passes
                    way.write(cache, k[at, turn], v[at, turn], pass_)
            way.commit(caches, count)
        for cache in caches:  # whoever asks for the result knows how long the video was
            cache["end"] = blocks * count
        kept.append([way.in_order(cache) for cache in caches])
    return kept


def nothing_more(caches, count):
    """Do nothing at the end of a block."""


def the_start(caches, start, count):
    """Let every layer know where the block begins, and no more."""
    return start


# -- counters on the device -------------------------------------------------------------------------------------------


def empty_counted(like, window, sink, layers):
    def counter():
        return torch.empty(1, dtype=torch.int64, device=like.device)

    return [empty_cache(like, window, sink) | {"global_end": counter(), "local_end": counter()} for _ in range(layers)]


def zero_counters(caches):
    for cache in caches:
        cache["global_end"].zero_()
        cache["local_end"].zero_()


def counted_write(cache, k, v, start):
    """Read the counters wherever one of them is needed."""
    count, window, sink = k.shape[1], cache["window"], cache["sink"]
    ended, filled, end = cache["global_end"], cache["local_end"], start + k.shape[1]
    if end > ended.item() and count + filled.item() > window:
        evicted = count + filled.item() - window
        stay = filled.item() - evicted - sink
        move_left(cache, evicted, stay)
        last = filled.item() + end - ended.item() - evicted
    else:
        last = filled.item() + end - ended.item()
    insert(cache, k, v, last)
    ended.fill_(end)
    filled.fill_(last)


def move_left(cache, evicted, stay):
    sink = cache["sink"]
    for name in ("k", "v"):
        cache[name][:, sink : sink + stay] = cache[name][:, sink + evicted : sink + evicted + stay].clone()


def insert(cache, k, v, last):
    cache["k"][:, last - k.shape[1] : last] = k
    cache["v"][:, last - k.shape[1] : last] = v


COUNTED = Way(empty_counted, zero_counters, the_start, counted_write, nothing_more, copy_filled)


# -- one read a pass --------------------------------------------------------------------------------------------------


def empty_shared(like, window, sink, layers):
    """Give all layers the same two counters, in one tensor."""
    counters = torch.empty(2, dtype=torch.int64, device=like.device)
    return [empty_cache(like, window, sink) | {"counters": counters} for _ in range(layers)]


def zero_shared(caches):
    caches[0]["counters"].zero_()


def read_shared(caches, start, count):
    """Read both counters at once; return how much the layers evict, and where they write."""
    cache = caches[0]
    ended, filled = cache["counters"].tolist()
    plan = plan_pass(ended, filled, start, count, cache["window"], cache["sink"])
    cache["counters"][0].fill_(start + count)
    cache["counters"][1].fill_(plan[2])
    return plan


def plan_pass(ended, filled, start, count, window, sink):
    """Return how many tokens a pass evicts, how many move, and where it ends to write."""
    evicted = max(0, count + filled - window) if start + count > ended else 0
    return evicted, filled - evicted - sink, filled + start + count - ended - evicted


def told_write(cache, k, v, pass_):
    evicted, stay, last = pass_
    if evicted:
        move_left(cache, evicted, stay)
    insert(cache, k, v, last)


SHARED = Way(empty_shared, zero_shared, read_shared, told_write, nothing_more, copy_filled)


# -- numbers on the host ----------------------------------------------------------------------------------------------


def empty_plain(like, window, sink, layers):
    return [empty_cache(like, window, sink) for _ in range(layers)]


def zero_plain(caches):
    for cache in caches:
        cache["end"] = 0


def plan_on_host(caches, start, count):
    """Plan a pass for all layers; what is filled follows from the end."""
    cache = caches[0]
    ended, cache["end"] = cache["end"], start + count
    return plan_pass(ended, min(ended, cache["window"]), start, count, cache["window"], cache["sink"])


def pieces_on_host(caches, start, count):
    return ring_pieces(start, count, caches[0]["window"], caches[0]["sink"])


HOST = Way(empty_plain, zero_plain, plan_on_host, told_write, nothing_more, copy_filled)
HOST_RING = Way(empty_plain, zero_plain, pieces_on_host, write_pieces, nothing_more, copy_in_order)


# -- a position that stays on the device ------------------------------------------------------------------------------


def empty_positioned(like, window, sink, layers):
    """Keep where the next block begins on the device, once for all layers; the size of the stretch is in its shapes."""
    start = torch.empty(1, dtype=torch.int64, device=like.device)
    offsets = torch.arange(max(window, like.shape[1]), device=like.device)
    return [empty_cache(like, window, sink) | {"start": start, "offsets": offsets} for _ in range(layers)]


def zero_position(caches):
    caches[0]["start"].zero_()


def slots_of_block(caches, start, count):
    """Compute the block's slots from the position on the device."""
    cache = caches[0]
    return slot_table(cache["start"] + cache["offsets"][:count], cache["window"], cache["sink"])


def slots_write(cache, k, v, slots):
    cache["k"].index_copy_(1, slots, k)
    cache["v"].index_copy_(1, slots, v)


def advance(caches, count):
    caches[0]["start"].add_(count)


def copy_positioned(cache):
    """Gather by positions that are computed on the device."""
    window, sink = cache["window"], cache["sink"]
    at = cache["offsets"][: min(cache["end"], window)]
    slots = slot_table(torch.where(at < sink, at, cache["start"] + at - len(at)), window, sink)
    return tuple(cache[name].index_select(1, slots) for name in ("k", "v"))


POSITIONED = Way(empty_positioned, zero_position, slots_of_block, slots_write, advance, copy_positioned)
