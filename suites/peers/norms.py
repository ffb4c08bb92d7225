"""Norms in training as packages have them: RMS norm, layer norm, RMS norm behind a residual, gated RMS norm, L2 norm of heads, group norm.

Baselines and PyTorch's own functions are those of `suites/train`, and so is `triton`, the catalogue's own kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from peers_common import DEEPSEEK_V3, QWEN_3_32B, WAN_21, case, peers, training

from pairbench import REASSOCIATED, Operator, Tolerance, Variant

from ..train import add_rmsnorm, layernorm, rmsnorm
from ..train.train_common import LLAMA_8B, LLAMA_70B, cost_of, size_of, spoilt, wide
from ..train.train_norms import EDGE, fits, several

REAL = training(
    case(LLAMA_8B, 8192, "hidden"),
    case(LLAMA_70B, 8192, "hidden"),
    case(DEEPSEEK_V3, 4096, "hidden"),
    case(QWEN_3_32B, 4096, "hidden"),
)
EDGE = [one for one in EDGE if one["tokens"]]


# -- RMS norm ---------------------------------------------------------------------------------------------------------


def liger_rms_norm(x, weight, eps):
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    return LigerRMSNormFunction.apply(x, weight, eps)


def flag_gems_rms_norm(x, weight, eps):
    from flag_gems.ops import rms_norm

    return rms_norm(x, weight.shape, weight, eps)


def fla_rms_norm(x, weight, eps):
    from fla.modules.norm.layernorm import rms_norm

    return rms_norm(x, weight, None, eps=eps)


def quack_rms_norm(x, weight, eps):
    from quack import rmsnorm as rms_norm

    return rms_norm(x, weight, eps=eps)


peer_rms_norm = Operator(
    "peer_rms_norm",
    baseline=rmsnorm.by_hand,
    variants={
        "builtin": Variant(rmsnorm.builtin, kind="library"),
        "triton": Variant(rmsnorm.rms_norm, valid=fits, needs="triton"),
        **peers(
            {"liger": liger_rms_norm, "flag_gems": flag_gems_rms_norm, "fla": fla_rms_norm, "quack": quack_rms_norm},
            consumes={"liger": ["output gradient"]},
        ),
    },
    inputs=rmsnorm.inputs,
    cases={"edge": EDGE, "real": REAL},
    gradients=("x", "weight"),
    impostors=rmsnorm.train_rmsnorm.impostors,
    tolerance=REASSOCIATED,
    cost=rmsnorm.cost,
    source="linkedin/Liger-Kernel, FlagOpen/FlagGems, fla-org/flash-linear-attention, Dao-AILab/quack",
)


# -- layer norm -------------------------------------------------------------------------------------------------------


def liger_layer_norm(x, weight, bias, eps):
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return LigerLayerNormFunction.apply(x, weight, bias, eps)


def fla_layer_norm(x, weight, bias, eps):
    from fla.modules.norm.layernorm import layer_norm

    return layer_norm(x, weight, bias, eps=eps)


peer_layer_norm = Operator(
    "peer_layer_norm",
    baseline=layernorm.by_hand,
    variants={
        "builtin": Variant(layernorm.builtin, kind="library"),
        "triton": Variant(layernorm.layer_norm, valid=fits, needs="triton"),
        **peers({"liger": liger_layer_norm, "fla": fla_layer_norm}),
    },
    inputs=layernorm.inputs,
    cases={"edge": EDGE, "real": training(case(WAN_21, 32760, "hidden"), case(LLAMA_8B, 8192, "hidden"))},
    gradients=("x", "weight", "bias"),
    impostors=layernorm.train_layernorm.impostors,
    tolerance=layernorm.train_layernorm.tolerance,
    cost=layernorm.cost,
    source="linkedin/Liger-Kernel, fla-org/flash-linear-attention",
)


# -- a residual, and RMS norm behind it -------------------------------------------------------------------------------


def liger_add_rms_norm(x, residual, weight, eps):
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    return LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps)


def fla_add_rms_norm(x, residual, weight, eps):
    from fla.modules.norm.layernorm import rms_norm

    return rms_norm(x, weight, None, residual=residual, eps=eps, prenorm=True)


def quack_add_rms_norm(x, residual, weight, eps):
    from quack import rmsnorm as rms_norm

    return rms_norm(x, weight, residual=residual, eps=eps, prenorm=True)


peer_add_rms_norm = Operator(
    "peer_add_rms_norm",
    baseline=add_rmsnorm.by_hand,
    variants={
        "builtin": Variant(add_rmsnorm.builtin, kind="library"),
        "triton": Variant(add_rmsnorm.add_rms_norm, valid=fits, needs="triton"),
        **peers({"liger": liger_add_rms_norm, "fla": fla_add_rms_norm, "quack": quack_add_rms_norm}),
    },
    inputs=add_rmsnorm.inputs,
    cases={"edge": EDGE, "real": REAL[:3]},
    gradients=("x", "residual", "weight"),
    impostors=add_rmsnorm.train_add_rmsnorm.impostors,
    tolerance=REASSOCIATED,
    cost=add_rmsnorm.cost,
    source="linkedin/Liger-Kernel, fla-org/flash-linear-attention, Dao-AILab/quack",
)


# -- RMS norm, gated: the end of a linear attention ------------------------------------------------------------------


def gated_inputs(make, tokens, hidden, dtype):
    return {**rmsnorm.inputs(make, tokens, hidden, dtype), "gate": make.normal(tokens, hidden, dtype=dtype)}


def gated_cost(tokens, hidden, dtype, direction):
    values, size = tokens * hidden, size_of(dtype)
    return cost_of(
        direction,
        flops=9 * values,
        backward_flops=20 * values,
        inputs=(2 * values + hidden) * size,
        outputs=values * size,
        gradients=(2 * values + hidden) * size,
    )


def gated_by_hand(x, weight, eps, gate):
    """Norm and weigh, then multiply by the gate's SiLU in float32."""
    values = wide(x)
    normed = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps) * wide(weight)
    return (normed * F.silu(wide(gate))).to(x.dtype)


