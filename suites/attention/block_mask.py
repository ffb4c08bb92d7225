"""The block mask of block-causal FlexAttention, made anew for each forward pass or kept by what it depends on.

Making one asks for every pair of tokens whether the mask lets it through, and then counts blocks of 128 x 128: a gigabyte for the
32,760 tokens of a clip, and dozens of launches. The published models do it again for every forward pass, although it
depends on five numbers that hardly ever change.

A call is a run of forward passes, each of which asks for its mask: nothing may be kept from one call to the next, so a cache begins
empty and is filled once. What comes out, and has to be equal to the bit, is what the attention kernel reads: for
each pass the numbers and indices of the blocks seen in part and in full, and where each query's keys begin and end. The
mask is that of `attention_blocks.Layout` with a block and a window, padded to a multiple of 128 tokens; rows of padding
see themselves.
"""

from __future__ import annotations

import torch
from attention_blocks import Layout, length, segments
from attention_masks import Request, by_blocks, from_host, made_from, padded_length, published

from pairbench import EXACT, Operator, Variant


def inputs(make, frames, tokens, block, forwards, window=(0,), on_host=(0,)):
    """Return what each forward pass asks for; the values of every axis are taken in turns."""

    def request(i):
        *sizes, host = (axis[i % len(axis)] for axis in (frames, tokens, block, window, on_host))
        layout = Layout(*sizes[:3], window=sizes[3])
        return Request(layout, torch.device("cpu") if host else make.device)

    return {"requests": tuple(request(i) for i in range(forwards))}


# -- the plain form, and others ---------------------------------------------------------------------------------------


def each_forward(requests):
    """Make a mask for every forward pass, as published."""
    return [published(request) for request in requests]


def each_forward_from_host(requests):
    """The same without waiting."""
    return [from_host(request) for request in requests]


def each_forward_by_blocks(requests):
    """The same from what is seen of blocks."""
    return [by_blocks(request) for request in requests]


def cached(requests):
    """Keep masks by frames, tokens, block, window and device."""
    return _cached(requests, lambda request: request)


def cached_by_blocks(requests):
    """Keep them, and make them from what is seen of blocks."""
    return _cached(requests, lambda request: request, by_blocks)


def _cached(requests, key, make=published):
    masks = {}
    for request in requests:
        if key(request) not in masks:
            masks[key(request)] = make(request)
    return [masks[key(request)] for request in requests]


# -- deliberately wrong: a key that lacks something -------------------------------------------------------------------


def without_window(request):
    return request.layout._replace(window=0), request.device


def without_block(request):
    return request.layout._replace(block=0), request.device


def without_frames(request):
    return request.layout._replace(frames=0), request.device


def length_only(request):
    """Take frames times tokens for all there is to know of a clip."""
    return length(request.layout), request.layout.block, request.layout.window, request.device


def without_device(request):
    return request.layout


def nothing(request):
    return None


def keyed(key):
    """Return an implementation whose cache has that key, to be tried where two masks are taken for one."""

    def impostor(requests):
        return _cached(requests, key)

    def valid(requests):
        found = {}
        for request in requests:
            what = (segments(request.layout), padded_length(request.layout), request.device)
            if found.setdefault(key(request), what) != what:
                return True
        return False

    return Variant(impostor, valid=valid)


def sees_padding(requests):
    """Make masks in which a short last block also sees the padding behind it, up to the length of a whole block."""
    masks = []
    for layout, device in requests:
        size, rows = layout.block * layout.tokens, padded_length(layout)
        ends = torch.arange(rows, device=device) // size * size + size
        masks.append(made_from(layout, torch.where(torch.arange(rows, device=device) < length(layout), ends, 0)))
    return masks


def short_last_block(requests):
    return any(layout.frames % layout.block for layout, _ in requests)


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(frames=(4,), tokens=(8,), block=(2,), forwards=2)

EDGE = [
    dict(TINY, frames=(1,), tokens=(1,), block=(1,)),
    dict(TINY, forwards=1),
    dict(TINY, frames=(5,)),  # a short last block
    dict(TINY, frames=(16,)),  # no padding
    dict(TINY, frames=(9,), tokens=(40,), block=(3,)),  # several blocks of 128, in part and in full
    dict(TINY, frames=(24,), tokens=(32,), block=(1,), window=(5,)),
    dict(TINY, forwards=4, window=(0, 2)),  # the window changes, and changes back
    dict(TINY, forwards=4, block=(1, 2)),
    dict(TINY, forwards=4, frames=(4, 6)),  # and the padded length does not
    dict(TINY, forwards=4, frames=(4, 8), tokens=(8, 4)),  # nor the number of tokens
    dict(TINY, forwards=4, on_host=(0, 1)),
    dict(TINY, forwards=3, window=(2, 0, 9)),  # two of which are the same mask
]

block_mask_cache = Operator(
    "block_mask_cache",
    baseline=each_forward,
    accepts_constant=True,  # a mask depends on lengths alone, which are axes of the case
    variants={
        "cached": cached,
        "from_host": each_forward_from_host,
        "by_blocks": each_forward_by_blocks,
        "cached_by_blocks": cached_by_blocks,
    },
    impostors={
        "keyed_without_window": keyed(without_window),
        "keyed_without_block": keyed(without_block),
        "keyed_without_frames": keyed(without_frames),
        "keyed_by_length": keyed(length_only),
        "keyed_without_device": keyed(without_device),
        "made_once": keyed(nothing),
        "sees_padding": Variant(sees_padding, valid=short_last_block),
    },
    inputs=inputs,
    cases={
        "edge": EDGE,
        # Four forward passes a block of three denoising steps, or five of four, and one that fills the key-value cache.
        "smoke": [
            dict(frames=(4,), tokens=(8,), block=(2,), forwards=4),
            dict(frames=(9,), tokens=(40,), block=(3,), window=(6,), forwards=4),
        ],
        "real": [
            dict(frames=(9,), tokens=(880,), block=(3,), forwards=4),
            dict(frames=(9,), tokens=(880,), block=(3,), window=(6,), forwards=4),
            dict(frames=(8,), tokens=(880,), block=(2,), forwards=4),
            dict(frames=(9,), tokens=(880,), block=(3,), forwards=1),  # nothing to keep
        ],
        "headline": [
            dict(frames=(21,), tokens=(1560,), block=(3,), forwards=5),
            dict(frames=(21,), tokens=(1560,), block=(3,), window=(9,), forwards=5),
        ],
    },
    tolerance=EXACT,
    source="Self-Forcing and Matrix-Game-2 causal_model.py; FastVideo #1415",
)
