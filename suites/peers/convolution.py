"""A causal depthwise convolution over a few tokens, with SiLU behind it, in training: what stands before linear attention and Mamba.

The contract: `x` is [batch, tokens, channels] and `weight` is [channels, taps]; `out[b, t, c] = silu(sum_i weight[c, i] * x[b, t - taps + 1 + i, c])`,
with zeros before the first token.
"""

from __future__ import annotations

import torch.nn.functional as F
from peers_common import peers, training

from pairbench import REASSOCIATED, Operator, Tolerance, Variant

from ..train.train_common import cost_of, size_of, spoilt, wide


def inputs(make, batch, tokens, channels, taps, dtype):
    return {
        "x": make.normal(batch, tokens, channels, dtype=dtype),
        "weight": make.normal(channels, taps, dtype=dtype, scale=0.5),
    }


def cost(batch, tokens, channels, taps, dtype, direction):
    values, size = batch * tokens * channels, size_of(dtype)
    return cost_of(
        direction,
        flops=(2 * taps + 4) * values,
        backward_flops=(4 * taps + 8) * values,
        inputs=(values + channels * taps) * size,
        outputs=values * size,
        gradients=(values + channels * taps) * size,
    )


def by_hand(x, weight):
    """A shifted copy for each tap, weighed and added in float32."""
    taps, tokens = weight.shape[1], x.shape[1]
    padded = F.pad(wide(x), (0, 0, taps - 1, 0))
    total = sum(padded[:, tap : tap + tokens] * wide(weight)[:, tap] for tap in range(taps))
    return F.silu(total).to(x.dtype)


def builtin(x, weight):
    """PyTorch's grouped convolution over channels that are last in memory, as models without a kernel have it."""
    channels, taps = weight.shape
    convolved = F.conv1d(x.transpose(1, 2), weight.unsqueeze(1), padding=taps - 1, groups=channels)
    return F.silu(convolved[..., : x.shape[1]]).transpose(1, 2)


def fla(x, weight):
    from fla.modules.causal_conv1d.ops import causal_conv1d

    return causal_conv1d(x, weight, activation="silu")[0]


def not_causal(x, weight):
    """Centre the taps around each token."""
    taps, tokens = weight.shape[1], x.shape[1]
    padded = F.pad(wide(x), (0, 0, taps // 2, taps))
    return F.silu(sum(padded[:, tap : tap + tokens] * wide(weight)[:, tap] for tap in range(taps))).to(x.dtype)


def taps_reversed(x, weight):
    """Take the taps from the newest to the oldest."""
    return by_hand(x, weight.flip(1))


def half_of_the_weight(x, weight):
    """Give the weight half of its gradient."""
    return by_hand(x, spoilt(weight, lambda gradient: gradient / 2))


peer_causal_conv = Operator(
    "peer_causal_conv",
    baseline=by_hand,
    variants={"builtin": Variant(builtin, kind="library"), **peers({"fla": fla})},
    inputs=inputs,
    cases={
        "edge": [
            dict(batch=2, tokens=7, channels=8, taps=4, dtype="float32"),
            dict(batch=1, tokens=5, channels=6, taps=3, dtype="bfloat16"),
        ],
        "real": training(
            dict(batch=1, tokens=8192, channels=8192, taps=4, dtype="bfloat16"),
            dict(batch=4, tokens=4096, channels=2048, taps=4, dtype="bfloat16"),
        ),
    },
    gradients=("x", "weight"),
    impostors={"not_causal": not_causal, "taps_reversed": taps_reversed, "half_of_the_weight": half_of_the_weight},
    tolerance=REASSOCIATED,
    # Where the convolution is rounded before SiLU, SiLU's slope is taken at the rounded value.
    gradient_tolerance={**REASSOCIATED, "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=4e-2)},
    cost=cost,
    source="fla-org/flash-linear-attention causal_conv1d, Dao-AILab/causal-conv1d",
)
