"""A residual addition and the RMS norm behind it in training: how each half of a transformer block begins.

Two outputs: the norm, and the stream itself, which the next half adds to. So the stream has a gradient of its own, which comes to that of the
norm; both summands have the same gradient. The norm is of the rounded stream, as in the plain form.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_train_norm import add_rms_norm
from train_common import cost_of, size_of, wide
from train_norms import EDGE, HEADLINE, REAL, SMOKE, fits, several

from pairbench import REASSOCIATED, Operator, Variant

EPS = 1e-6


def inputs(make, tokens, hidden, dtype):
    return {
        "x": make.normal(tokens, hidden, dtype=dtype),
        "residual": make.normal(tokens, hidden, dtype=dtype, scale=2.0),
        "weight": make.normal(hidden, dtype=dtype, mean=1.0, scale=0.2),
        "eps": EPS,
    }


def cost(tokens, hidden, dtype, direction):
    """Both summands have one gradient, which is written once; backward reads the stream, not its summands."""
    values, size = tokens * hidden, size_of(dtype)
    return cost_of(
        direction,
        flops=5 * values,
        backward_flops=10 * values,
        inputs=((1 if direction == "bwd" else 2) * values + hidden) * size,
        outputs=2 * values * size,
        gradients=(values + hidden) * size,
    )


def by_hand(x, residual, weight, eps):
    """Add, then widen, norm, narrow and weigh, one kernel after the other."""
    stream = x + residual
    return _norm(stream, weight, eps), stream


def _norm(stream, weight, eps):
    values = wide(stream)
    normed = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps)
    return normed.to(stream.dtype) * weight


def builtin(x, residual, weight, eps):
    """The sum, and PyTorch's norm of it."""
    stream = x + residual
    return F.rms_norm(stream, weight.shape, weight, eps), stream


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def without_stream_gradient(x, residual, weight, eps):
    """Forget that the stream goes on: its own gradient is lost."""
    stream = x + residual
    return _norm(stream, weight, eps), stream.detach()


def residual_is_constant(x, residual, weight, eps):
    """Send the norm's gradient to x alone; the residual gets only the stream's."""
    stream = x + residual
    return _norm(x + residual.detach(), weight, eps), stream


def constant_factor(x, residual, weight, eps):
    stream = x + residual
    values = wide(stream)
    factor = torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps).detach()
    return (values * factor).to(x.dtype) * weight, stream


def norm_of_x(x, residual, weight, eps):
    """Norm what came in, not the sum."""
    return _norm(x, weight, eps), x + residual


train_add_rmsnorm = Operator(
    "train_add_rmsnorm",
    baseline=by_hand,
    variants={"builtin": Variant(builtin, kind="library"), "triton": Variant(add_rms_norm, valid=fits, needs="triton")},
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("x", "residual", "weight"),
    impostors={
        "without_stream_gradient": Variant(without_stream_gradient, valid=several),
        "residual_is_constant": Variant(residual_is_constant, valid=several),
        "constant_factor": Variant(constant_factor, valid=several),
        "norm_of_x": Variant(norm_of_x, valid=several),
    },
    tolerance=REASSOCIATED,
    cost=cost,
    source="linkedin/Liger-Kernel fused_add_rms_norm, vllm fused_add_rms_norm",
)
