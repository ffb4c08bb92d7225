"""RMS norm in training: a row divided by the root of its mean square, times a weight that learns.

The plain form is Llama's: widened to float32, normed, rounded, weighed. What autograd keeps of it for backward is the row in float32, more than once.
PyTorch has it as one function; ours keeps the row as it came and one number of it. The gradient of the weight is a sum over all tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_train_norm import rms_norm
from train_common import cost_of, size_of, spoilt, wide
from train_norms import EDGE, HEADLINE, REAL, SMOKE, fits, several

from pairbench import REASSOCIATED, Claim, Operator, Variant

EPS = 1e-6


def inputs(make, tokens, hidden, dtype):
    return {
        "x": make.normal(tokens, hidden, dtype=dtype),
        "weight": make.normal(hidden, dtype=dtype, mean=1.0, scale=0.2),
        "eps": EPS,
    }


def cost(tokens, hidden, dtype, direction):
    values, size = tokens * hidden, size_of(dtype)
    return cost_of(
        direction,
        flops=4 * values,
        backward_flops=9 * values,
        inputs=(values + hidden) * size,
        outputs=values * size,
        gradients=(values + hidden) * size,
    )


def by_hand(x, weight, eps):
    """Widen, square, mean, root, narrow and weigh, one kernel after the other, as Llama does."""
    values = wide(x)
    normed = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def builtin(x, weight, eps):
    """PyTorch's own."""
    return F.rms_norm(x, weight.shape, weight, eps)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def constant_factor(x, weight, eps):
    """Take the root mean square for a constant in backward."""
    values = wide(x)
    factor = torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps).detach()
    return (values * factor).to(x.dtype) * weight


def mean_over_tokens(x, weight, eps):
    """Take the mean over the tokens for the weight's gradient, instead of the sum."""
    return by_hand(x, spoilt(weight, lambda gradient: gradient / len(x)), eps)


def unweighted_gradient(x, weight, eps):
    """Leave the weight out of the gradient of x: right forward, and right for the weight."""
    normed = by_hand(x, torch.ones_like(weight), eps)
    straight = normed + (normed * (weight - 1)).detach()
    return straight + normed.detach() * (weight - weight.detach())


def sum_of_squares(x, weight, eps):
    """Forget to divide by the row's size."""
    values = wide(x)
    return (values * torch.rsqrt(values.pow(2).sum(-1, keepdim=True) + eps)).to(x.dtype) * weight


train_rmsnorm = Operator(
    "train_rmsnorm",
    baseline=by_hand,
    variants={"builtin": Variant(builtin, kind="library"), "triton": Variant(rms_norm, valid=fits, needs="triton")},
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("x", "weight"),
    impostors={
        "constant_factor": Variant(constant_factor, valid=several),
        "mean_over_tokens": Variant(mean_over_tokens, valid=several),
        "unweighted_gradient": Variant(unweighted_gradient, valid=several),
        "sum_of_squares": Variant(sum_of_squares, valid=several),
    },
    tolerance=REASSOCIATED,
    cost=cost,
    source="linkedin/Liger-Kernel rms_norm, huggingface/transformers LlamaRMSNorm",
    claims=[
        Claim(
            speedup=7.0,
            device="NVIDIA A100",
            source="Liger-Kernel, Low-Level APIs: about 7x, with a third of the memory",
            cases=[dict(HEADLINE[0], direction="fwd_bwd")],
            shape="rows of up to 16384",
        ),
    ],
)
