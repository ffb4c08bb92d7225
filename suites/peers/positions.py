"""Rotary embedding of queries and keys in training as packages have it: halves of a head rotated, as Llama does.

Each package wants the angles and the heads in an order of its own; views give it that, and nothing is copied.
"""

from __future__ import annotations

from peers_common import QWEN_3_32B, case, peers, training

from pairbench import REASSOCIATED, Operator, Variant

from ..train import rope
from ..train.train_common import LLAMA_8B, LLAMA_70B


def liger_rope(q, k, cos, sin):
    """Rotates `q` and `k` where they lie, and their gradients too."""
    from liger_kernel.ops.rope import LigerRopeFunction

    heads_first = (x.transpose(0, 1).unsqueeze(0) for x in (q, k))
    rotated = LigerRopeFunction.apply(*heads_first, cos.unsqueeze(0), sin.unsqueeze(0))
    return tuple(x.squeeze(0).transpose(0, 1) for x in rotated)


def _by_one(rotate, q, k, cos, sin):
    half = cos.shape[-1] // 2
    return tuple(rotate(x.unsqueeze(0), cos[:, :half], sin[:, :half]).squeeze(0) for x in (q, k))


def fla_rope(q, k, cos, sin):
    from fla.modules.rotary.ops import rotary_embedding

    return _by_one(rotary_embedding, q, k, cos, sin)


def quack_rope(q, k, cos, sin):
    from quack.rotary import apply_rotary_emb

    return _by_one(apply_rotary_emb, q, k, cos, sin)


peer_rope = Operator(
    "peer_rope",
    baseline=rope.by_hand,
    variants={
        "by_halves": Variant(rope.by_halves, kind="library"),
        "triton": Variant(rope.rotated, valid=rope.fits, needs="triton"),
        **peers(
            {"liger": liger_rope, "fla": fla_rope, "quack": quack_rope},
            consumes={"liger": ["q", "k", "output gradient"]},
        ),
    },
    inputs=rope.inputs,
    cases={
        "edge": [one for one in rope.EDGE if one["tokens"]],
        "real": training(
            case(LLAMA_8B, 8192, "heads", "kv_heads"),
            case(LLAMA_70B, 8192, "heads", "kv_heads"),
            case(QWEN_3_32B, 4096, "heads", "kv_heads", theta=1000000.0),
        ),
    },
    gradients=("q", "k"),
    impostors=rope.train_rope.impostors,
    tolerance=REASSOCIATED,
    cost=rope.cost,
    source="linkedin/Liger-Kernel, fla-org/flash-linear-attention, Dao-AILab/quack",
)
