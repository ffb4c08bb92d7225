"""Ordinary operators of 4 us to 3 ms, some of them bound by the host: what a repeated run must find the same.

Nothing here is tuned. `launches` and small cases of the others issue more work than the device is busy with.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from pairbench import EXACT, REASSOCIATED, Operator, Tolerance, Variant, grid

LOOSE = Tolerance(rtol=2e-2, atol=2e-2)


def gelu_by_hand(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


gelu = Operator(
    "gelu",
    baseline=gelu_by_hand,
    variants={"fused": lambda x: F.gelu(x, approximate="tanh")},
    inputs=lambda make, n, dtype: {"x": make.normal(n, dtype=dtype)},
    cases={"real": grid(n=[2**14, 2**20, 2**24, 2**27], dtype=["float32"])},
    tolerance=REASSOCIATED,
)


def norm_by_hand(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias


layer_norm = Operator(
    "layer_norm",
    baseline=norm_by_hand,
    variants={"fused": lambda x, weight, bias: F.layer_norm(x, (x.shape[-1],), weight, bias)},
    inputs=lambda make, rows, width: {
        "x": make.normal(rows, width),
        "weight": make.normal(width),
        "bias": make.normal(width),
    },
    cases={"real": grid(rows=[16, 2048, 65536], width=[1024])},
    constants=["weight", "bias"],
    tolerance=REASSOCIATED,
)

product = Operator(
    "product",
    baseline=lambda x, weight, bias: x @ weight + bias,
    variants={"fused": lambda x, weight, bias: torch.addmm(bias, x, weight)},
    inputs=lambda make, n: {
        "x": make.normal(n, n, dtype="bfloat16"),
        "weight": make.normal(n, n, dtype="bfloat16", scale=n**-0.5),
        "bias": make.normal(n, dtype="bfloat16"),
    },
    cases={"real": grid(n=[256, 1024, 4096, 8192])},
    constants=["weight", "bias"],
    tolerance=LOOSE,
)

softmax = Operator(
    "softmax",
    baseline=lambda x: (e := torch.exp(x - x.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True),
    variants={"fused": lambda x: torch.softmax(x, -1)},
    inputs=lambda make, rows, width: {"x": make.normal(rows, width)},
    cases={"real": grid(rows=[64, 4096], width=[4096])},
    tolerance=REASSOCIATED,
)


def one_by_one(x):
    for _ in range(20):
        x = x * 1.0001 + 0.1
    return x


launches = Operator(
    "launches",
    baseline=one_by_one,
    variants={"in_place": lambda x: _in_place(x.clone())},
    inputs=lambda make, n: {"x": make.normal(n)},
    cases={"real": grid(n=[1024, 2**22])},
    tolerance=REASSOCIATED,
)


def _in_place(x):
    for _ in range(20):
        x.mul_(1.0001).add_(0.1)
    return x


@triton.jit
def doubled_kernel(source, target, n, tiles, BLOCK: tl.constexpr):
    place = (tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + place, 2 * tl.load(source + place, mask=place < n), mask=place < n)


def doubled(x, more=0.0):
    """Double each element; `more` is the part of the tiles that are worked on a second time."""
    target, tiles = torch.empty_like(x), triton.cdiv(x.numel(), 4096)
    doubled_kernel[(int((1 + more) * tiles),)](x, target, x.numel(), tiles, BLOCK=4096)
    return target


def twice(name, variant):
    return Operator(
        name,
        baseline=lambda x: x + x,
        variants={"tiled": Variant(variant, needs="cuda")},
        inputs=lambda make, n: {"x": make.normal(n)},
        cases={"real": grid(n=[2**24, 2**27])},
        tolerance=EXACT,
    )


twice_a = twice("twice_a", lambda x: doubled(x))
twice_b = twice("twice_b", lambda x: doubled(x))
