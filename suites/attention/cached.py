"""Attention of the newest frames to a cache of keys and values: what a causal video model computes, block after block.

All that the cache holds is past or is the block itself, so nothing is masked: the flag `causal` would be wrong. What differs
is the kernel, and `scaled_dot_product_attention` takes another one on every device and in every release; here each has
its name. Attention of whole clips to themselves, for which the figures of FlashAttention 3 are published, is the same call.

The contract: `q` is [batch, queries, heads, dim]; `k` and `v` are [batch, capacity, heads, dim], of which only the first `filled`
tokens are valid: a cache that is not full yet holds anything behind them. The result is like q, and contiguous.
"""

from __future__ import annotations

import attention_forms as forms
import torch
import torch.nn.functional as F
from attention_blocks import Segment
from attention_exact import attention, rounded
from attention_triton import attend_intervals, tables, triton_valid
from torch.nn.attention import SDPBackend

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant


def inputs(make, queries, filled, heads, dim, batch=1, capacity=None, dtype="bfloat16"):
    held = (batch, capacity or filled, heads, dim)
    return {
        "q": make.normal(batch, queries, heads, dim, dtype=dtype),
        "k": make.normal(*held, dtype=dtype),
        "v": make.normal(*held, dtype=dtype),
        "filled": filled,
        "queries": queries,
        "device": make.device,
    }


