"""Block-causal attention of video models that generate a clip a few frames at a time, over a whole clip at once.

A token sees its own block of frames and the blocks before it: that is how such a model is trained, and how it reads a clip
that is there already. The models publish it as FlexAttention with a mask, over sequences padded to multiples of 128. In
plain torch it is a dense mask and `scaled_dot_product_attention`, which multiplies all that the mask then hides. Block by
block no mask is needed: what a block sees is an interval of keys, or two.

The contract: `q`, `k` and `v` are [batch, tokens, heads, dim], of any strides; the result is contiguous in that order. What a
token sees is said in `attention_blocks.Layout`. Masks are made beforehand, as a model makes its own once: what it costs to make
one for every call is the question of `block_mask.py`. One block at a time, from a cache: see `cached.py`.
"""

from __future__ import annotations

import attention_exact
import attention_forms as forms
import torch
from attention_blocks import PADDED_TO, Layout, dense_mask, length, limits, mask_function, pairs, segments
from attention_impostors import IMPOSTORS
from attention_triton import attend_intervals, tables, triton_valid
from torch.nn.attention import SDPBackend

from pairbench import REASSOCIATED_BY_ROW, Cost, Operator, Variant


def inputs(
    make, frames, tokens, block, heads, dim, batch=1, first=0, window=0, sink=0, forced=False, packed=False,
    dtype="bfloat16",
):  # fmt: skip
    layout = Layout(frames, tokens, block, first, window, sink, forced)
    shape = (batch, length(layout), heads, dim)
    if packed:  # as one projection leaves them
        q, k, v = make.normal(batch, length(layout), 3, heads, dim, dtype=dtype).unbind(2)
    else:
        q, k, v = (make.normal(*shape, dtype=dtype) for _ in range(3))
    return {"q": q, "k": k, "v": v, "layout": layout, "device": make.device}


