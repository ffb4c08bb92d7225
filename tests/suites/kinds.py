"""Outputs of many kinds, each with a variant that is right and one that is wrong."""

from dataclasses import dataclass
from typing import Any

import torch

from pairbench import Operator, Tolerance, grid


@dataclass
class Out:
    out: Any
    rest: Any = None


def declare(name, baseline, right, wrong, make_inputs=None, **more):
    return Operator(
        name,
        baseline=baseline,
        variants={"right": right, "wrong": wrong},
        inputs=make_inputs or (lambda make, n: {"x": make.normal(n, n)}),
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
)
array = declare("array", lambda x: x.numpy() * 2, lambda x: (x + x).numpy(), lambda x: x.numpy() * 3)
data = declare(
    "data",
    lambda x: Out(x * 2, x.sum().item()),
    lambda x: Out(x + x, x.T.sum().item()),
    lambda x: Out(x * 2, x.sum().item() + 1),
)
keys = declare("keys", lambda x: {"a": x + 1, "b": x}, lambda x: {"b": x, "a": 1 + x}, lambda x: {"b": x + 1, "a": x})
zero = declare(
    "zero",
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]).mean(-1),
    lambda x: x.new_zeros(len(x)),
    lambda x: x.new_ones(len(x)),
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
undeclared = declare("undeclared", random.baseline, random.variants["right"], once)
generator = declare("generator", lambda x: (one for one in x), lambda x: (one for one in x), lambda x: x)
