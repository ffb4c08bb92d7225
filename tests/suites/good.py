"""Pairs that are right: several outputs as a tuple and as a dict, weights laid out in advance, state."""

import torch

from pairbench import Cost, Operator, Variant, grid


def inputs(make, rows, columns, dtype):
    return {"x": make.normal(rows, columns, dtype=dtype)}


def cost(rows, columns, dtype):
    count = rows * columns
    return Cost(flops=count, bytes=4 * count * 3)


def both_shifts(x):
    return x + 1, x - 1


def both_shifts_scaled(x):
    return torch.add(x, 1), torch.sub(x, 1)


shifts = Operator(
    "shifts",
    baseline=both_shifts,
    variants={"named": both_shifts_scaled},
    inputs=inputs,
    cases={
        "edge": grid(rows=[1], columns=[1], dtype=["float32"]),
        "smoke": grid(rows=[4, 8], columns=[16], dtype=["float32"]),
        "real": grid(rows=[64], columns=[64], dtype=["float32"]),
    },
    impostors={"twice": lambda x: (x + 2, x - 2), "swapped": lambda x: (x - 1, x + 1)},
    cost=cost,
    source="made up",
)


extremes = Operator(
    "extremes",
    baseline=lambda x: {"low": x.min(dim=1).values, "high": x.max(dim=1).values},
    variants={"one_pass": lambda x: dict(zip(("low", "high"), torch.aminmax(x, dim=1), strict=True))},
    inputs=inputs,
    cases=grid(rows=[4, 8], columns=[16], dtype=["float32"]),
)


def linear_inputs(make, rows, columns, dtype):
    return {
        "x": make.normal(rows, columns, dtype=dtype),
        "weight": make.normal(columns, columns, dtype=dtype),
        "bias": make.uniform(columns, dtype=dtype),
    }


def transpose(weight):
    return {"weight": weight.t().contiguous()}


linear = Operator(
    "linear",
    baseline=lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias),
    variants={
        "transposed": Variant(lambda x, weight, bias: torch.addmm(bias, x, weight), prepare=transpose),
        "even_rows": Variant(
            lambda x, weight, bias: x @ weight.t() + bias,
            valid=lambda x, **_: x.shape[0] % 2 == 0 or f"{x.shape[0]} rows are odd",
        ),
    },
    inputs=linear_inputs,
    cases=grid(rows=[4, 5], columns=[16], dtype=["float32"]),
    constants=["weight"],
)


def total_inputs(make, rows, columns, dtype):
    return {"total": make.zeros(rows, columns, dtype=dtype), "x": make.normal(rows, columns, dtype=dtype)}


def add_outside(total, x):
    total.copy_(total + x)
    return total * 2


def add_inside(total, x):
    return total.add_(x) * 2


running_total = Operator(
    "running_total",
    baseline=add_outside,
    variants={"in_place": add_inside},
    inputs=total_inputs,
    cases=grid(rows=[4], columns=[16], dtype=["float32"]),
    state=["total"],
)
