"""Rotary embedding of queries and keys in training: pairs of values, half a head apart, rotated by an angle that grows with the position.

The plain form is Llama's: two products, a concatenation of the halves and a sum, for queries and again for keys. Backward is the same rotation the
other way, and needs nothing of queries and keys; by hand autograd keeps the cosines and sines, and goes back through the concatenation.
"""

from __future__ import annotations

import torch
from kernels_train_rope import rotated
from train_common import LLAMA_8B, LLAMA_70B, QWEN_7B, QWEN_32B, computes_in_float32, cost_of, of, size_of, spoilt

from pairbench import REASSOCIATED, Operator, Variant, grid


def inputs(make, tokens, heads, kv_heads, dtype, dim=128, theta=500000.0):
    frequencies = theta ** (-torch.arange(0, dim, 2, device=make.device, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(tokens, device=make.device, dtype=torch.float32), frequencies)
    angles = torch.cat([angles, angles], -1)
    return {
        "q": make.normal(tokens, heads, dim, dtype=dtype),
        "k": make.normal(tokens, kv_heads, dim, dtype=dtype),
        "cos": angles.cos().to(getattr(torch, dtype)),
        "sin": angles.sin().to(getattr(torch, dtype)),
    }


def cost(tokens, heads, kv_heads, dtype, direction, dim=128, theta=500000.0):
    """A rotation each way, which needs the angles and what it rotates: backward nothing of queries and keys."""
    values, angles, size = tokens * (heads + kv_heads) * dim, 2 * tokens * dim, size_of(dtype)
    return cost_of(
        direction,
        flops=3 * values,
        backward_flops=3 * values,
        inputs=(angles + (0 if direction == "bwd" else values)) * size,
        outputs=values * size,
        gradients=values * size,
    )


def _turned(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def by_hand(q, k, cos, sin):
    """Products with cosines and with the halves exchanged, as Llama does."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _turned(q) * sin, k * cos + _turned(k) * sin


def by_halves(q, k, cos, sin):
    """Each half by itself, joined once; only the first half of the angles is read."""
    return _halves(q, cos, sin), _halves(k, cos, sin)


def _halves(x, cos, sin):
    half = x.shape[-1] // 2
    c, s = cos[:, None, :half], sin[:, None, :half]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * c - second * s, second * c + first * s], -1)


class _Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin)
        return by_halves(q, k, cos, sin)

    @staticmethod
    def backward(ctx, of_q, of_k):
        cos, sin = ctx.saved_tensors
        return *by_halves(of_q, of_k, cos, -sin), None, None


def rotated_back(q, k, cos, sin):
    """Backward as the rotation by the negative angle."""
    return _Back.apply(q, k, cos, sin)


def fits(q, **_):
    return computes_in_float32(q)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


class _Forward(_Back):
    @staticmethod
    def backward(ctx, of_q, of_k):
        return *by_halves(of_q, of_k, *ctx.saved_tensors), None, None


def forward_again(q, k, cos, sin):
    """Rotate the gradient forward instead of back."""
    return _Forward.apply(q, k, cos, sin)


def without_keys(q, k, cos, sin):
    """Give the keys half of their gradient, as where groups of heads are counted wrongly."""
    return by_hand(q, spoilt(k, lambda gradient: gradient / 2), cos, sin)


def straight_through(q, k, cos, sin):
    """Hand the gradient on as it came."""
    rotated_q, rotated_k = by_hand(q, k, cos, sin)
    return q + (rotated_q - q).detach(), k + (rotated_k - k).detach()


def interleaved(q, k, cos, sin):
    """Rotate neighbours instead of halves."""

    def turn(x):
        half = x.shape[-1] // 2
        c, s = cos[:, None, :half], sin[:, None, :half]
        return torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., ::2] * s], -1).flatten(-2)

    return turn(q), turn(k)


def turns(q, **_):
    return len(q) > 2 and q.shape[-1] > 2


# -- cases ------------------------------------------------------------------------------------------------------------

EDGE = [
    dict(tokens=3, heads=2, kv_heads=1, dim=8, dtype="float64"),
    dict(tokens=1, heads=1, kv_heads=1, dim=8, dtype="float32"),  # nothing turns at the first position
    dict(tokens=5, heads=3, kv_heads=3, dim=12, dtype="bfloat16"),  # no power of two
    dict(tokens=4, heads=2, kv_heads=1, dim=2, dtype="float16"),
    dict(tokens=0, heads=2, kv_heads=1, dim=8, dtype="float32"),
]
SMOKE = grid(tokens=[6], heads=[4], kv_heads=[2], dim=[16], dtype=["float32", "bfloat16"])
REAL = [
    dict(tokens=4096, dtype="bfloat16", **of(LLAMA_8B, "heads", "kv_heads")),
    dict(tokens=8192, dtype="bfloat16", theta=1000000.0, **of(QWEN_7B, "heads", "kv_heads")),
    dict(tokens=8192, dtype="bfloat16", theta=1000000.0, **of(QWEN_32B, "heads", "kv_heads")),
]
HEADLINE = [dict(tokens=16384, dtype="bfloat16", **of(LLAMA_70B, "heads", "kv_heads"))]

train_rope = Operator(
    "train_rope",
    baseline=by_hand,
    variants={
        "by_halves": by_halves,
        "rotated_back": Variant(rotated_back, builds_on="by_halves"),
        "triton": Variant(rotated, valid=fits, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("q", "k"),
    impostors={
        "forward_again": Variant(forward_again, valid=turns),
        "without_keys": Variant(without_keys, valid=turns),
        "straight_through": Variant(straight_through, valid=turns),
        "interleaved": Variant(interleaved, valid=turns),
    },
    tolerance=REASSOCIATED,
    cost=cost,
    source="linkedin/Liger-Kernel rope, huggingface/transformers apply_rotary_pos_emb",
)
