"""Attention without gradients as packages have it: a causal prompt of a language model, and all frames of a video model.

The contract: `q` is [batch, tokens, heads, 128], `k` and `v` are [batch, tokens, kv_heads, 128]; each group of heads of `q` shares a head of `k`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from peers_common import QWEN_3_32B, WAN_21, case, peers
from torch.nn.attention import SDPBackend, sdpa_kernel

from pairbench import REASSOCIATED_BY_ROW, Cost, Operator, Variant

from ..train.train_common import LLAMA_8B, wide


def inputs(make, batch, tokens, heads, kv_heads, causal, dtype, dim=128):
    return {
        "q": make.normal(batch, tokens, heads, dim, dtype=dtype),
        "k": make.normal(batch, tokens, kv_heads, dim, dtype=dtype),
        "v": make.normal(batch, tokens, kv_heads, dim, dtype=dtype),
        "causal": causal,
    }


def cost(batch, tokens, heads, kv_heads, causal, dtype, dim=128):
    elements = 2 * batch * tokens * (heads + kv_heads) * dim
    flops = 4 * batch * tokens**2 * heads * dim // (2 if causal else 1)
    return Cost(flops=float(flops), bytes=float(elements * getattr(torch, dtype).itemsize))


def by_hand(q, k, v, causal):
    """Scores and softmax in float32, head by head, for the scores of all heads take too much memory."""
    shared = q.shape[2] // k.shape[2]
    out = torch.empty_like(q)
    for head in range(q.shape[2]):
        keys, values = k[:, :, head // shared], v[:, :, head // shared]
        scores = wide(q[:, :, head]) @ wide(keys).transpose(1, 2) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores + torch.full_like(scores[0], float("-inf")).triu(1)
        out[:, :, head] = torch.softmax(scores, -1).to(q.dtype) @ values
    return out


def _sdpa(q, k, v, causal, backend):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2).contiguous()


def builtin(q, k, v, causal):
    """PyTorch's own choice of a kernel: FlashAttention 2 in half precision on a GPU."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2).contiguous()


def cudnn(q, k, v, causal):
    return _sdpa(q, k, v, causal, SDPBackend.CUDNN_ATTENTION)


def fa3(q, k, v, causal):
    from fa3_fwd_interface import flash_attn_func

    out = flash_attn_func(q, k, v, causal=causal)
    return out[0] if isinstance(out, tuple) else out


def flash_attn_4(q, k, v, causal):
    from flash_attn.cute import flash_attn_func

    out = flash_attn_func(q, k, v, causal=causal)
    return out[0] if isinstance(out, tuple) else out


def unmasked(q, k, v, causal):
    """Let each token see those behind it."""
    return by_hand(q, k, v, False)


def unscaled(q, k, v, causal):
    """Forget to divide the scores by the root of the head's size."""
    return by_hand(q * math.sqrt(q.shape[-1]), k, v, causal)


def other_groups(q, k, v, causal):
    """Share heads of keys and values in turns instead of in blocks."""
    shared = q.shape[2] // k.shape[2]
    return by_hand(q, k.repeat(1, 1, shared, 1), v.repeat(1, 1, shared, 1), causal)


peer_attention = Operator(
    "peer_attention",
    baseline=by_hand,
    variants={
        "builtin": Variant(builtin, kind="library"),
        "cudnn": Variant(cudnn, kind="library", needs="cuda"),
        **peers({"fa3": fa3, "flash_attn_4": flash_attn_4}),
    },
    inputs=inputs,
    cases={
        "edge": [
            dict(batch=2, tokens=5, heads=4, kv_heads=2, causal=True, dtype="float32", dim=8),
            dict(batch=1, tokens=9, heads=2, kv_heads=2, causal=False, dtype="bfloat16", dim=16),
        ],
        "real": [
            case(LLAMA_8B, 8192, "heads", "kv_heads", batch=1, causal=True),
            case(QWEN_3_32B, 4096, "heads", "kv_heads", batch=2, causal=True),
            case(WAN_21, 9360, "heads", "kv_heads", batch=1, causal=False),
        ],
    },
    impostors={
        "unmasked": Variant(unmasked, valid=lambda causal, **_: causal),
        "unscaled": unscaled,
        "other_groups": Variant(other_groups, valid=lambda q, k, **_: k.shape[2] not in (1, q.shape[2])),
    },
    tolerance=REASSOCIATED_BY_ROW,
    cost=cost,
    source="Dao-AILab/flash-attention",
)
