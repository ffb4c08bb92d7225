"""The float64 attention to judge by, in pieces of query rows, with a mask said in frames and blocks.

It shares nothing with the intervals that the implementations start from: whether a key is seen is decided for each pair of tokens
from the frames and blocks they lie in. Scores of a whole clip would not fit: 32,760 tokens and 12 heads are 103 GB of them.
"""

from __future__ import annotations

import torch

SCORES = 1 << 26
"""Held at once, in float64: half a gigabyte, and what the softmax makes of it."""


def attention(q, k, v, visible=None):
    """Return [batch, queries, heads, dim] of the same layout, head after head and piece after piece.

    Args:
        visible: Takes the indices of queries and of keys, [rows, 1] and [1, keys], and returns where a key is seen.
    """
    out = torch.zeros_like(q)
    keys = torch.arange(k.shape[1], device=q.device)[None]
    rows = max(1, SCORES // max(1, k.shape[1]))
    for begin in range(0, q.shape[1], rows):
        queries = torch.arange(begin, min(begin + rows, q.shape[1]), device=q.device)[:, None]
        hidden = None if visible is None else ~visible(queries, keys)
        for batch in range(q.shape[0]):
            for head in range(q.shape[2]):
                at = (batch, slice(begin, begin + rows), head)
                scores = q[at] @ k[batch, :, head].T
                scores *= q.shape[-1] ** -0.5
                if hidden is not None:
                    scores.masked_fill_(hidden, -torch.inf)
                out[at] = scores.softmax(-1) @ v[batch, :, head]
    return out


def rounded(q, k, v, visible=None):
    """Return the same for implementations that are wrong on purpose: in float32 at least, and rounded to what came.

    Its pieces fit where the scores of a whole clip do not, and its precision is no reason to reject anything.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    return attention(q.to(wide), k.to(wide), v.to(wide), visible).to(q.dtype)


def block_causal(layout):
    """Return which keys a query sees, as `attention` takes it, for an `attention_blocks.Layout`."""
    clip = layout.frames * layout.tokens
    first = layout.first or layout.block

    def block_of(frame):
        return torch.where(frame < first, 0, 1 + torch.div(frame - first, layout.block, rounding_mode="floor"))

    def visible(query, key):
        seen_from, frame = query % clip // layout.tokens, key % clip // layout.tokens
        mine, other = block_of(seen_from), block_of(frame)
        if layout.forced:
            own = (key >= clip) & (mine == other)
            return torch.where(query < clip, (key < clip) & (other <= mine), own | ((key < clip) & (other < mine)))
        seen = other <= mine
        if layout.window:
            last = (first + mine * layout.block).clamp(max=layout.frames)
            seen = seen & ((frame >= last - layout.window) | (frame < layout.sink))
        return seen

    return visible
