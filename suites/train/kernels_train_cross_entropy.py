"""Triton kernels of cross entropy in training, for vocabularies of a hundred thousand and more.

Forward goes over a row of logits once, with a running maximum and sum, and keeps one number of it: nothing of the row's size is written, where
PyTorch writes it in float32 and again as log-probabilities. Backward computes the gradient from the logits and that number.
`losses_and_gradients` does both for logits that nobody needs afterwards, and writes the gradient over them.
"""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None


def cross_entropy(logits, target, ignore):
    """The mean of the losses of tokens whose target is not `ignore`."""
    return _CrossEntropy.apply(logits, target, ignore)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, ignore):
        logits = logits.contiguous()
        counted = (target != ignore).sum().clamp(min=1).float()
        losses, levels = _losses(logits, target, ignore)
        ctx.save_for_backward(logits, target, levels, counted)
        ctx.ignore = ignore
        return losses.sum() / counted

    @staticmethod
    def backward(ctx, gradient):
        logits, target, levels, counted = ctx.saved_tensors
        out = torch.empty_like(logits)
        _gradients(logits, target, levels, gradient.float() / counted, out, ctx.ignore)
        return out, None, None


def losses_and_gradients(logits, target, scale, ignore):
    """Return the losses of rows, and write `scale` times the gradient of their sum over the logits."""
    losses, levels = _losses(logits, target, ignore)
    _gradients(logits, target, levels, scale, logits, ignore)
    return losses


def _losses(logits, target, ignore):
    rows, count = logits.shape
    losses, levels = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    if rows:
        _lose[(rows,)](logits, target, losses, levels, IGNORE=ignore, COUNT=count, BLOCK=_block(count), num_warps=8)
    return losses, levels


def _gradients(logits, target, levels, scale, out, ignore):
    rows, count = logits.shape
    if rows:
        grid = (rows, triton.cdiv(count, _block(count)))
        _differentiate[grid](
            logits, target, levels, scale, out,
            IGNORE=ignore, COUNT=count, BLOCK=_block(count), BY_HAND=INTERPRETED, num_warps=8,
        )  # fmt: skip


def _block(count):
    return min(4096, triton.next_power_of_2(count))


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _lose(logits, target, losses, levels, IGNORE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    wanted = tl.load(target + row)
    top = -float("inf")
    total = 0.0
    for start in range(0, COUNT, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(logits + row * COUNT + column, mask=column < COUNT, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    level = top + tl.log(total)
    tl.store(levels + row, level)
    counts = wanted != IGNORE
    own = tl.load(logits + row * COUNT + tl.where(counts, wanted, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(counts, level - own, 0.0))


@_jit
def _differentiate(
    logits, target, levels, scale, out,
    IGNORE: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < COUNT
    wanted = tl.load(target + row)
    value = tl.load(logits + row * COUNT + column, mask=inside, other=-float("inf")).to(tl.float32)
    part = tl.exp(value - tl.load(levels + row)) - tl.where(column == wanted, 1.0, 0.0)
    part = tl.where(wanted != IGNORE, part * tl.load(scale), 0.0)
    tl.store(out + row * COUNT + column, rounded(part, out.dtype.element_ty, BY_HAND), mask=inside)