def gated_builtin(x, weight, eps, gate):
    """PyTorch's norm, activation and product."""
    return F.rms_norm(x, weight.shape, weight, eps) * F.silu(gate)


def fla_gated(x, weight, eps, gate):
    from fla.modules.norm.fused_norm_gate import rms_norm_gated

    return rms_norm_gated(x, gate, weight, None, eps=eps)


def gated_before(x, weight, eps, gate):
    """Multiply by the gate before the norm, as Mamba 2 does."""
    return rmsnorm.by_hand(x * F.silu(gate), weight, eps)


def gate_without_gradient(x, weight, eps, gate):
    """Give the gate half of its gradient."""
    return gated_by_hand(x, weight, eps, spoilt(gate, lambda gradient: gradient / 2))


peer_gated_rms_norm = Operator(
    "peer_gated_rms_norm",
    baseline=gated_by_hand,
    variants={"builtin": Variant(gated_builtin, kind="library"), **peers({"fla": fla_gated})},
    inputs=gated_inputs,
    cases={
        "edge": EDGE,
        # The heads of a gated delta net: 32 of 128 values a token.
        "real": training(dict(tokens=8192 * 32, hidden=128, dtype="bfloat16"), case(LLAMA_8B, 8192, "hidden")),
    },
    gradients=("x", "weight", "gate"),
    impostors={
        "gated_before": Variant(gated_before, valid=several),
        "gate_without_gradient": Variant(gate_without_gradient, valid=several),
    },
    tolerance=REASSOCIATED,
    cost=gated_cost,
    source="fla-org/flash-linear-attention FusedRMSNormGated",
)


# -- L2 norm of heads -------------------------------------------------------------------------------------------------


def l2_inputs(make, tokens, hidden, dtype):
    return {"x": make.normal(tokens, hidden, dtype=dtype), "eps": 1e-6}


def l2_cost(tokens, hidden, dtype, direction):
    values, size = tokens * hidden, size_of(dtype)
    return cost_of(
        direction,
        flops=3 * values,
        backward_flops=6 * values,
        inputs=values * size,
        outputs=values * size,
        gradients=values * size,
    )


def l2_by_hand(x, eps):
    """Divide a row by the root of its sum of squares, in float32."""
    values = wide(x)
    return (values * torch.rsqrt(values.pow(2).sum(-1, keepdim=True) + eps)).to(x.dtype)


