"""Layer norm in training: mean and variance of a row, a weight and a bias that learn."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_train_norm import LONGEST, layer_norm
from train_common import (
    LLAMA_8B,
    LLAMA_70B,
    QWEN_7B,
    QWEN_32B,
    computes_in_float32,
    cost_of,
    of,
    size_of,
    spoilt,
    wide,
)

from pairbench import REASSOCIATED, Operator, Tolerance, Variant, grid

EPS = 1e-5


def inputs(make, tokens, hidden, dtype, offset=0.0):
    return {
        "x": make.normal(tokens, hidden, dtype=dtype, mean=offset),
        "weight": make.normal(hidden, dtype=dtype, mean=1.0, scale=0.2),
        "bias": make.normal(hidden, dtype=dtype, scale=0.2),
        "eps": EPS,
    }


def cost(tokens, hidden, dtype, direction, offset=0.0):
    values, size = tokens * hidden, size_of(dtype)
    return cost_of(
        direction,
        flops=7 * values,
        backward_flops=12 * values,
        inputs=(values + 2 * hidden) * size,
        outputs=values * size,
        gradients=(values + 2 * hidden) * size,
    )


def by_hand(x, weight, bias, eps):
    """Widen, centre, norm, weigh, shift and narrow, one kernel after the other."""
    values = wide(x)
    centred = values - values.mean(-1, keepdim=True)
    normed = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * wide(weight) + wide(bias)).to(x.dtype)


def builtin(x, weight, bias, eps):
    """PyTorch's own."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def fits(x, **_):
    if x.shape[-1] > LONGEST:
        return f"rows of {x.shape[-1]} values; registers hold {LONGEST}"
    return computes_in_float32(x)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def constant_statistics(x, weight, bias, eps):
    """Take mean and variance for constants in backward."""
    values = wide(x)
    mean = values.mean(-1, keepdim=True).detach()
    factor = torch.rsqrt((values - mean).pow(2).mean(-1, keepdim=True) + eps).detach()
    return ((values - mean) * factor * wide(weight) + wide(bias)).to(x.dtype)


def constant_mean(x, weight, bias, eps):
    """Take the mean alone for a constant: a term of the gradient is missing."""
    values = wide(x)
    centred = values - values.mean(-1, keepdim=True).detach()
    normed = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * wide(weight) + wide(bias)).to(x.dtype)


def without_last_token(x, weight, bias, eps):
    """Leave the last token out of the bias's gradient, as a grid that is one program short does."""
    head, tail = by_hand(x[:-1], weight, bias, eps), by_hand(x[-1:], weight, bias.detach(), eps)
    return torch.cat([head, tail])


def rms(x, weight, bias, eps):
    """Leave out the mean."""
    return F.rms_norm(x, weight.shape, weight, eps) + bias


def half_bias(x, weight, bias, eps):
    return by_hand(x, weight, spoilt(bias, lambda gradient: gradient / 2), eps)


def several(x, **_):
    return min(x.shape) > 2


# -- cases ------------------------------------------------------------------------------------------------------------

EDGE = [
    dict(tokens=3, hidden=32, dtype="float64"),
    dict(tokens=1, hidden=48, dtype="float32"),
    dict(tokens=5, hidden=33, dtype="bfloat16"),  # no multiple of a vector
    dict(tokens=4, hidden=1536, dtype="float16"),
    dict(tokens=6, hidden=64, dtype="float32", offset=4.0),
    dict(tokens=0, hidden=32, dtype="float32"),
]
SMOKE = grid(tokens=[12], hidden=[64], dtype=["float32", "bfloat16"])
REAL = [
    dict(tokens=4096, dtype="bfloat16", **of(LLAMA_8B, "hidden")),
    dict(tokens=8192, dtype="bfloat16", **of(QWEN_7B, "hidden")),
    dict(tokens=8192, dtype="bfloat16", **of(QWEN_32B, "hidden")),
]
HEADLINE = [dict(tokens=16384, dtype="bfloat16", **of(LLAMA_70B, "hidden"))]

train_layernorm = Operator(
    "train_layernorm",
    baseline=by_hand,
    variants={"builtin": builtin, "triton": Variant(layer_norm, valid=fits, needs="triton")},
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("x", "weight", "bias"),
    impostors={
        "constant_statistics": Variant(constant_statistics, valid=several),
        "constant_mean": Variant(constant_mean, valid=several),
        "without_last_token": Variant(without_last_token, valid=several),
        "half_bias": Variant(half_bias, valid=several),
        "rms": Variant(rms, valid=several),
    },
    tolerance=REASSOCIATED,
    # On a CPU PyTorch's own adds up the gradient of the bias in bfloat16.
    gradient_tolerance={**REASSOCIATED, "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=4e-2)},
    cost=cost,
    source="linkedin/Liger-Kernel layer_norm, triton tutorial 05-layer-norm",
)
