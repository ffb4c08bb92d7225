"""The feed-forward layer of a diffusion transformer, whose activation a matrix product can end with.

Behind the first of two products, GELU reads and writes the widest tensor of the whole model again. Libraries have
products that activate what they write; in PyTorch one is in reach, `torch._addmm_activation`.

Two contracts. `linear_gelu`, `x` of [batch, tokens, inner] and `weight` of [features, inner]:

    out = gelu(x @ weight.T + bias), gelu(z) = 0.5 z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))

which is the approximation that Wan's checkpoints were trained with; the exact GELU, with erf, differs by up to 5e-4. A
published layer rounds z to its dtype and then gelu(z); an epilogue rounds once. `ffn` is that and a second product.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from kernels_ffn import gelu_product

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant, grid

HALF = (torch.float16, torch.bfloat16)
CHUNK_BYTES = 2**25
"""Of hidden values at a time in `in_chunks`: they fit into an H200's second-level cache, 50 MB, beside weights."""


def inputs(make, tokens, inner, features, dtype, batch=1, bias=True, layout="contiguous", scale=1.0):
    x = make.normal(batch, tokens, 2 * inner if layout == "sliced" else inner, dtype=dtype, scale=scale)
    weight = _weight(make, features, inner, dtype, layout)
    return {"x": x[..., :inner], "weight": weight, "bias": make.normal(features, dtype=dtype) if bias else None}


def ffn_inputs(make, tokens, inner, features, dtype, batch=1, bias=True, layout="contiguous"):
    up = inputs(make, tokens, inner, features, dtype, batch, bias, layout)
    return {
        "x": up["x"],
        "up": up["weight"],
        "up_bias": up["bias"],
        "down": _weight(make, inner, features, dtype, layout),
        "down_bias": make.normal(inner, dtype=dtype) if bias else None,
    }


def _weight(make, features, inner, dtype, layout):
    """Return a matrix of [features, inner] that keeps the variance of what it multiplies."""
    if layout == "transposed_weight":
        return make.normal(inner, features, dtype=dtype, scale=inner**-0.5).T
    return make.normal(features, inner, dtype=dtype, scale=inner**-0.5)


def cost(tokens, inner, features, dtype, batch=1, bias=True, **_):
    rows = batch * tokens
    values = rows * inner + features * (inner + bias) + rows * features
    return Cost(flops=2.0 * rows * inner * features, bytes=float(values * getattr(torch, dtype).itemsize))


def ffn_cost(tokens, inner, features, dtype, batch=1, bias=True, **_):
    rows = batch * tokens
    values = 2 * rows * inner + 2 * features * inner + bias * (features + inner)
    return Cost(flops=4.0 * rows * inner * features, bytes=float(values * getattr(torch, dtype).itemsize))


# Implementations


def linear_then_gelu(x, weight, bias):
    """The published layer: two calls."""
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def in_place(x, weight, bias):
    """The activation written over what it was made of: half the memory, and as many bytes to move."""
    return torch.ops.aten.gelu_(F.linear(x, weight, bias), approximate="tanh")


def epilogue(x, weight, bias):
    """The activation as the end of the library's product (cublasLt)."""
    out = torch._addmm_activation(bias, x.flatten(0, -2), weight.T, use_gelu=True)  # noqa: SLF001 (no public name)
    return out.unflatten(0, x.shape[:-1])


def _layer(activated):
    """Return the feed-forward layer with that as its first product."""

    def layer(x, up, up_bias, down, down_bias):
        """Two products with the activation between them."""
        return F.linear(activated(x, up, up_bias), down, down_bias)

    return layer


def in_chunks(x, up, up_bias, down, down_bias):
    """The published layer for some rows at a time, so that hidden values stay in the cache and their memory is small."""
    rows = x.flatten(0, -2)
    out = torch.empty((rows.shape[0], down.shape[0]), dtype=x.dtype, device=x.device)
    for first in range(0, rows.shape[0], _rows_at_once(x, up)):
        some = slice(first, first + _rows_at_once(x, up))
        hidden = linear_then_gelu(rows[some], up, up_bias)
        if down_bias is None:
            torch.mm(hidden, down.T, out=out[some])
        else:
            torch.addmm(down_bias, hidden, down.T, out=out[some])
    return out.unflatten(0, x.shape[:-1])