def cost(queries, filled, heads, dim, batch=1, capacity=None, dtype="bfloat16"):
    elements = 2 * batch * (queries + filled) * heads * dim
    flops = 4.0 * batch * queries * filled * heads * dim
    return Cost(flops=flops, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def sdpa(q, k, v, filled, queries, device):
    """Attend as `scaled_dot_product_attention` does by itself on most GPUs: by FlashAttention 2, for half precision.

    For float32 on a GPU it takes the memory-efficient kernel, and for what neither takes the math one.
    """
    k, v = k[:, :filled], v[:, :filled]
    return forms.sdpa(q, k, v, forms.backend_without_mask(q))


def math(q, k, v, filled, queries, device):
    return forms.sdpa(q, k[:, :filled], v[:, :filled], SDPBackend.MATH)


def efficient(q, k, v, filled, queries, device):
    return forms.sdpa(q, k[:, :filled], v[:, :filled], SDPBackend.EFFICIENT_ATTENTION)


def cudnn(q, k, v, filled, queries, device):
    return forms.sdpa(q, k[:, :filled], v[:, :filled], SDPBackend.CUDNN_ATTENTION)


def flash3(q, k, v, filled, queries, device):
    """FlashAttention 3, where its package is installed."""
    return forms.flash3(q, k[:, :filled], v[:, :filled]).contiguous()


def triton(q, k, v, filled, queries, device, tiles):
    """The kernel of `block_causal.py`: all tiles of queries see one interval of keys."""
    return attend_intervals(q, k, v, tiles)


def triton_tiles(filled, queries, device):
    segments = (Segment(0, queries, ((0, filled),)),) if queries else ()
    return {"tiles": tables(segments, device)}


def exact(q, k, v, filled, queries, device):
    return attention(q, k[:, :filled], v[:, :filled])


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def causal_from_the_end(q, k, v, filled, queries, device):
    """FlashAttention's `causal=True`: the last query sees all, and each one before it a key less."""
    return rounded(q, k[:, :filled], v[:, :filled], lambda query, key: key <= query + filled - queries)


def causal_from_the_start(q, k, v, filled, queries, device):
    """The `is_causal=True` of torch: the first query sees the first key, and each one behind it a key more."""
    return rounded(q, k[:, :filled], v[:, :filled], lambda query, key: key <= query)


def unfilled_seen(q, k, v, filled, queries, device):
    """Take the whole cache, which is not full."""
    return rounded(q, k, v)


def block_alone(q, k, v, filled, queries, device):
    """Forget the cache."""
    return rounded(q, k[:, filled - queries : filled], v[:, filled - queries : filled])


def newest_dropped(q, k, v, filled, queries, device):
    """Read the cache before the block's own keys are counted."""
    return rounded(q, k[:, : filled - queries], v[:, : filled - queries])


def unscaled(q, k, v, filled, queries, device):
    return rounded(q * q.shape[-1] ** 0.5, k[:, :filled], v[:, :filled])


def scaled_by_heads(q, k, v, filled, queries, device):
    """Scale by the number of heads instead of their dimension."""
    return rounded(q * (q.shape[-1] / q.shape[2]) ** 0.5, k[:, :filled], v[:, :filled])


def heads_as_tokens(q, k, v, filled, queries, device):
    """Read [batch, tokens, heads, dim] as [batch, heads, tokens, dim] without transposing."""
    q, k, v = (x.reshape(x.shape[0], x.shape[2], x.shape[1], x.shape[3]) for x in (q, k[:, :filled], v[:, :filled]))
    return F.scaled_dot_product_attention(q, k, v).reshape(q.shape[0], q.shape[2], q.shape[1], q.shape[3])


def several_queries(q, **_):
    return q.shape[1] > 1


def several_keys(q, filled, **_):
    return q.shape[1] > 0 and filled > q.shape[1]


def some_unfilled(q, k, filled, **_):
    return q.shape[1] > 0 and filled < k.shape[1]


def several_heads(q, filled, **_):
    return q.shape[1] > 0 and q.shape[2] > 1 and filled > 1


def some_choice(q, filled, **_):
    return q.shape[1] > 0 and filled > 1


def heads_are_not_features(q, filled, **_):
    return q.shape[2] != q.shape[3] and some_choice(q, filled)


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(queries=12, filled=40, heads=2, dim=16, dtype="float16")

EDGE = [
    dict(TINY, dtype="float64"),
    dict(TINY, batch=2, dtype="float32"),
    dict(TINY, queries=0),
    dict(TINY, queries=1),
    dict(TINY, queries=1, filled=1),
    dict(TINY, filled=12),  # the first block: the cache holds nothing else
    dict(TINY, capacity=64),  # not full yet
    dict(TINY, filled=40, capacity=41),
    dict(TINY, filled=128),
    dict(TINY, queries=140, filled=300, heads=1, dtype="bfloat16"),  # more than a tile, of neither a multiple
    dict(TINY, heads=12, dim=64, dtype="bfloat16"),
    dict(TINY, dim=24),
    dict(TINY, dim=256, heads=1, dtype="bfloat16"),
]

SMOKE = [
    dict(queries=24, filled=64, heads=2, dim=16, dtype="bfloat16"),
    dict(queries=24, filled=48, capacity=96, heads=2, dim=32, dtype="float32"),
]

# Three frames of 352 x 640 pixels are 2640 tokens, three of 480 x 832 are 4680, three of 720 x 1280 are 10,800.
SMALL = dict(heads=12, dim=128, dtype="bfloat16")

REAL = [
    dict(SMALL, queries=2640, filled=2640, capacity=13200),
    dict(SMALL, queries=2640, filled=5280),
    dict(SMALL, queries=2640, filled=7920, capacity=13200),
    dict(SMALL, queries=880, filled=5280),
    dict(SMALL, queries=2640, filled=5280, dtype="float16"),
]

HEADLINE = [
    dict(SMALL, queries=2640, filled=13200),
    dict(SMALL, queries=4680, filled=32760),
    dict(queries=10800, filled=75600, heads=40, dim=128, dtype="bfloat16"),
    # Whole clips, at the sizes for which figures of FlashAttention 3 on an H200 are published.
    *(dict(queries=n, filled=n, heads=24, dim=128, dtype="bfloat16") for n in (4096, 8308, 16384)),
]

cached_attention = Operator(
    "cached_attention",
    baseline=sdpa,
    variants={
        "math": Variant(math, valid=forms.math_valid, kind="library"),
        "efficient": Variant(efficient, valid=forms.efficient_valid, needs="cuda", kind="library"),
        "cudnn": Variant(cudnn, valid=forms.cudnn_valid, needs="cuda", kind="library"),
        "flash3": Variant(flash3, valid=forms.flash3_valid, needs="sm_90"),
        "triton": Variant(triton, prepare=triton_tiles, valid=triton_valid, needs="triton"),
    },
    impostors={
        "causal_from_the_end": Variant(causal_from_the_end, valid=several_queries),
        "causal_from_the_start": Variant(causal_from_the_start, valid=some_choice),
        "unfilled_seen": Variant(unfilled_seen, valid=some_unfilled),
        "block_alone": Variant(block_alone, valid=several_keys),
        "newest_dropped": Variant(newest_dropped, valid=several_keys),
        "unscaled": Variant(unscaled, valid=some_choice),
        "scaled_by_heads": Variant(scaled_by_heads, valid=heads_are_not_features),
        "heads_as_tokens": Variant(heads_as_tokens, valid=several_heads),
    },
    inputs=inputs,
    oracle=exact,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    constants=["filled", "queries", "device"],
    tolerance=REASSOCIATED,
    cost=cost,
    source="Self-Forcing and Matrix-Game-2 causal_model.py; vllm-omni #1923",
    claims=[
        Claim(
            latency_ms=latency_ms,
            implementation="flash3",
            device="NVIDIA H200",
            source="vllm-omni #1923",
            cases=[dict(queries=tokens, filled=tokens, heads=24, dim=128, dtype="bfloat16")],
            shape="torch 2.10; beside the SDPA of then",
        )
        for tokens, latency_ms in ((4096, (0.58989, 0.29104)), (8308, (2.368, 1.193)), (16384, (9.288, 4.899)))
    ],
)
