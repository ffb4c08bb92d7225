"""What the training suites share: widths of models, costs by direction, gradients spoilt on purpose.

Llama 3 8B and 70B, Qwen 2.5 0.5B, 7B and 32B: hidden and intermediate sizes, query and key heads of 128, vocabulary. A direction is an
axis that `gradients=` adds to each case; a cost is therefore a function of it.
"""

from __future__ import annotations

import torch

from pairbench import Cost

LLAMA_8B = dict(hidden=4096, intermediate=14336, heads=32, kv_heads=8, vocabulary=128256)
LLAMA_70B = dict(hidden=8192, intermediate=28672, heads=64, kv_heads=8, vocabulary=128256)
QWEN_05B = dict(hidden=896, intermediate=4864, heads=14, kv_heads=2, vocabulary=151936)
QWEN_7B = dict(hidden=3584, intermediate=18944, heads=28, kv_heads=4, vocabulary=152064)
QWEN_32B = dict(hidden=5120, intermediate=27648, heads=40, kv_heads=8, vocabulary=152064)


def of(model, *names):
    """Return some of a model's sizes as axes."""
    return {name: model[name] for name in names}


def cost_of(direction, *, flops, backward_flops, inputs, outputs, gradients):
    """Return the least work of a direction: everything read once and written once, in bytes.

    Backward reads the inputs and a gradient for each output, and writes the gradients; both together read the inputs once.
    """
    moved = {
        "fwd": inputs + outputs,
        "bwd": inputs + outputs + gradients,
        "fwd_bwd": inputs + 2 * outputs + gradients,
    }[direction]
    done = {"fwd": flops, "bwd": backward_flops, "fwd_bwd": flops + backward_flops}[direction]
    return Cost(flops=float(done), bytes=float(moved))


def size_of(dtype):
    return getattr(torch, dtype).itemsize


def wide(x):
    """Return x in float32, or as it is in float64."""
    return x if x.dtype == torch.float64 else x.float()


class _Spoilt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


def spoilt(x, change):
    """Return x, with a gradient that `change` makes of the right one."""
    return _Spoilt.apply(x, change)


def computes_in_float32(x):
    """Return True where the Triton kernels take x, or a sentence."""
    return True if x.dtype != torch.float64 else "float64; the kernel computes in float32"
