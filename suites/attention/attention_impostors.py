"""Block-causal attention that is wrong on purpose, each for the mistake it makes and with where that shows.

For `block_causal.py`. They take the exact form with another mask, so that nothing but the mistake tells them from what is right.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from attention_blocks import PADDED_TO, length, segments
from attention_exact import block_causal, rounded

from pairbench import Variant


def token_causal(q, k, v, layout, device):
    """The flag `causal=True`, which hides from a token what comes later in its own block."""
    return rounded(q, k, v, lambda query, key: key <= query)


def unmasked(q, k, v, layout, device):
    """Let every token see what is yet to be generated."""
    return rounded(q, k, v)


def minus_pad(q, k, v, layout, device):
    """Cut the padding off by `[:, :-pad]`, as published, which leaves nothing where there is none."""
    return _masked(q, k, v, layout)[:, : -(-q.shape[1] % PADDED_TO)]


def padding_seen(q, k, v, layout, device):
    """Let the last block see the padding: keys of zeros take part in its softmax."""
    tokens, seen = q.shape[1], block_causal(layout)
    k, v = (F.pad(x, (0, 0, 0, 0, 0, -tokens % PADDED_TO)) for x in (k, v))
    last = segments(layout)[-1].begin
    return rounded(q, k, v, lambda query, key: torch.where(key < tokens, seen(query, key), query >= last))


def padding_unwritten(q, k, v, layout, device):
    """Pad with memory that nobody wrote: a weight of zero times NaN is NaN."""
    tokens, seen = q.shape[1], block_causal(layout)
    k, v = (F.pad(x, (0, 0, 0, 0, 0, -tokens % PADDED_TO), value=fill) for x, fill in ((k, 0.0), (v, torch.nan)))
    return rounded(q, k, v, lambda query, key: (key < tokens) & seen(query, key))


def equal_blocks(q, k, v, layout, device):
    """Cut the clip from its beginning, as if the first block were like the others."""
    return _masked(q, k, v, layout._replace(first=0))


def window_ignored(q, k, v, layout, device):
    return _masked(q, k, v, layout._replace(window=0))


def window_of_frame(q, k, v, layout, device):
    """Count the window from the query's own frame, not from the end of its block."""
    seen = block_causal(layout._replace(window=0))

    def near(query, key):
        frame = key // layout.tokens
        return seen(query, key) & ((frame > query // layout.tokens - layout.window) | (frame < layout.sink))

    return rounded(q, k, v, near)


def sink_ignored(q, k, v, layout, device):
    return _masked(q, k, v, layout._replace(sink=0))


def sees_itself_clean(q, k, v, layout, device):
    """Let a noisy block see its own frames clean: it would only have to copy them."""
    clip, seen = layout.frames * layout.tokens, block_causal(layout)
    return rounded(q, k, v, lambda query, key: seen(query, key) | ((query >= clip) & seen(query % clip, key)))


def heads_for_tokens(q, k, v, layout, device):
    """Forget to transpose: the heads of a token attend to one another."""
    return F.scaled_dot_product_attention(q, k, v)


def _masked(q, k, v, layout):
    return rounded(q, k, v, block_causal(layout))


def some_later_in_block(layout, **_):
    return any(end - begin > 1 for begin, end, _ in segments(layout))


def some_later_block(layout, **_):
    return len(segments(layout)) > 1


def no_padding(layout, **_):
    return length(layout) > 0 and length(layout) % PADDED_TO == 0


def some_padding(layout, **_):
    return length(layout) % PADDED_TO > 0


def makes_a_difference(**fields):
    """Return a condition: that the layout with other fields is another mask."""

    def valid(layout, **_):
        return segments(layout) != segments(layout._replace(**fields))

    return valid


def window_passes_in_block(layout, **_):
    return layout.block > 1 and makes_a_difference(window=0)(layout)


def teacher_forced(layout, **_):
    return layout.forced and layout.frames > 0


def several_heads(q, **_):
    return q.shape[1] > 1


IMPOSTORS = {
    "token_causal": Variant(token_causal, valid=some_later_in_block),
    "unmasked": Variant(unmasked, valid=some_later_block),
    "minus_pad": Variant(minus_pad, valid=no_padding),
    "padding_seen": Variant(padding_seen, valid=some_padding),
    "padding_unwritten": Variant(padding_unwritten, valid=some_padding),
    "equal_blocks": Variant(equal_blocks, valid=makes_a_difference(first=0)),
    "window_ignored": Variant(window_ignored, valid=makes_a_difference(window=0)),
    "window_of_frame": Variant(window_of_frame, valid=window_passes_in_block),
    "sink_ignored": Variant(sink_ignored, valid=makes_a_difference(sink=0)),
    "sees_itself_clean": Variant(sees_itself_clean, valid=teacher_forced),
    "heads_for_tokens": Variant(heads_for_tokens, valid=several_heads),
}