def _rows_at_once(x, up):
    """Return a multiple of the rows that matrix kernels take at once."""
    return max(128, CHUNK_BYTES // (up.shape[0] * x.element_size()) // 128 * 128)


# What is valid


def has_epilogue(x, bias, **_):
    if not x.is_cuda:
        return "on a CPU _addmm_activation ends with the exact GELU, not with tanh's approximation"
    if torch.version.hip is not None:
        return "on ROCm nobody has shown which GELU the epilogue is"
    if x.dtype not in HALF:
        return f"{x.dtype}; the epilogue's tanh is right to 5e-6 only"
    if bias is None:
        return "no bias; the epilogue begins with one"
    return True


def ffn_has_epilogue(x, up_bias, **_):
    return has_epilogue(x, up_bias)


def has_tensor_cores(x, **_):
    return True if x.dtype in HALF else f"{x.dtype}; tensor cores would make it TF32, which is another precision"


def has_several_chunks(x, up, **_):
    rows, at_once = x.shape[0] * x.shape[1], _rows_at_once(x, up)
    return True if rows > at_once else f"{rows} rows are one chunk; that is the baseline"


# Independent oracles


def by_definition(x, weight, bias):
    """Write the activation out; some rows at a time, as the float64 of the steps in between would not fit otherwise."""
    rows = x.reshape(-1, x.shape[-1])
    out = rows.new_empty(rows.shape[0], weight.shape[0])
    for some, target in zip(rows.split(4096), out.split(4096), strict=True):
        z = some @ weight.T
        z = z if bias is None else z + bias
        target.copy_(0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))))
    return out.unflatten(0, x.shape[:-1])


def ffn_by_definition(x, up, up_bias, down, down_bias):
    out = torch.cat([by_definition(some, up, up_bias) @ down.T for some in x.split(4096, 1)], 1)
    return out if down_bias is None else out + down_bias


# Impostors


def exact_gelu(x, weight, bias):
    """Takes GELU for what its name says; the checkpoint was trained with the approximation."""
    return F.gelu(F.linear(x, weight, bias))


def forgotten_flag(x, weight, bias):
    """Leaves use_gelu out, and then it is ReLU."""
    return torch._addmm_activation(bias, x.flatten(0, -2), weight.T).unflatten(0, x.shape[:-1])  # noqa: SLF001


def sigmoid_gelu(x, weight, bias):
    """CLIP's approximation."""
    z = F.linear(x, weight, bias)
    return z * torch.sigmoid(1.702 * z)


def without_bias(x, weight, bias):
    return linear_then_gelu(x, weight, None)


def bias_after_gelu(x, weight, bias):
    """Adds the bias at the very end, where an epilogue would have the easier time."""
    return linear_then_gelu(x, weight, None) + bias


def shows_small_differences(x, weight, **_):
    """16 bits hide what is below their spacing, and a few values may all lie where both functions agree."""
    return x.dtype not in HALF and x.shape[0] * x.shape[1] * weight.shape[0] >= 256


def shows_differences(x, weight, **_):
    return x.shape[0] * x.shape[1] * weight.shape[0] >= 256


def is_near_the_bend(x, weight, **_):
    """Far out, every activation of this kind is ReLU."""
    return shows_differences(x, weight) and float(x.abs().max()) < 16


def has_bias(x, weight, bias, **_):
    return bias is not None and shows_differences(x, weight)


def ffn_has_bias(x, up, up_bias, **_):
    return has_bias(x, up, up_bias)


def ffn_shows_small_differences(x, up, **_):
    return shows_small_differences(x, up)


# Cases

TINY = dict(tokens=16, inner=32, features=64)

EDGE = [
    dict(**TINY, dtype="float64"),
    dict(tokens=0, inner=32, features=64, dtype="bfloat16"),
    dict(tokens=1, inner=32, features=64, dtype="bfloat16"),
    dict(tokens=1, inner=1, features=300, dtype="float32"),
    dict(batch=2, tokens=13, inner=33, features=71, dtype="bfloat16"),  # no multiple of anything
    dict(batch=3, tokens=50, inner=200, features=130, dtype="float16"),  # more than one tile of each
    dict(**TINY, bias=False, dtype="bfloat16"),
    dict(**TINY, bias=False, dtype="float32"),
    dict(**TINY, scale=30.0, dtype="float32"),  # far into both ends of the activation
    dict(**TINY, scale=30.0, dtype="float16"),
    dict(**TINY, layout="sliced", dtype="bfloat16"),
    dict(**TINY, layout="transposed_weight", dtype="bfloat16"),
]

SMOKE = [*grid(tokens=[16], inner=[32], features=[64], dtype=["float32", "bfloat16"])]

WAN_SMALL, WAN_TI2V = dict(inner=1536, features=8960), dict(inner=3072, features=14336)
WAN_LARGE = dict(inner=5120, features=13824)

