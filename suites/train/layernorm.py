"""Layer norm in training: mean and variance of a row, a weight and a bias that learn."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_train_norm import layer_norm
from train_common import cost_of, size_of, spoilt, wide
from train_norms import EDGE, HEADLINE, REAL, SMOKE, fits, several

from pairbench import REASSOCIATED, Operator, Tolerance, Variant

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


def few(x, **_):
    """Return whether one token is more of the bias's gradient than rounding is."""
    return several(x) and len(x) <= 64


def half_bias(x, weight, bias, eps):
    return by_hand(x, weight, spoilt(bias, lambda gradient: gradient / 2), eps)


train_layernorm = Operator(
    "train_layernorm",
    baseline=by_hand,
    variants={"builtin": Variant(builtin, kind="library"), "triton": Variant(layer_norm, valid=fits, needs="triton")},
    inputs=inputs,
    cases={
        "edge": [*EDGE, dict(tokens=6, hidden=64, dtype="float32", offset=4.0)],
        "smoke": SMOKE,
        "real": REAL,
        "headline": HEADLINE,
    },
    gradients=("x", "weight", "bias"),
    impostors={
        "constant_statistics": Variant(constant_statistics, valid=several),
        "constant_mean": Variant(constant_mean, valid=several),
        "without_last_token": Variant(without_last_token, valid=few),
        "half_bias": Variant(half_bias, valid=several),
        "rms": Variant(rms, valid=several),
    },
    tolerance=REASSOCIATED,
    # On a CPU PyTorch's own adds up the gradient of the bias in bfloat16.
    gradient_tolerance={**REASSOCIATED, "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=4e-2)},
    cost=cost,
    source="linkedin/Liger-Kernel layer_norm, triton tutorial 05-layer-norm",
)
