"""Gated activations in training: SwiGLU, silu(gate) * up, in the feed-forward of Llama and Qwen; GEGLU, with the tanh form of GELU, in that of Gemma.

By hand it is two kernels forward and three backward, and autograd keeps the gate, its activation and the other half. Computed again in backward, the
activation need not be kept: a third less memory. Both are of the sizes of Llama and Qwen here.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from kernels_train_gate import gelu_gated, silu_gated
from train_common import LLAMA_8B, LLAMA_70B, QWEN_05B, QWEN_32B, computes_in_float32, cost_of, of, size_of, spoilt

from pairbench import REASSOCIATED, Operator, Variant, grid


def inputs(make, tokens, intermediate, dtype, scale=1.0):
    return {
        "gate": make.normal(tokens, intermediate, dtype=dtype, scale=scale),
        "up": make.normal(tokens, intermediate, dtype=dtype),
    }


def cost(tokens, intermediate, dtype, direction, scale=1.0):
    values, size = tokens * intermediate, size_of(dtype)
    return cost_of(
        direction,
        flops=5 * values,
        backward_flops=11 * values,
        inputs=2 * values * size,
        outputs=values * size,
        gradients=2 * values * size,
    )


def silu(gate):
    return F.silu(gate)


def gelu(gate):
    return F.gelu(gate, approximate="tanh")


def swiglu(gate, up):
    """Activate, multiply: as models write it."""
    return silu(gate) * up


def geglu(gate, up):
    """Activate, multiply: as models write it."""
    return gelu(gate) * up


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, activated, activated_backward):
        ctx.save_for_backward(gate, up)
        ctx.activated, ctx.activated_backward = activated, activated_backward
        return activated(gate) * up

    @staticmethod
    def backward(ctx, gradient):
        gate, up = ctx.saved_tensors
        return ctx.activated_backward(gradient * up, gate), gradient * ctx.activated(gate), None, None


def swiglu_recomputed(gate, up):
    """The same kernels, the activation computed again in backward instead of kept."""
    return _Recomputed.apply(gate, up, silu, torch.ops.aten.silu_backward)


def geglu_recomputed(gate, up):
    """The same kernels, the activation computed again in backward instead of kept."""
    return _Recomputed.apply(gate, up, gelu, functools.partial(torch.ops.aten.gelu_backward, approximate="tanh"))


def fits(gate, **_):
    return computes_in_float32(gate)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def swapped(gate, up, activated):
    """Take the halves for one another."""
    return activated(up) * gate


def constant_gate(gate, up, activated):
    """Take the activation's slope for its value: what a gate that is not differentiated through gives."""
    return gate * (activated(gate) / gate).detach() * up


def of_the_gate_alone(gate, up, activated):
    """Forget the other half in the gate's gradient."""
    return activated(gate) * up.detach() + spoilt(up, lambda gradient: 0 * gradient) * 0


def another_slope(gate, up, activated):
    """Differentiate another activation: a sigmoid's gate."""
    other = torch.sigmoid(gate)
    return (activated(gate).detach() + other - other.detach()) * up


def several(gate, **_):
    return gate.numel() > 8


# -- cases ------------------------------------------------------------------------------------------------------------

EDGE = [
    dict(tokens=3, intermediate=32, dtype="float64"),
    dict(tokens=1, intermediate=1, dtype="float32"),
    dict(tokens=5, intermediate=333, dtype="bfloat16"),  # more than a program takes, and no multiple
    dict(tokens=4, intermediate=64, dtype="float16"),
    dict(tokens=4, intermediate=64, dtype="float32", scale=20.0),  # where the exponential is 0 or over
    dict(tokens=0, intermediate=32, dtype="float32"),
]
SMOKE = grid(tokens=[12], intermediate=[64], dtype=["float32", "bfloat16"])
REAL = [
    dict(tokens=4096, dtype="bfloat16", **of(LLAMA_8B, "intermediate")),
    dict(tokens=8192, dtype="bfloat16", **of(QWEN_05B, "intermediate")),
    dict(tokens=4096, dtype="bfloat16", **of(QWEN_32B, "intermediate")),
]
HEADLINE = [dict(tokens=8192, dtype="bfloat16", **of(LLAMA_70B, "intermediate"))]


SHARED = dict(
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("gate", "up"),
    tolerance=REASSOCIATED,
    cost=cost,
)


def impostors(activated):
    wrong = (swapped, constant_gate, of_the_gate_alone, another_slope)
    return {one.__name__: Variant(functools.partial(one, activated=activated), valid=several) for one in wrong}


train_swiglu = Operator(
    "train_swiglu",
    baseline=swiglu,
    variants={"recomputed": swiglu_recomputed, "triton": Variant(silu_gated, valid=fits, needs="triton")},
    impostors=impostors(silu),
    source="linkedin/Liger-Kernel swiglu, huggingface/transformers LlamaMLP",
    **SHARED,
)
train_geglu = Operator(
    "train_geglu",
    baseline=geglu,
    variants={"recomputed": geglu_recomputed, "triton": Variant(gelu_gated, valid=fits, needs="triton")},
    impostors=impostors(gelu),
    source="linkedin/Liger-Kernel geglu, huggingface/transformers GemmaMLP",
    **SHARED,
)
