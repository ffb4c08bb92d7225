"""Operators with gradients: right ones, and one of each mistake in a backward."""

import torch
import torch.nn.functional as F

from pairbench import REASSOCIATED, Operator, Variant, grid


def inputs(make, tokens, hidden):
    return {"x": make.normal(tokens, hidden), "weight": make.normal(hidden, mean=1.0, scale=0.1)}


def plain(x, weight):
    """RMS norm, step by step."""
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def library(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        through = gradient * weight
        return scale * (through - normed * (through * normed).mean(-1, keepdim=True)), (gradient * normed).sum(0)


def function(x, weight):
    return _Norm.apply(x, weight)


def in_place(x, weight):
    y = x.clone()
    y.mul_((x.square().mean(-1, keepdim=True) + 1e-6).rsqrt())
    return y * weight


def detached(x, weight):
    return plain(x.detach(), weight.detach())


class _OneWay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        return plain(x, weight)


def one_way(x, weight):
    return _OneWay.apply(x, weight)


class _Forgetful(_Norm):
    @staticmethod
    def backward(ctx, gradient):
        return _Norm.backward(ctx, gradient)[0], None


def forgetful(x, weight):
    return _Forgetful.apply(x, weight)


def accumulates(x, weight):
    y = plain(x, weight)
    y.sum().backward(retain_graph=True)
    return y


class _Overwrites(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        ctx.save_for_backward(x, weight)
        return x * ctx.scale * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        normed = x * ctx.scale
        through = gradient * weight
        found = ctx.scale * (through - normed * (through * normed).mean(-1, keepdim=True)), (gradient * normed).sum(0)
        ctx.scale.mul_(2)
        return found


def overwrites(x, weight):
    return _Overwrites.apply(x, weight)


class _Unscaled(_Norm):
    @staticmethod
    def backward(ctx, gradient):
        return _Norm.backward(ctx, torch.ones_like(gradient))


def unscaled(x, weight):
    return _Unscaled.apply(x, weight)


def cost(tokens, hidden, direction):
    return 8.0 * tokens * hidden, {"fwd": 8.0, "bwd": 12.0, "fwd_bwd": 20.0}[direction] * tokens * hidden


class _Greedy(_Norm):
    @staticmethod
    def backward(ctx, gradient):
        found = _Norm.backward(ctx, gradient)
        gradient.zero_()
        return found


def greedy(x, weight):
    return _Greedy.apply(x, weight)


class Strange(torch.Tensor):
    """A kind of tensor of the suite's own."""


class _Lazy(_Norm):
    @staticmethod
    def backward(ctx, gradient):
        of_x, of_weight = _Norm.backward(ctx, gradient)
        return of_x.as_subclass(Strange), of_weight


def lazy(x, weight):
    return _Lazy.apply(x, weight)


_SEEN = {}


class _Remembers(_Norm):
    @staticmethod
    def backward(ctx, gradient):
        x, weight, _ = ctx.saved_tensors
        key = float(x[0, 0]), float(gradient[0, 0])
        if key not in _SEEN:
            for _ in range(400):  # long enough to be told from a look into a dictionary
                found = _Norm.backward(ctx, gradient)
            _SEEN[key] = found
        return tuple(one.clone() for one in _SEEN[key])


def remembers(x, weight):
    return _Remembers.apply(x, weight)


CASES = {"smoke": grid(tokens=[6], hidden=[32])}
GRADIENTS = dict(gradients=("x", "weight"), tolerance=REASSOCIATED)


def twin(x, weight):
    """The baseline once more."""
    return plain(x, weight)


right = Operator(
    "right",
    baseline=plain,
    variants={"twin": twin, "library": library, "function": function, "in_place": in_place},
    inputs=inputs,
    cases=CASES,
    impostors={"unscaled": Variant(unscaled, valid=lambda **_: True)},
    cost=cost,
    **GRADIENTS,
)

wrong = Operator(
    "wrong",
    baseline=plain,
    variants={
        "detached": detached,
        "one_way": one_way,
        "forgetful": forgetful,
        "accumulates": accumulates,
        "overwrites": overwrites,
        "unscaled": unscaled,
        "greedy": greedy,
        "lazy": lazy,
    },
    inputs=inputs,
    cases=CASES,
    **GRADIENTS,
)


remembering = Operator(
    "remembering",
    baseline=plain,
    variants={"good": function, "remembers": remembers},
    inputs=inputs,
    cases={"smoke": [dict(tokens=6, hidden=32, direction="bwd")]},
    **GRADIENTS,
)


def module_inputs(make, tokens, hidden):
    torch.nn.init.normal_((module := torch.nn.Linear(hidden, 3, device=make.device)).bias)
    return {"x": make.normal(tokens, hidden), "module": module}


def through(x, module):
    """Of two outputs, through an input that is used twice."""
    y = module(x)
    return {"y": y.relu(), "more": (x * x).sum(-1) + y.sum(-1)}


def by_hand(x, module):
    y = x @ module.weight.T + module.bias
    return {"y": y.clamp(min=0), "more": x.square().sum(-1) + y.sum(-1)}


modules = Operator(
    "modules",
    baseline=through,
    variants={"by_hand": by_hand},
    inputs=module_inputs,
    cases=CASES,
    gradients=("x", "module.weight", "module.bias"),
    tolerance=REASSOCIATED,
)


def own_inputs(make, tokens, hidden):
    return {name: value.requires_grad_() for name, value in inputs(make, tokens, hidden).items()}


def own_backward(x, weight):
    """Differentiates itself, which torch adds up."""
    plain(x, weight).sum().backward()
    return x.grad


undeclared = Operator(
    "undeclared", baseline=own_backward, variants={"same": own_backward}, inputs=own_inputs, cases=CASES
)
