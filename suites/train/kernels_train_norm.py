"""Triton kernels of norms in training: RMS norm, layer norm, and RMS norm behind an addition, forward and backward.

Forward reads a row once and keeps two numbers of it, or one. Backward reads the row and its gradient once. The gradients of weight and bias are sums over
all rows: each program goes through rows of its own and keeps its sum in registers, in float32, and torch adds up the sums of programs.
Published kernels (Liger, Apex) do the same. What autograd keeps of the steps by hand is two to four rows in float32 instead.
"""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

LONGEST = 16384
"""Values of the longest row that registers hold."""


def rms_norm(x, weight, eps):
    """RMS norm of rows of [tokens, hidden], one kernel each way."""
    return _Norm.apply(x, None, weight, None, eps)[0]


def layer_norm(x, weight, bias, eps):
    """Layer norm of rows, one kernel each way."""
    return _Norm.apply(x, None, weight, bias, eps)[0]


def add_rms_norm(x, residual, weight, eps):
    """The sum of two streams, and its RMS norm: one kernel each way."""
    return _Norm.apply(x, residual, weight, None, eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        x = x.contiguous()
        residual = None if residual is None else residual.contiguous()
        rows, hidden = x.shape
        out = torch.empty_like(x)
        total = x if residual is None else torch.empty_like(x)
        mean = None if bias is None else torch.empty(rows, dtype=torch.float32, device=x.device)
        factor = torch.empty(rows, dtype=torch.float32, device=x.device)
        if rows:
            _forward[(rows,)](
                x, residual, weight, bias, out, total, mean, factor, eps,
                DIM=hidden, BLOCK=triton.next_power_of_2(hidden), ADD=residual is not None, LAYER=bias is not None,
                BY_HAND=INTERPRETED, num_warps=_warps(hidden),
            )  # fmt: skip
        ctx.save_for_backward(total, weight, mean, factor)
        ctx.added = residual is not None
        return (out, total) if ctx.added else (out,)

    @staticmethod
    def backward(ctx, gradient, of_total=None):
        total, weight, mean, factor = ctx.saved_tensors
        rows, hidden = total.shape
        gradient = gradient.contiguous()
        of_total = None if of_total is None else of_total.contiguous()
        programs = min(rows, _programs(total.device))
        of_x = torch.empty_like(total)
        sums = torch.empty(programs, hidden, dtype=torch.float32, device=total.device)
        of_bias = None if mean is None else torch.empty_like(sums)
        if rows:
            _backward[(programs,)](
                total, weight, mean, factor, gradient, of_total, of_x, sums, of_bias, rows, programs,
                DIM=hidden, BLOCK=triton.next_power_of_2(hidden), ADD=ctx.added, LAYER=mean is not None,
                BY_HAND=INTERPRETED, num_warps=_warps(hidden),
            )  # fmt: skip
        of_weight = sums.sum(0).to(weight.dtype)
        of_bias = None if of_bias is None else of_bias.sum(0).to(weight.dtype)
        return of_x, of_x if ctx.added else None, of_weight, of_bias, None


def _warps(hidden):
    return min(16, max(1, triton.next_power_of_2(hidden) // 512))


def _programs(device):
    """Return how many programs go through the rows of a backward: as many as run at once."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _forward(
    x, residual, weight, bias, out, total, mean, factor, eps,
    DIM: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, LAYER: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < DIM
    at = row * DIM + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        kept = rounded(value, total.dtype.element_ty, BY_HAND)
        tl.store(total + at, kept, mask=inside)
        value = kept.to(tl.float32)  # the norm is of what the stream holds
    if LAYER:
        middle = tl.sum(value, 0) / DIM
        tl.store(mean + row, middle)
        value = tl.where(inside, value - middle, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / DIM + eps)
    tl.store(factor + row, scale)
    result = value * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if LAYER:
        result += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, rounded(result, out.dtype.element_ty, BY_HAND), mask=inside)


@_jit
def _backward(
    total, weight, mean, factor, gradient, of_total, of_x, sums, of_bias, rows, programs,
    DIM: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, LAYER: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < DIM
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    of_weights = tl.zeros([BLOCK], dtype=tl.float32)
    of_biases = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(program, rows, programs):
        at = row * DIM + column
        value = tl.load(total + at, mask=inside, other=0.0).to(tl.float32)
        given = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(factor + row)
        if LAYER:
            value = tl.where(inside, value - tl.load(mean + row), 0.0)
            of_biases += given
        normed = value * scale
        of_weights += given * normed
        through = given * weights
        result = through - normed * (tl.sum(through * normed, 0) / DIM)
        if LAYER:
            result -= tl.sum(through, 0) / DIM
        result *= scale
        if ADD:
            result += tl.load(of_total + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(of_x + at, rounded(result, of_x.dtype.element_ty, BY_HAND), mask=inside)
    tl.store(sums + program * DIM + column, of_weights, mask=inside)
    if LAYER:
        tl.store(of_bias + program * DIM + column, of_biases, mask=inside)
