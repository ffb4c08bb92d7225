"""Outputs that are compared by rules of their own, each with a variant that is right and one that is wrong."""

import torch

from pairbench import Operator, Tolerance, grid


def declare(name, baseline, right, wrong, make_inputs, **more):
    return Operator(
        name,
        baseline=baseline,
        variants={"right": right, "wrong": wrong},
        inputs=make_inputs,
        cases={"smoke": grid(n=[32])},
        **more,
    )


def backwards(x):
    values, found = x.flip(-1).sort(descending=True, stable=True)
    return values[:, :8], (31 - found)[:, :8]


def once(x, kept={}):  # noqa: B006
    return x * kept.setdefault("mask", (torch.rand_like(x) < 0.5) * 2.0)


sparse = declare(
    "sparse",
    lambda x: x.relu().to_sparse(),
    lambda x: x.clamp(min=0).to_sparse(),
    lambda x: (x.relu() * 1.1).to_sparse(),
    lambda make, n: {"x": make.normal(n, n)},
)
ties = declare(
    "ties",
    lambda x: tuple(x.topk(8)),
    backwards,
    lambda x: (x.topk(8).values, (x.topk(8).indices + 1) % 32),
    lambda make, n: {"x": make.integers(n, n, high=8).float()},
    tolerance={"int64": Tolerance(ties="x")},
)
random = declare(
    "random",
    lambda x: torch.nn.functional.dropout(x, 0.5, True),
    lambda x: x * (torch.rand_like(x) < 0.5) * 2,
    once,
    lambda make, n: {"x": make.uniform(n, n, low=1, high=2)},
    tolerance=Tolerance(random=64),
)
