"""Kernels that write into their inputs to save memory, as those of training libraries do, and a baseline that does so undeclared."""

import torch
import torch.nn.functional as F

from pairbench import REASSOCIATED, Operator, Variant, grid


class _SwiGLU(torch.autograd.Function):
    """Its backward writes the gradients into what it has saved: the inputs."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        share = torch.sigmoid(a)
        of_b = gradient * F.silu(a)
        # .data, as a kernel's stores: autograd counts no version.
        a.data.copy_(gradient * b * share * (1 + a * (1 - share)))
        b.data.copy_(of_b)
        return a, b


class _CrossEntropy(torch.autograd.Function):
    """Its forward writes the gradient into the logits, and its backward scales it there."""

    @staticmethod
    def forward(ctx, logits, target):
        loss = F.cross_entropy(logits, target)
        logits.data.copy_((torch.softmax(logits, -1) - F.one_hot(target, logits.shape[-1])) / len(target))
        ctx.save_for_backward(logits)
        return loss

    @staticmethod
    def backward(ctx, gradient):
        (saved,) = ctx.saved_tensors
        saved.data.mul_(gradient)
        return saved, None


class _SquareOfSum(torch.autograd.Function):
    """Its backward scales what it has saved, which is no input, and writes the result into the output's gradient."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(2 * (a + b))
        return (a + b).square()

    @staticmethod
    def backward(ctx, gradient):
        (saved,) = ctx.saved_tensors
        saved.data.mul_(gradient)
        gradient.data.copy_(saved)
        return gradient, saved


def two(make, rows):
    return {"a": make.normal(rows, 16), "b": make.normal(rows, 16)}


def plain_swiglu(a, b):
    """SwiGLU, step by step."""
    return F.silu(a) * b


def swiglu_in_place(a, b):
    return _SwiGLU.apply(a, b)


swiglu = Operator(
    "swiglu",
    baseline=plain_swiglu,
    variants={
        "in_place": Variant(swiglu_in_place, consumes=["a", "b"]),
        "undeclared": swiglu_in_place,
        "twin": plain_swiglu,
    },
    inputs=two,
    cases=grid(rows=[4]),
    gradients=["a", "b"],
    tolerance=REASSOCIATED,
)


def plain_cross_entropy(logits, target):
    return F.cross_entropy(logits, target)


def in_logits(logits, target):
    return _CrossEntropy.apply(logits, target)


cross_entropy = Operator(
    "cross_entropy",
    baseline=plain_cross_entropy,
    variants={
        "in_logits": Variant(in_logits, consumes=["logits"]),
        "too_much": Variant(in_logits, consumes=["logits", "target"]),
        "undeclared": in_logits,
    },
    inputs=lambda make, rows: {"logits": make.normal(rows, 16), "target": make.integers(rows, high=16)},
    cases=grid(rows=[4]),
    gradients=["logits"],
    tolerance=REASSOCIATED,
)


def in_gradient(a, b):
    return _SquareOfSum.apply(a, b)


square = Operator(
    "square",
    baseline=lambda a, b: (a + b).square(),
    variants={
        "in_gradient": Variant(in_gradient, consumes=["output gradient", "saved tensors"]),
        "undeclared": in_gradient,
        "half": Variant(in_gradient, consumes=["output gradient"]),
    },
    inputs=two,
    cases=grid(rows=[4]),
    gradients=["a", "b"],
    tolerance=REASSOCIATED,
)


def halved(a, b):
    return a.mul_(0.5).add_(b)


def behind_the_counter(a, b):
    a.data.mul_(0.5)
    return a + b


def doubled(a, b):
    return a.mul_(2).add_(b)


scaled = Operator(
    "scaled",
    baseline=halved,
    variants={
        "apart": lambda a, b: a * 0.5 + b,
        "same": Variant(behind_the_counter, consumes=["a"]),
        "wrong": Variant(doubled, consumes=["a"]),
        "undeclared": halved,
    },
    inputs=two,
    cases=grid(rows=[4]),
    consumes=["a"],
    impostors={"doubled": Variant(doubled, consumes=["a"])},
)


def refused_baseline(a, b):
    b.add_(1)
    return a * 2


refused = Operator(
    "refused", baseline=refused_baseline, variants={"v": lambda a, b: a + a}, inputs=two, cases=grid(rows=[4])
)