def l2_builtin(x, eps):
    """PyTorch's normalize, whose eps is a bound of the norm: the same but for rows near 0."""
    return F.normalize(x, dim=-1, eps=eps)


def fla_l2_norm(x, eps):
    from fla.modules.norm.l2norm import l2norm

    return l2norm(x, eps=eps)


def mean_square(x, eps):
    """Take the mean of the squares for their sum."""
    values = wide(x)
    return (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


peer_l2_norm = Operator(
    "peer_l2_norm",
    baseline=l2_by_hand,
    variants={"builtin": Variant(l2_builtin, kind="library"), **peers({"fla": fla_l2_norm})},
    inputs=l2_inputs,
    cases={
        "edge": [one for one in EDGE if one["dtype"] != "float64"],  # what the two kinds of eps do is seen in float64
        "real": training(dict(tokens=8192 * 32, hidden=128, dtype="bfloat16")),
    },
    gradients=("x",),
    impostors={"mean_square": mean_square},
    tolerance=REASSOCIATED,
    # The gradient is a difference along the row: kernels that round the normed row first are off by its spacing.
    gradient_tolerance={**REASSOCIATED, "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=4e-2)},
    cost=l2_cost,
    source="fla-org/flash-linear-attention l2norm, which its delta rules apply to queries and keys",
)


# -- group norm -------------------------------------------------------------------------------------------------------


def group_inputs(make, batch, channels, size, groups, dtype):
    return {
        "x": make.normal(batch, channels, size * size, dtype=dtype),
        "weight": make.normal(channels, dtype=dtype, mean=1.0, scale=0.2),
        "bias": make.normal(channels, dtype=dtype, scale=0.2),
        "groups": groups,
        "eps": 1e-5,
    }


def group_cost(batch, channels, size, groups, dtype, direction):
    values, width = batch * channels * size * size, size_of(dtype)
    return cost_of(
        direction,
        flops=7 * values,
        backward_flops=12 * values,
        inputs=(values + 2 * channels) * width,
        outputs=values * width,
        gradients=(values + 2 * channels) * width,
    )


def group_by_hand(x, weight, bias, groups, eps):
    """Mean and variance of each group in float32, then a weight and a bias for each channel."""
    values = wide(x).unflatten(1, (groups, -1))
    centred = values - values.mean((2, 3), keepdim=True)
    normed = centred * torch.rsqrt(centred.pow(2).mean((2, 3), keepdim=True) + eps)
    return (normed.flatten(1, 2) * wide(weight)[:, None] + wide(bias)[:, None]).to(x.dtype)


def group_builtin(x, weight, bias, groups, eps):
    return F.group_norm(x, groups, weight, bias, eps)


def liger_group_norm(x, weight, bias, groups, eps):
    from liger_kernel.ops.group_norm import LigerGroupNormFunction

    return LigerGroupNormFunction.apply(x, weight, bias, x.shape[1], groups, eps)


def of_the_other_groups(x, weight, bias, groups, eps):
    """Take channels that are `groups` apart for a group."""
    mixed = x.unflatten(1, (-1, groups)).transpose(1, 2).flatten(1, 2)
    back = group_by_hand(mixed, torch.ones_like(weight), torch.zeros_like(bias), groups, eps)
    return back.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2) * weight[:, None] + bias[:, None]


peer_group_norm = Operator(
    "peer_group_norm",
    baseline=group_by_hand,
    variants={"builtin": Variant(group_builtin, kind="library"), **peers({"liger": liger_group_norm})},
    inputs=group_inputs,
    cases={
        "edge": [
            dict(batch=2, channels=8, size=4, groups=2, dtype="float32"),
            dict(batch=1, channels=6, size=3, groups=3, dtype="bfloat16"),
        ],
        "real": training(
            dict(batch=8, channels=512, size=64, groups=32, dtype="bfloat16"),
            dict(batch=8, channels=512, size=64, groups=32, dtype="float32"),
        ),
    },
    gradients=("x", "weight", "bias"),
    impostors={"of_the_other_groups": of_the_other_groups},
    tolerance=REASSOCIATED,
    cost=group_cost,
    source="linkedin/Liger-Kernel; the shape is that of an image decoder's middle",
)
