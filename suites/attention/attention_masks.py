"""Three ways to make the block mask of block-causal FlexAttention, for `block_mask.py`.

All return what the attention kernel reads of a mask: the numbers and indices of the blocks of keys that each block of queries sees
in part and in full, and for each query where its keys begin and end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from attention_blocks import PADDED_TO, Layout, length, segments


class Request(NamedTuple):
    """All that a mask depends on."""

    layout: Layout
    device: torch.device


def published(request):
    """Make a mask as the models do: the ends of blocks in a loop over a tensor of the device, which waits for each of them."""
    layout, device = request
    total = length(layout)
    ends = torch.zeros(padded_length(layout), dtype=torch.long, device=device)
    size = layout.block * layout.tokens
    for start in torch.arange(0, total, size, device=device):
        ends[start : start + size] = start + size
    # The published loop ends here, and a short last block ends in the padding, which it then sees.
    ends.clamp_(max=total)
    ends[total:] = 0
    return made_from(layout, ends)


def from_host(request):
    """Make a mask of block ends that the host knows: nothing waits."""
    layout, device = request
    ends = torch.zeros(padded_length(layout), dtype=torch.long, device=device)
    for begin, end, _ in segments(layout):
        ends[begin:end] = end
    return made_from(layout, ends)


def by_blocks(request):
    """Count how much each query sees of each block of keys, and not each key: a hundredth of the memory."""
    from torch.nn.attention.flex_attention import BlockMask

    layout, device = request
    rows = padded_length(layout)
    ends = torch.zeros(rows, dtype=torch.long, device=device)
    for begin, end, _ in segments(layout):
        ends[begin:end] = end
    starts = _starts(layout, ends)
    first = torch.arange(0, rows, PADDED_TO, device=device)
    seen = ends[:, None].clamp(max=first + PADDED_TO) - starts[:, None].clamp(min=first)
    counts = seen.clamp(min=0).view(-1, PADDED_TO, len(first)).sum(1)
    counts[-1, -1] += rows - length(layout)  # padding sees itself
    partial = (counts > 0) & (counts < PADDED_TO**2)
    tables = [_ordered(blocks[None, None]) for blocks in (partial, counts == PADDED_TO**2)]
    made = BlockMask.from_kv_blocks(
        *tables[0], *tables[1], BLOCK_SIZE=PADDED_TO, mask_mod=_visible(starts, ends), seq_lengths=(rows, rows)
    )
    return _what_is_read(made, starts, ends)


def made_from(layout, ends):
    """Make a mask as FlexAttention does, from every pair of tokens."""
    from torch.nn.attention.flex_attention import create_block_mask

    starts, rows = _starts(layout, ends), len(ends)
    made = create_block_mask(_visible(starts, ends), None, None, rows, rows, device=ends.device)
    return _what_is_read(made, starts, ends)


def padded_length(layout):
    """Return how many tokens there are with the padding."""
    return length(layout) + -length(layout) % PADDED_TO


def _starts(layout, ends):
    return (ends - layout.window * layout.tokens).clamp(min=0) if layout.window else torch.zeros_like(ends)


def _visible(starts, ends):
    def visible(batch, head, query, key):
        return ((key >= starts[query]) & (key < ends[query])) | (query == key)

    return visible


def _ordered(blocks):
    """Return how many blocks each row has, and their columns, those it has not behind them."""
    order = blocks.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(torch.int32), order.to(torch.int32)


def _what_is_read(made, starts, ends):
    return {
        "partial": (made.kv_num_blocks, made.kv_indices),
        "full": (made.full_kv_num_blocks, made.full_kv_indices),
        "intervals": (starts, ends),
    }