def cost(frames, tokens, block, heads, dim, batch=1, first=0, window=0, sink=0, forced=False, dtype="bfloat16", **_):
    layout = Layout(frames, tokens, block, first, window, sink, forced)
    elements = 4 * batch * length(layout) * heads * dim
    flops = 4.0 * batch * pairs(layout) * heads * dim
    return Cost(flops=flops, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def dense(q, k, v, layout, device, mask):
    """Hide what is not seen by a dense mask.

    The kernel is the memory-efficient one on a GPU, which is what torch takes there for a mask, and the math one where that does
    not serve: on a CPU and for float64.
    """
    return forms.sdpa(q, k, v, forms.backend_with_mask(q), mask)


def dense_prepared(layout, device):
    return {"mask": dense_mask(limits(layout, device))}


def flex(q, k, v, layout, device, block_mask):
    """FlexAttention as published: three copies with zeros behind, and what they add left out of the result."""
    tokens = q.shape[1]
    q, k, v = (_padded(x, -tokens % PADDED_TO) for x in (q, k, v))
    return forms.flex(q, k, v, block_mask)[:, :tokens].contiguous()


def flex_padded_mask(layout, device):
    return _block_mask(layout, device, length(layout) + -length(layout) % PADDED_TO)


def flex_unpadded(q, k, v, layout, device, block_mask):
    """FlexAttention on the clip as it is: newer releases take any length."""
    return forms.flex(q, k, v, block_mask).contiguous()


def flex_unpadded_mask(layout, device):
    return _block_mask(layout, device, length(layout))


def _padded(x, rows):
    return torch.cat([x, x.new_zeros(x.shape[0], rows, *x.shape[2:])], dim=1)


def _block_mask(layout, device, rows):
    from torch.nn.attention.flex_attention import create_block_mask

    if not rows:
        return {"block_mask": None}
    visible = mask_function(limits(layout, device, rows))
    return {"block_mask": create_block_mask(visible, None, None, rows, rows, device=device)}


def per_block_math(q, k, v, layout, device, seen):
    return forms.per_block(q, k, v, seen, lambda *qkv: forms.sdpa(*qkv, SDPBackend.MATH))


def per_block_efficient(q, k, v, layout, device, seen):
    return forms.per_block(q, k, v, seen, lambda *qkv: forms.sdpa(*qkv, SDPBackend.EFFICIENT_ATTENTION))


def per_block_flash(q, k, v, layout, device, seen):
    return forms.per_block(q, k, v, seen, lambda *qkv: forms.sdpa(*qkv, SDPBackend.FLASH_ATTENTION))


def per_block_cudnn(q, k, v, layout, device, seen):
    return forms.per_block(q, k, v, seen, lambda *qkv: forms.sdpa(*qkv, SDPBackend.CUDNN_ATTENTION))


def per_block_flash3(q, k, v, layout, device, seen):
    return forms.per_block(q, k, v, seen, forms.flash3)


def block_segments(layout, device):
    return {"seen": segments(layout)}


def triton(q, k, v, layout, device, tiles):
    """One kernel that walks the intervals of keys that each tile of queries sees."""
    return attend_intervals(q, k, v, tiles)


def triton_tiles(layout, device):
    return {"tiles": tables(segments(layout), device)}


def exact(q, k, v, layout, device):
    return attention_exact.attention(q, k, v, attention_exact.block_causal(layout))


# -- cases ------------------------------------------------------------------------------------------------------------

# Half precision where the mask is the point: a float32 case takes Triton's interpreter several times as long.
TINY = dict(frames=5, tokens=8, block=2, heads=1, dim=16, dtype="float16")

EDGE = [
    dict(TINY, dim=24, dtype="float64"),
    dict(TINY, batch=2, heads=2, packed=True, dtype="float32"),
    dict(TINY, frames=0),
    dict(TINY, frames=1, tokens=1),
    dict(TINY, tokens=1, block=1),
    dict(TINY, frames=2, block=3),  # less than a block
    dict(TINY, frames=16),  # 128 tokens: nothing to pad, as with 16 frames of 1560 or 8 of 880
    dict(TINY, frames=8, tokens=32, block=3),  # 256, and a short last block
    dict(TINY, frames=7, block=3, first=1),
    dict(TINY, frames=6, first=4),
    dict(TINY, frames=8, window=3),
    dict(TINY, frames=8, window=2),  # a block sees itself alone
    dict(TINY, frames=8, window=4, sink=1),
    dict(TINY, frames=8, window=4, sink=5),  # the window passes less than what stays
    dict(TINY, frames=7, first=1, window=3, sink=1, block=3, dtype="bfloat16"),
    dict(TINY, frames=5, block=3, forced=True, dtype="bfloat16"),
    dict(TINY, frames=3, heads=12, dim=64, dtype="bfloat16"),
]

SMOKE = [
    dict(frames=4, tokens=8, block=2, heads=2, dim=16, dtype="bfloat16"),
    dict(frames=6, tokens=20, block=3, heads=2, dim=32, window=3, sink=1, dtype="float32"),
]

# The attention of 1.3 billion parameters; frames of 352 x 640 pixels have 880 tokens, those of 480 x 832 have 1560.
SMALL = dict(heads=12, dim=128, dtype="bfloat16")

REAL = [
    dict(SMALL, frames=9, tokens=880, block=3),
    dict(SMALL, frames=8, tokens=880, block=3),  # no padding
    dict(SMALL, frames=10, tokens=880, block=3, first=1),
    dict(SMALL, frames=21, tokens=880, block=3, window=6),
    dict(SMALL, frames=21, tokens=880, block=3, window=6, sink=3),
    dict(SMALL, frames=9, tokens=880, block=3, forced=True),
]

block_causal_attention = Operator(
    "block_causal_attention",
    baseline=Variant(dense, prepare=dense_prepared),
    variants={
        "flex": Variant(flex, prepare=flex_padded_mask, valid=forms.flex_valid),
        "flex_unpadded": Variant(flex_unpadded, prepare=flex_unpadded_mask, valid=forms.flex_valid),
        "per_block_math": Variant(per_block_math, prepare=block_segments, valid=forms.in_blocks(forms.math_valid)),
        "per_block_efficient": Variant(
            per_block_efficient, prepare=block_segments, valid=forms.in_blocks(forms.efficient_valid), needs="cuda"
        ),
        "per_block_flash": Variant(per_block_flash, prepare=block_segments, valid=forms.in_blocks(forms.flash_valid)),
        "per_block_cudnn": Variant(
            per_block_cudnn, prepare=block_segments, valid=forms.in_blocks(forms.cudnn_valid), needs="cuda"
        ),
        "per_block_flash3": Variant(
            per_block_flash3, prepare=block_segments, valid=forms.in_blocks(forms.flash3_valid), needs="sm_90"
        ),
        "triton": Variant(triton, prepare=triton_tiles, valid=triton_valid, needs="triton"),
    },
    impostors=IMPOSTORS,
    inputs=inputs,
    oracle=exact,
    cases={
        "edge": EDGE,
        "smoke": SMOKE,
        "real": REAL,
        "headline": [dict(SMALL, frames=21, tokens=1560, block=3)],
    },
    constants=["layout", "device"],
    tolerance=REASSOCIATED_BY_ROW,
    cost=cost,
    source="Self-Forcing and Matrix-Game-2 causal_model.py; guide to CausalWanModel",
)
