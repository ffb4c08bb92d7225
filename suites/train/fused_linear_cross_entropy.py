"""The last layer of a language model with its loss in training: logits that are never there as a whole.

By hand the logits of all tokens are computed, widened, and their log-probabilities kept for backward: 4096 tokens of Llama 3 take 5 GiB for a loss of 4
bytes. The fused forms go through the tokens in chunks and let each chunk's logits go. Checkpointed, a chunk is computed again in backward; otherwise both
gradients are computed in forward, with the loss, and backward only scales them. Read those forms by `fwd_bwd`: their `bwd` alone is next to nothing,
and their `fwd` is most of both.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_train_cross_entropy import losses_and_gradients
from torch.utils.checkpoint import checkpoint
from train_common import LLAMA_8B, QWEN_05B, QWEN_7B, computes_in_float32, cost_of, of, size_of, spoilt, wide

from pairbench import REASSOCIATED, Claim, Cost, Operator, Tolerance, Variant, grid

IGNORE = -100
CHUNKS = 8


def inputs(make, tokens, hidden, vocabulary, dtype, ignored="some"):
    target = make.integers(tokens, high=vocabulary)
    if ignored != "none":
        target[:: 1 if ignored == "all" else 3] = IGNORE
    return {
        "x": make.normal(tokens, hidden, dtype=dtype),
        "weight": make.normal(vocabulary, hidden, dtype=dtype, scale=2.0 / hidden**0.5),
        "target": target,
        "ignore": IGNORE,
    }


def cost(tokens, hidden, vocabulary, dtype, direction, ignored="some"):
    """Of backward alone nothing more is demanded than to scale gradients that forward may have computed."""
    size, product = size_of(dtype), 2 * tokens * hidden * vocabulary
    if direction == "bwd":
        values = (tokens + vocabulary) * hidden
        return Cost(flops=float(values), bytes=float(2 * values * size))
    return cost_of(
        direction,
        flops=product,
        backward_flops=2 * product,
        inputs=(tokens + vocabulary) * hidden * size + 8 * tokens,
        outputs=4,
        gradients=(tokens + vocabulary) * hidden * size,
    )


def by_hand(x, weight, target, ignore):
    """Logits, log-probabilities, the mean over the tokens that count."""
    total = F.cross_entropy(wide(x @ weight.T), target, ignore_index=ignore, reduction="sum")
    return total / (target != ignore).sum().clamp(min=1)


def _lost(x, weight, target, ignore):
    return F.cross_entropy(wide(x @ weight.T), target, ignore_index=ignore, reduction="sum")


def checkpointed(x, weight, target, ignore):
    """Chunks of tokens, of which backward computes the logits again."""
    total = 0
    for rows, wanted in zip(x.chunk(CHUNKS), target.chunk(CHUNKS), strict=True):
        total = total + checkpoint(_lost, rows, weight, wanted, ignore, use_reentrant=False)
    return total / (target != ignore).sum().clamp(min=1)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target, ignore, differentiate):
        scale = 1 / (target != ignore).sum().clamp(min=1).to(wide(x[:0]).dtype)
        of_x, of_weight = torch.empty_like(x), torch.zeros_like(weight, dtype=scale.dtype)
        total = torch.zeros((), dtype=scale.dtype, device=x.device)
        for rows, wanted, of_rows in zip(x.chunk(CHUNKS), target.chunk(CHUNKS), of_x.chunk(CHUNKS), strict=True):
            logits = rows @ weight.T
            losses, of_logits = differentiate(logits, wanted, scale, ignore)
            total += losses.sum()
            torch.mm(of_logits, weight, out=of_rows)
            of_weight += of_logits.T @ rows
        ctx.save_for_backward(of_x, of_weight.to(weight.dtype))
        return total * scale

    @staticmethod
    def backward(ctx, gradient):
        of_x, of_weight = ctx.saved_tensors
        return of_x * gradient.to(of_x.dtype), of_weight * gradient.to(of_weight.dtype), None, None, None


def _by_torch(logits, target, scale, ignore):
    counts = target != ignore
    values = wide(logits)
    index = target.clamp(min=0).unsqueeze(-1)
    level = values.logsumexp(-1, keepdim=True)
    losses = torch.where(counts, (level - values.gather(-1, index)).squeeze(-1), 0)
    part = (values - level).exp_()
    part.scatter_add_(-1, index, torch.full_like(index, -1, dtype=part.dtype))
    return losses, part.mul_((counts * scale).unsqueeze(-1)).to(logits.dtype)


def chunked(x, weight, target, ignore):
    """Chunks of tokens, with both gradients computed in forward."""
    return _Chunked.apply(x, weight, target, ignore, _by_torch)


def _by_kernel(logits, target, scale, ignore):
    return losses_and_gradients(logits, target, scale, ignore), logits


def triton_chunked(x, weight, target, ignore):
    """The same, the loss and the gradient of a chunk's logits by one kernel each, which writes over the logits."""
    return _Chunked.apply(x, weight, target, ignore, _by_kernel)


