"""Which keys a query sees in block-causal attention, said as intervals, and what is made of them before any call.

It stands apart from the arithmetic in `attention_forms.py` and from the declarations: every implementation starts from
these intervals, so that none has a notion of the mask of its own. The oracle does: see `attention_exact.py`.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch

PADDED_TO = 128
"""Tokens in a block of FlexAttention's masks; the published models pad their sequences to a multiple of it."""


class Layout(NamedTuple):
    """A clip of frames, cut into blocks that are generated one after the other.

    A token sees every frame of its own block and of the blocks before it. The last block may be short.
    """

    frames: int
    tokens: int
    """Of a frame."""
    block: int
    """Frames of a block."""
    first: int = 0
    """Frames of the first block, where it differs: one, where a clip begins with a given image. 0: as the others."""
    window: int = 0
    """Frames that are seen, counted back from the end of the query's block, at least a block. 0: all."""
    sink: int = 0
    """Frames from the beginning that are seen although the window has passed them."""
    forced: bool = False
    """Teacher forcing: the clip twice, clean and then noisy. A noisy block sees itself and the clean blocks before it."""


class Segment(NamedTuple):
    """Queries that see the same keys."""

    begin: int
    end: int
    spans: tuple
    """One or two intervals (begin, end) of keys, disjoint and in order."""


def length(layout):
    """Return how many tokens there are."""
    return layout.frames * layout.tokens * (2 if layout.forced else 1)


def segments(layout):
    """Return the blocks of queries with the keys they see, in order; a clip without tokens has none."""
    size, clip = layout.tokens, layout.frames * layout.tokens
    blocks = [(begin, end) for begin, end in _blocks(layout) if end * size > begin * size]
    clean = [Segment(begin * size, end * size, _seen(layout, end)) for begin, end in blocks]
    if not layout.forced:
        return tuple(clean)
    noisy = []
    for begin, end in blocks:
        itself = (clip + begin * size, clip + end * size)
        noisy.append(Segment(*itself, ((0, begin * size), itself) if begin else (itself,)))
    return (*clean, *noisy)


def _blocks(layout):
    """Return the blocks as intervals of frames."""
    first = layout.first or layout.block
    cuts = [0, *range(first, layout.frames, layout.block), layout.frames]
    return list(itertools.pairwise(cuts))


def _seen(layout, end):
    """Return the intervals of tokens that a block sees which ends before that frame."""
    size = layout.tokens
    start = max(0, end - layout.window) if layout.window else 0
    if layout.sink >= start:
        return ((0, end * size),)
    return ((0, layout.sink * size), (start * size, end * size)) if layout.sink else ((start * size, end * size),)


def pairs(layout):
    """Return how many pairs of a query and a key the mask leaves."""
    return sum((end - begin) * sum(b - a for a, b in spans) for begin, end, spans in segments(layout))


def limits(layout, device, rows=None):
    """Return [4, rows] int32: for every query the begin and end of the first interval, then of the second.

    Rows beyond the clip's tokens, which padding adds, see themselves alone, so that no row is without any key.
    """
    tokens = length(layout)
    rows = tokens if rows is None else rows
    table = torch.zeros(4, rows, dtype=torch.int32, device=device)
    for begin, end, spans in segments(layout):
        for i, (low, high) in enumerate(spans):
            table[2 * i, begin:end] = low
            table[2 * i + 1, begin:end] = high
    padding = torch.arange(tokens, rows, dtype=torch.int32, device=device)
    table[0, tokens:] = padding
    table[1, tokens:] = padding + 1
    return table


def dense_mask(table):
    """Return the mask as [queries, keys] of bool, True where a key is seen, from `limits`."""
    keys = torch.arange(table.shape[1], dtype=torch.int32, device=table.device)
    low, high, low2, high2 = table[:, :, None]
    return ((keys >= low) & (keys < high)).logical_or_((keys >= low2) & (keys < high2))


def mask_function(table):
    """Return the mask as the function of indices that FlexAttention takes."""

    def visible(batch, head, query, key):
        first = (key >= table[0][query]) & (key < table[1][query])
        return first | ((key >= table[2][query]) & (key < table[3][query]))

    return visible
