"""Cross entropy in training, over vocabularies of a hundred thousand and more: the mean loss of the tokens that count.

The plain form widens the logits to float32 and writes them again as log-probabilities: 8192 tokens of Llama 3 are 2 GiB in bfloat16 and 4 GiB for each of the
others. Tokens whose target is -100 do not count; of none at all the loss is 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_train_cross_entropy import cross_entropy
from train_common import LLAMA_8B, QWEN_05B, QWEN_7B, computes_in_float32, cost_of, of, size_of, spoilt, wide

from pairbench import REASSOCIATED, Claim, Operator, Tolerance, Variant, grid

IGNORE = -100


def inputs(make, tokens, vocabulary, dtype, ignored="some", scale=2.0):
    target = make.integers(tokens, high=vocabulary)
    if ignored != "none":
        target[:: 1 if ignored == "all" else 3] = IGNORE
    return {"logits": make.normal(tokens, vocabulary, dtype=dtype, scale=scale), "target": target, "ignore": IGNORE}


def cost(tokens, vocabulary, dtype, direction, ignored="some", scale=2.0):
    values, size = tokens * vocabulary, size_of(dtype)
    return cost_of(
        direction,
        flops=4 * values,
        backward_flops=4 * values,
        inputs=values * size + 8 * tokens,
        outputs=4,
        gradients=values * size,
    )


def by_hand(logits, target, ignore):
    """Log-probabilities of all, those of the targets picked out, their mean."""
    counts = target != ignore
    logs = torch.log_softmax(wide(logits), -1)
    own = logs.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -torch.where(counts, own, 0).sum() / counts.sum().clamp(min=1)


def builtin(logits, target, ignore):
    """PyTorch's own, of float32 logits."""
    total = F.cross_entropy(wide(logits), target, ignore_index=ignore, reduction="sum")
    return total / (target != ignore).sum().clamp(min=1)


class _FromLevels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, ignore):
        counts = target != ignore
        counted = counts.sum().clamp(min=1)
        values = wide(logits)
        levels = values.logsumexp(-1)
        own = values.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        ctx.save_for_backward(logits, target, levels, counts, counted)
        return torch.where(counts, levels - own, 0).sum() / counted

    @staticmethod
    def backward(ctx, gradient):
        logits, target, levels, counts, counted = ctx.saved_tensors
        part = (wide(logits) - levels.unsqueeze(-1)).exp_()
        index = target.clamp(min=0).unsqueeze(-1)
        part.scatter_add_(-1, index, torch.full_like(index, -1, dtype=part.dtype))
        return part.mul_(torch.where(counts, gradient / counted, 0).unsqueeze(-1)).to(logits.dtype), None, None


def from_levels(logits, target, ignore):
    """Keep the logits as they came and a number for each token, and compute probabilities again in backward."""
    return _FromLevels.apply(logits, target, ignore)


def fits(logits, **_):
    return computes_in_float32(logits)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def without_target(logits, target, ignore):
    """Give the probabilities as the gradient, the target's not reduced by one."""
    level = wide(logits).logsumexp(-1)
    right = by_hand(logits, target, ignore)
    counts = target != ignore
    wrong = torch.where(counts, level, 0).sum() / counts.sum().clamp(min=1)
    return wrong + (right - wrong).detach()


def mean_of_all(logits, target, ignore):
    """Divide the gradient by the number of all tokens, ignored ones too."""
    counted = (target != ignore).sum()
    return by_hand(spoilt(logits, lambda gradient: gradient * counted / len(target)), target, ignore)


def ignored_too(logits, target, ignore):
    """Differentiate ignored tokens as if their target were the first."""
    counts = target != ignore
    wrong = F.cross_entropy(wide(logits), target.clamp(min=0), reduction="sum") / counts.sum().clamp(min=1)
    return wrong + (by_hand(logits, target, ignore) - wrong).detach()


def of_sum(logits, target, ignore):
    """Return the sum of the losses."""
    return by_hand(logits, target, ignore) * (target != ignore).sum()


def some_ignored(logits, target, ignore):
    return some(logits, target, ignore) and bool((target == ignore).any())


def some(logits, target, ignore):
    return int((target != ignore).sum()) > 1 and logits.shape[-1] > 1


# -- cases ------------------------------------------------------------------------------------------------------------

EDGE = [
    dict(tokens=3, vocabulary=11, dtype="float64"),
    dict(tokens=4, vocabulary=50, dtype="float32", ignored="none"),
    dict(tokens=4, vocabulary=50, dtype="float32", ignored="all"),
    dict(tokens=4, vocabulary=50, dtype="float32", scale=60.0),  # the exponential of any of these alone is infinite
    dict(tokens=3, vocabulary=1, dtype="float32"),
    dict(tokens=3, vocabulary=5003, dtype="bfloat16"),  # a tail of a block
    dict(tokens=6, vocabulary=64, dtype="float16"),
]
SMOKE = grid(tokens=[12], vocabulary=[128], dtype=["float32", "bfloat16"])
REAL = [
    dict(tokens=4096, dtype="bfloat16", **of(LLAMA_8B, "vocabulary")),
    dict(tokens=4096, dtype="bfloat16", **of(QWEN_05B, "vocabulary")),
    dict(tokens=4096, dtype="bfloat16", ignored="none", **of(QWEN_7B, "vocabulary")),
]
HEADLINE = [dict(tokens=8192, dtype="bfloat16", **of(LLAMA_8B, "vocabulary"))]

train_cross_entropy = Operator(
    "train_cross_entropy",
    baseline=by_hand,
    variants={
        "builtin": Variant(builtin, kind="library"),
        "from_levels": from_levels,
        "triton": Variant(cross_entropy, valid=fits, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("logits",),
    impostors={
        "without_target": Variant(without_target, valid=some),
        "mean_of_all": Variant(mean_of_all, valid=some_ignored),
        "ignored_too": Variant(ignored_too, valid=some_ignored),
        "of_sum": Variant(of_sum, valid=some),
    },
    # A number of a hundred, rounded, is all that is kept of a row: its rounding is in the exponent of each probability.
    gradient_tolerance={**REASSOCIATED, "float32": Tolerance(rtol=1e-4, atol_rms=1e-4, rel_l2=5e-5)},
    tolerance={**REASSOCIATED, "float32": Tolerance(rtol=1e-5, rel_l2=1e-6)},
    cost=cost,
    source="linkedin/Liger-Kernel cross_entropy, apple/ml-cross-entropy",
    claims=[
        Claim(
            speedup=3.0,
            device="NVIDIA A100",
            source="Liger-Kernel, Low-Level APIs: about 3x, with a fifth of the memory",
            cases=[dict(HEADLINE[0], direction="fwd_bwd")],
            shape="a vocabulary of up to 163840",
        ),
    ],
)