REAL = [
    dict(**WAN_SMALL, tokens=2640, dtype="bfloat16"),  # Matrix-Game-2, a block of three frames
    dict(**WAN_SMALL, tokens=4680, dtype="bfloat16"),  # Self-Forcing
    dict(**WAN_SMALL, tokens=2640, dtype="float32"),
    dict(**WAN_SMALL, tokens=32, dtype="bfloat16"),
    dict(**WAN_TI2V, tokens=27280, dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=512, dtype="float16"),
]

HEADLINE = [
    dict(tokens=8192, inner=2048, features=8192, dtype="bfloat16"),
    dict(tokens=16384, inner=4096, features=16384, dtype="bfloat16"),
    dict(**WAN_SMALL, tokens=32760, dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=75600, dtype="bfloat16"),
]

linear_gelu = Operator(
    "linear_gelu",
    baseline=linear_then_gelu,
    variants={
        "in_place": in_place,
        "epilogue": Variant(epilogue, valid=has_epilogue),
        "triton": Variant(gelu_product, valid=has_tensor_cores, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "exact_gelu": Variant(exact_gelu, valid=shows_small_differences),
        "forgotten_flag": Variant(forgotten_flag, valid=has_bias),
        "sigmoid_gelu": Variant(sigmoid_gelu, valid=is_near_the_bend),
        "without_bias": Variant(without_bias, valid=has_bias),
        "bias_after_gelu": Variant(bias_after_gelu, valid=has_bias),
    },
    oracle=by_definition,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="sglang #28168, #33536",
    claims=[
        Claim(
            latency_ms=(1.826, 1.549),
            device="NVIDIA B200",
            source="sglang #28168",
            cases=[dict(tokens=16384, inner=4096, features=16384, dtype="bfloat16")],
            unmet="the activation moves 1.07 GB, 0.25 ms at 4.25 TB/s: without it 3.45 ms become 3.20, 1.08x and no more",
        ),
        Claim(
            latency_ms=(0.234, 0.189),
            device="NVIDIA B200",
            source="sglang #28168",
            cases=[dict(tokens=8192, inner=2048, features=8192, dtype="bfloat16")],
            shape="8192 rows of 2048; the other width is not said",
            unmet="the activation moves 268 MB, 63 us at 4.25 TB/s: without it 455 us become 392, 1.16x and no more",
        ),
        Claim(
            latency_ms=(0.23567, 0.29596),
            implementation="epilogue",
            device="a GPU of SM 12.0",
            source="sglang #34350",
            shape="slower there; sizes not said",
        ),
    ],
)

FFN_EDGE = [
    dict(**TINY, dtype="float64"),
    dict(tokens=0, inner=32, features=64, dtype="float32"),
    dict(tokens=1, inner=32, features=64, dtype="bfloat16"),
    dict(batch=2, tokens=13, inner=33, features=71, dtype="bfloat16"),
    dict(**TINY, bias=False, dtype="float32"),
    dict(**TINY, layout="sliced", dtype="bfloat16"),
    dict(**TINY, layout="transposed_weight", dtype="float32"),
    dict(batch=2, tokens=150, inner=4, features=65536, dtype="float32"),  # three chunks, the last not whole
]

ffn = Operator(
    "ffn_gelu",
    baseline=_layer(linear_then_gelu),
    variants={
        "in_place": _layer(in_place),
        "in_chunks": Variant(in_chunks, valid=has_several_chunks),
        "epilogue": Variant(_layer(epilogue), valid=ffn_has_epilogue),
        "triton": Variant(_layer(gelu_product), valid=has_tensor_cores, needs="triton"),
    },
    inputs=ffn_inputs,
    cases={
        "edge": FFN_EDGE,
        "smoke": SMOKE,
        "real": [
            dict(**WAN_SMALL, tokens=2640, dtype="bfloat16"),
            dict(**WAN_TI2V, tokens=27280, dtype="bfloat16"),
        ],
        "headline": [dict(**WAN_SMALL, tokens=32760, dtype="bfloat16")],
    },
    impostors={
        "exact_gelu": Variant(_layer(exact_gelu), valid=ffn_shows_small_differences),
        "forgotten_flag": Variant(_layer(forgotten_flag), valid=ffn_has_bias),
        "without_bias": Variant(_layer(without_bias), valid=ffn_has_bias),
    },
    oracle=ffn_by_definition,
    tolerance=REASSOCIATED,
    cost=ffn_cost,
    constants=["up", "up_bias", "down", "down_bias"],
    source="sglang #33536, #36592",
)
