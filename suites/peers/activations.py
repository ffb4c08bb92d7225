"""Gated activations and softmax in training as packages have them."""

from __future__ import annotations

import torch
from peers_common import DEEPSEEK_V3, QWEN_3_32B, case, peers, training

from pairbench import REASSOCIATED, Operator, Tolerance, Variant

from ..train import gated
from ..train.train_common import LLAMA_8B, computes_in_float32, cost_of, size_of, spoilt, wide

REAL = training(
    case(LLAMA_8B, 8192, "intermediate"),
    case(QWEN_3_32B, 4096, "intermediate"),
    case(DEEPSEEK_V3, 4096, "intermediate"),
)
EDGE = [one for one in gated.EDGE if one["tokens"] and one["intermediate"] > 1]


def liger_swiglu(gate, up):
    """Its backward writes the gradients into `gate` and `up`."""
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return LigerSiLUMulFunction.apply(gate, up)


def flag_gems_swiglu(gate, up):
    from flag_gems.fused import silu_and_mul

    return silu_and_mul(gate, up)


def fla_swiglu(gate, up):
    from fla.modules.activations import swiglu

    return swiglu(gate, up)


peer_swiglu = Operator(
    "peer_swiglu",
    baseline=gated.swiglu,
    variants={
        "recomputed": gated.swiglu_recomputed,
        "triton": Variant(gated.silu_gated, valid=gated.fits, needs="triton"),
        **peers(
            {"liger": liger_swiglu, "flag_gems": flag_gems_swiglu, "fla": fla_swiglu},
            consumes={"liger": ["gate", "up"]},
        ),
    },
    inputs=gated.inputs,
    cases={"edge": EDGE, "real": REAL},
    gradients=("gate", "up"),
    impostors=gated.impostors(gated.silu),
    tolerance=REASSOCIATED,
    cost=gated.cost,
    source="linkedin/Liger-Kernel, FlagOpen/FlagGems, fla-org/flash-linear-attention",
)


def liger_geglu(gate, up):
    """Its backward writes the gradients into `gate` and `up`."""
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return LigerGELUMulFunction.apply(gate, up)


def flag_gems_geglu(gate, up):
    from flag_gems.fused import gelu_and_mul

    return gelu_and_mul(gate, up, "tanh")


peer_geglu = Operator(
    "peer_geglu",
    baseline=gated.geglu,
    variants={
        "recomputed": gated.geglu_recomputed,
        "triton": Variant(gated.gelu_gated, valid=gated.fits, needs="triton"),
        **peers({"liger": liger_geglu, "flag_gems": flag_gems_geglu}, consumes={"liger": ["gate", "up"]}),
    },
    inputs=gated.inputs,
    cases={"edge": EDGE, "real": REAL[:1]},
    gradients=("gate", "up"),
    impostors=gated.impostors(gated.gelu),
    tolerance=REASSOCIATED,
    cost=gated.cost,
    source="linkedin/Liger-Kernel, FlagOpen/FlagGems",
)


# -- softmax ----------------------------------------------------------------------------------------------------------


def softmax_inputs(make, rows, columns, dtype, scale=2.0):
    return {"x": make.normal(rows, columns, dtype=dtype, scale=scale)}


def softmax_cost(rows, columns, dtype, direction, scale=2.0):
    values, size = rows * columns, size_of(dtype)
    return cost_of(
        direction,
        flops=5 * values,
        backward_flops=4 * values,
        inputs=values * size,
        outputs=values * size,
        gradients=values * size,
    )


def softmax_by_hand(x):
    """The largest of a row subtracted, exponentials, divided by their sum, in float32."""
    powers = torch.exp(wide(x) - wide(x).amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def softmax_builtin(x):
    return torch.softmax(x, -1)


def liger_softmax(x):
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return LigerSoftmaxFunction.apply(x)


def quack_softmax(x):
    from quack import softmax

    return softmax(x)


def of_columns(x):
    """Divide by the sums of the columns instead of those of the rows."""
    return torch.softmax(x, 0)


def sum_without_gradient(x):
    """Take the sum for a constant in backward."""
    powers = torch.exp(wide(x) - wide(x).amax(-1, keepdim=True).detach())
    return (powers / powers.sum(-1, keepdim=True).detach()).to(x.dtype)


def wide_enough(x, **_):
    return min(x.shape) > 1


peer_softmax = Operator(
    "peer_softmax",
    baseline=softmax_by_hand,
    variants={
        "builtin": Variant(softmax_builtin, kind="library"),
        **peers(
            {"liger": liger_softmax, "quack": quack_softmax},
            valid={"liger": computes_in_float32, "quack": computes_in_float32},
        ),
    },
    inputs=softmax_inputs,
    cases={
        "edge": [
            dict(rows=3, columns=32, dtype="float32"),
            dict(rows=5, columns=333, dtype="bfloat16"),
        ],
        "real": training(
            dict(rows=8 * 4096, columns=4096, dtype="bfloat16"), dict(rows=4096, columns=32768, dtype="bfloat16")
        ),
    },
    gradients=("x",),
    impostors={
        "of_columns": Variant(of_columns, valid=wide_enough),
        "sum_without_gradient": Variant(sum_without_gradient, valid=wide_enough),
        "halved_gradient": lambda x: torch.softmax(spoilt(x, lambda gradient: gradient / 2), -1),
    },
    tolerance=REASSOCIATED,
    # Kernels keep the rounded output for backward, where the terms of small gradients cancel.
    gradient_tolerance={**REASSOCIATED, "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=4e-2, rms_by_row=True)},
    cost=softmax_cost,
    source="linkedin/Liger-Kernel, Dao-AILab/quack",
)
