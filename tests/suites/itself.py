"""Implementations against themselves: every speedup is 1, so what is measured is the noise of measuring."""

import torch

from pairbench import Cost, Operator, grid


def add_inputs(make, n):
    return {"x": make.normal(n), "y": make.normal(n)}


def plus(x, y):
    return x + y


add = Operator(
    "add",
    baseline=plus,
    variants={"same": plus},
    inputs=add_inputs,
    cases={
        "smoke": grid(n=[1 << 12]),
        "real": grid(n=[1 << 16, 1 << 18, 1 << 24, 1 << 25, 1 << 27]),
    },
    cost=lambda n: Cost(flops=n, bytes=12 * n),
)


def product_inputs(make, n, dtype):
    return {"x": make.normal(n, n, dtype=dtype), "y": make.normal(n, n, dtype=dtype)}


def matmul(x, y):
    return x @ y


product = Operator(
    "product",
    baseline=matmul,
    variants={"same": matmul},
    inputs=product_inputs,
    cases={
        "smoke": grid(n=[32], dtype=["float32"]),
        "real": grid(n=[4096, 8192], dtype=["bfloat16"]),
    },
    cost=lambda n, dtype: Cost(flops=2 * n**3, bytes=3 * n * n * 2),
)


def chain(x):
    for _ in range(6):
        x = torch.sin(x) * 1.01
    return x


several = Operator(
    "several",
    baseline=chain,
    variants={"same": chain},
    inputs=lambda make, n: {"x": make.normal(n)},
    # Far beyond any L2: with 1 << 22, three tensors are as large as that of an H100, and one process's luck with addresses is a percent.
    cases={"smoke": grid(n=[1 << 10]), "real": grid(n=[1 << 24])},
)
