"""Cross entropy in training, of logits and of the last layer with it, as packages have them.

The loss of logits has their dtype, as PyTorch's own has. In bfloat16 the mean over thousands of tokens then is the same number for all inputs, and
what tells right from wrong is the gradient.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from peers_common import DEEPSEEK_V3, case, peers, training

from pairbench import Operator, Tolerance, Variant

from ..train import cross_entropy as plain
from ..train import fused_linear_cross_entropy as linear
from ..train.train_common import LLAMA_8B, QWEN_7B, wide


def by_hand(logits, target, ignore):
    return plain.by_hand(logits, target, ignore).to(logits.dtype)


def builtin(logits, target, ignore):
    """PyTorch's own of float32 logits: of bfloat16 ones it keeps rounded log-probabilities, and its gradients are off by their exponentials."""
    return F.cross_entropy(wide(logits), target, ignore_index=ignore).to(logits.dtype)


def triton(logits, target, ignore):
    return plain.cross_entropy(logits, target, ignore).to(logits.dtype)


def liger_cross_entropy(logits, target, ignore):
    """Computes the gradients in its forward, and writes them into `logits`."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return LigerCrossEntropyFunction.apply(logits, target, None, ignore)[0]


def flag_gems_cross_entropy(logits, target, ignore):
    from flag_gems.fused import cross_entropy_loss

    return cross_entropy_loss(logits, target, ignore_index=ignore)


def fla_cross_entropy(logits, target, ignore):
    """Has a loss for each token; the mean is PyTorch's."""
    from fla.modules.fused_cross_entropy.ops import cross_entropy_loss

    losses, _ = cross_entropy_loss(logits, target, ignore_index=ignore)
    return (losses.sum() / (target != ignore).sum()).to(logits.dtype)


def quack_cross_entropy(logits, target, ignore):
    from quack import cross_entropy

    return cross_entropy(logits, target, ignore_index=ignore).to(logits.dtype)


def _in_dtype(impostor):
    def rounded(logits, **others):
        return impostor.function(logits, **others).to(logits.dtype)

    return Variant(rounded, valid=impostor.valid)


peer_cross_entropy = Operator(
    "peer_cross_entropy",
    baseline=by_hand,
    variants={
        "builtin": Variant(builtin, kind="library"),
        "triton": Variant(triton, valid=plain.fits, needs="triton"),
        **peers(
            {
                "liger": liger_cross_entropy,
                "flag_gems": flag_gems_cross_entropy,
                "fla": fla_cross_entropy,
                "quack": quack_cross_entropy,
            },
            consumes={"liger": ["logits"]},
        ),
    },
    inputs=plain.inputs,
    cases={
        "edge": [one for one in plain.EDGE if one["vocabulary"] > 1 and one.get("ignored") != "all"],
        "real": training(
            case(LLAMA_8B, 8192, "vocabulary"),
            case(DEEPSEEK_V3, 4096, "vocabulary", ignored="none"),
            dict(tokens=16384, vocabulary=32768, dtype="bfloat16"),
        ),
    },
    gradients=("logits",),
    impostors={name: _in_dtype(one) for name, one in plain.train_cross_entropy.impostors.items()},
    accepts_constant=True,
    tolerance=plain.train_cross_entropy.tolerance,
    gradient_tolerance=plain.train_cross_entropy.gradient_tolerance,
    cost=plain.cost,
    source="linkedin/Liger-Kernel, FlagOpen/FlagGems, fla-org/flash-linear-attention, Dao-AILab/quack",
)


def liger_linear(x, weight, target, ignore):
    """Computes the gradients in its forward, and scales them in place in its backward."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    return LigerFusedLinearCrossEntropyFunction.apply(x, weight, target, None, None, ignore)[0]


def liger_linear_float32(x, weight, target, ignore):
    """Adds up the gradient of the weight in float32; by itself it does so in the weight's dtype."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    options = (None, None, ignore, 0.0, 0.0, "mean", None, False, torch.float32)
    return LigerFusedLinearCrossEntropyFunction.apply(x, weight, target, *options)[0]


def fla_linear(x, weight, target, ignore):
    from fla.modules.fused_linear_cross_entropy.ops import fused_linear_cross_entropy_loss

    return fused_linear_cross_entropy_loss(x, target, weight, ignore_index=ignore)


def quack_linear(x, weight, target, ignore):
    from quack.linear_cross_entropy import chunked_linear_cross_entropy

    return chunked_linear_cross_entropy(x, weight, target, ignore_index=ignore)


def cut_cross_entropy_linear(x, weight, target, ignore):
    """Leaves out gradients that are too small for the dtype, which is its default."""
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy(x, weight, target, ignore_index=ignore)


def cut_cross_entropy_unfiltered(x, weight, target, ignore):
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy(x, weight, target, ignore_index=ignore, filter_eps=None)


peer_linear_cross_entropy = Operator(
    "peer_linear_cross_entropy",
    baseline=linear.by_hand,
    variants={
        "checkpointed": Variant(linear.checkpointed, kind="library"),
        "triton": Variant(linear.triton_chunked, valid=linear.fits, needs="triton"),
        **peers(
            {
                "liger": liger_linear,
                "liger_float32": liger_linear_float32,
                "fla": fla_linear,
                "quack": quack_linear,
                "cut_cross_entropy": cut_cross_entropy_linear,
                "cut_cross_entropy_unfiltered": cut_cross_entropy_unfiltered,
            },
            consumes={key: ["saved tensors"] for key in ("liger", "liger_float32", "fla")},
        ),
    },
    inputs=linear.inputs,
    cases={
        "edge": [one for one in linear.EDGE if one.get("ignored") != "all"],
        "real": training(case(LLAMA_8B, 4096, "hidden", "vocabulary"), case(QWEN_7B, 8192, "hidden", "vocabulary")),
    },
    gradients=("x", "weight"),
    impostors=linear.train_fused_linear_cross_entropy.impostors,
    # Kernels that never round the logits to bfloat16 are off a baseline that does by a millionth and more.
    tolerance={**linear.train_fused_linear_cross_entropy.tolerance, "float32": Tolerance(rtol=1e-4, rel_l2=1e-5)},
    gradient_tolerance=linear.train_fused_linear_cross_entropy.gradient_tolerance,
    cost=linear.cost,
    source="linkedin/Liger-Kernel, fla-org/flash-linear-attention, Dao-AILab/quack, apple/ml-cross-entropy",
)