def fits(x, **_):
    return computes_in_float32(x)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


class _LastChunk(_Chunked):
    @staticmethod
    def forward(ctx, x, weight, target, ignore, differentiate):
        result = _Chunked.forward(ctx, x, weight, target, ignore, differentiate)
        scale = 1 / (target != ignore).sum().clamp(min=1).to(wide(x[:0]).dtype)
        rows, wanted = x.chunk(CHUNKS)[-1], target.chunk(CHUNKS)[-1]
        _, of_logits = differentiate(rows @ weight.T, wanted, scale, ignore)
        ctx.save_for_backward(ctx.to_save[0], of_logits.T @ rows)
        return result


def last_chunk(x, weight, target, ignore):
    """Give the weight the gradient of the last chunk alone: each wrote over the one before."""
    return _LastChunk.apply(x, weight, target, ignore, _by_torch)


class _Unscaled(_Chunked):
    @staticmethod
    def backward(ctx, gradient):
        return *ctx.saved_tensors, None, None, None


def unscaled(x, weight, target, ignore):
    """Hand out what forward computed, as if the loss's own gradient were always 1."""
    return _Unscaled.apply(x, weight, target, ignore, _by_torch)


def mean_of_chunks(x, weight, target, ignore):
    """Take the mean of the chunks' means, which count different numbers of tokens."""
    parts = zip(x.chunk(CHUNKS), target.chunk(CHUNKS), strict=True)
    return torch.stack([by_hand(rows, weight, wanted, ignore) for rows, wanted in parts]).mean()


def half_of_x(x, weight, target, ignore):
    return by_hand(spoilt(x, lambda gradient: gradient / 2), weight, target, ignore)


def uneven(x, target, ignore, **_):
    return len({int((part != ignore).sum()) for part in target.chunk(CHUNKS)}) > 1


def some(x, target, ignore, **_):
    return int((target != ignore).sum()) > 1


# -- cases ------------------------------------------------------------------------------------------------------------

EDGE = [
    dict(tokens=9, hidden=16, vocabulary=11, dtype="float64"),
    dict(tokens=3, hidden=16, vocabulary=50, dtype="float32", ignored="none"),  # fewer tokens than chunks
    dict(tokens=9, hidden=16, vocabulary=50, dtype="float32", ignored="all"),
    dict(tokens=17, hidden=32, vocabulary=5003, dtype="bfloat16"),  # uneven chunks, a tail of a block
]
SMOKE = grid(tokens=[20], hidden=[32], vocabulary=[128], dtype=["float32", "bfloat16"])
REAL = [
    dict(tokens=4096, dtype="bfloat16", **of(LLAMA_8B, "hidden", "vocabulary")),
    dict(tokens=4096, dtype="bfloat16", **of(QWEN_05B, "hidden", "vocabulary")),
    dict(tokens=4096, dtype="bfloat16", **of(QWEN_7B, "hidden", "vocabulary")),
]
HEADLINE = [dict(tokens=16384, dtype="bfloat16", **of(LLAMA_8B, "hidden", "vocabulary"))]

train_fused_linear_cross_entropy = Operator(
    "train_fused_linear_cross_entropy",
    baseline=by_hand,
    variants={
        "checkpointed": checkpointed,
        "chunked": chunked,
        "triton": Variant(triton_chunked, valid=fits, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    gradients=("x", "weight"),
    impostors={
        "last_chunk": Variant(last_chunk, valid=some),
        "unscaled": Variant(unscaled, valid=some),
        "mean_of_chunks": Variant(mean_of_chunks, valid=uneven),
        "half_of_x": Variant(half_of_x, valid=some),
    },
    tolerance={**REASSOCIATED, "float32": Tolerance(rtol=1e-5, rel_l2=1e-6)},
    # The gradient of the logits is rounded before the loss's own comes to it, not after, and in chunks: other terms of sums that cancel. Words
    # that are no target have gradients a hundred times smaller than those that are, hence a limit for each row.
    gradient_tolerance={
        **REASSOCIATED,
        "float32": Tolerance(rtol=1e-4, atol_rms=1e-4, rel_l2=1e-5),
        "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=4e-2, rms_by_row=True),
    },
    cost=cost,
    source="linkedin/Liger-Kernel fused_linear_cross_entropy, apple/ml-cross-entropy",
    claims=[
        Claim(
            device="NVIDIA B200",
            peak_gib=(7.22, 2.64),
            source="linkedin/Liger-Kernel README: a scaled cross entropy, full step",
            cases=[dict(REAL[0], direction="fwd_bwd")],
            shape="which is not said there",
        ),
    ],
)
