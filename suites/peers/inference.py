"""RMS norm without gradients, alone and behind a residual, as packages for inference have it: at a step of decoding and at a long prompt.

The kernels that add may write the sum into their inputs; the plain form returns it.
"""

from __future__ import annotations

from norms import fla_add_rms_norm, fla_rms_norm, quack_add_rms_norm, quack_rms_norm
from peers_common import DEEPSEEK_V3, case, peers

from pairbench import REASSOCIATED, Cost, Operator, Variant

from ..train import add_rmsnorm, rmsnorm
from ..train.train_common import LLAMA_8B, LLAMA_70B, size_of

EDGE = [
    dict(tokens=3, hidden=32, dtype="float32"),
    dict(tokens=5, hidden=33, dtype="bfloat16"),
]
REAL = [
    case(LLAMA_8B, 64, "hidden"),
    case(LLAMA_70B, 8192, "hidden"),
    case(DEEPSEEK_V3, 64, "hidden"),
]


def norm_cost(tokens, hidden, dtype):
    values = tokens * hidden
    return Cost(flops=4.0 * values, bytes=float((2 * values + hidden) * size_of(dtype)))


def liger_rms_norm(x, weight, eps):
    from liger_kernel.ops.rms_norm import rms_norm_forward

    return rms_norm_forward(x, weight, eps, 0.0, "llama", None)[0]


def flag_gems_rms_norm(x, weight, eps):
    from flag_gems.ops import rms_norm_forward

    return rms_norm_forward(x, weight.shape, weight, eps)[0]


def xformers_rms_norm(x, weight, eps):
    from xformers.ops.rmsnorm import rms_norm

    return rms_norm(x, weight, eps)


peer_rms_norm_inference = Operator(
    "peer_rms_norm_inference",
    baseline=rmsnorm.by_hand,
    variants={
        "builtin": Variant(rmsnorm.builtin, kind="library"),
        **peers(
            {
                "liger": liger_rms_norm,
                "flag_gems": flag_gems_rms_norm,
                "fla": fla_rms_norm,
                "quack": quack_rms_norm,
                "xformers": xformers_rms_norm,
            }
        ),
    },
    inputs=rmsnorm.inputs,
    cases={"edge": EDGE, "real": REAL},
    impostors={"sum_of_squares": rmsnorm.sum_of_squares},
    tolerance=REASSOCIATED,
    cost=norm_cost,
    source="linkedin/Liger-Kernel, FlagOpen/FlagGems, fla-org/flash-linear-attention, Dao-AILab/quack, facebookresearch/xformers",
)


def add_cost(tokens, hidden, dtype):
    values = tokens * hidden
    return Cost(flops=5.0 * values, bytes=float((4 * values + hidden) * size_of(dtype)))


def liger_add(x, residual, weight, eps):
    from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward

    return fused_add_rms_norm_forward(x, residual, weight, eps, 0.0, "llama")[:2]


def flag_gems_add(x, residual, weight, eps):
    """Writes the norm into `x` and the sum into `residual`."""
    from flag_gems.fused import fused_add_rms_norm

    return fused_add_rms_norm(x, residual, list(weight.shape), weight, eps)


def xformers_add(x, residual, weight, eps):
    """Writes the sum into `residual`."""
    from xformers.ops.rmsnorm import rms_norm_add

    return rms_norm_add(residual, x, weight, eps), residual


peer_add_rms_norm_inference = Operator(
    "peer_add_rms_norm_inference",
    baseline=add_rmsnorm.by_hand,
    variants={
        "builtin": Variant(add_rmsnorm.builtin, kind="library"),
        **peers(
            {
                "liger": liger_add,
                "flag_gems": flag_gems_add,
                "fla": fla_add_rms_norm,
                "quack": quack_add_rms_norm,
                "xformers": xformers_add,
            },
            consumes={"flag_gems": ["x", "residual"], "xformers": ["residual"]},
        ),
    },
    inputs=add_rmsnorm.inputs,
    cases={"edge": EDGE, "real": REAL},
    impostors={"norm_of_x": add_rmsnorm.norm_of_x},
    tolerance=REASSOCIATED,
    cost=add_cost,
    source="linkedin/Liger-Kernel, FlagOpen/FlagGems, fla-org/flash-linear-attention, Dao-AILab/quack, facebookresearch/xformers",
)
