"""RMS norm: a row divided by the root of its mean square, times a weight.

Written by hand it is eight kernels that move the row between them: to float32, squares, their mean, eps, the root's
reciprocal, the product, back to the row's type, the weight. PyTorch has it as one function, and one kernel of our own holds a
row in registers. Rows are as long as a model is wide (1536 to 5120), or as a head (128), where a kernel that gives each row a
program of its own has too little to do.

The contract: `x` is [..., dim], `weight` [dim]; sums are in float32, in float64 for float64. The plain form is Wan's and Llama's:
the normed row is rounded to x's type before it is multiplied with the weight. `torch.nn.RMSNorm` multiplies first and rounds
once. In exact numbers they are the same, in half types they differ by a spacing at most, so both are variants here; ours rounds
like the plain one. The result has x's type, or the wider one if the weight has another.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from kernels_norm_rms import LARGEST, rms_norm, row_stride

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant, grid

EPS = 1e-6


def inputs(make, shape, dtype, weight_dtype=None, eps=EPS, layout="packed", data="normal"):
    weight = make.normal(shape[-1], dtype=weight_dtype or dtype, mean=1.0, scale=0.2)
    return {"x": _rows(make, shape, dtype, layout, data), "weight": weight, "eps": eps}


def _rows(make, shape, dtype, layout, data):
    *leading, dim = shape
    if layout == "one_of_three":  # queries in a packed projection
        return make.normal(*leading, 3 * dim, dtype=dtype)[..., dim : 2 * dim]
    if layout == "every_other":
        return make.normal(*leading, 2 * dim, dtype=dtype)[..., ::2]
    if layout == "columns_first":
        return make.normal(*leading[::-1], dim, dtype=dtype).transpose(0, 1)
    scale = {"tiny": EPS**0.5, "large": 2000.0}.get(
        data, 1.0
    )  # tiny: the mean square is eps; large: a square is over 65504
    x = make.normal(*shape, dtype=dtype, scale=scale)
    if data == "zero_rows":
        x.view(-1, dim)[::2] = 0
    return x


def cost(shape, dtype, weight_dtype=None, **_):
    """A square and its sum, a product with the norm and one with the weight."""
    values, size = math.prod(shape), getattr(torch, dtype).itemsize
    scales = getattr(torch, weight_dtype or dtype).itemsize
    return Cost(flops=4.0 * values, bytes=float(values * (size + max(size, scales)) + shape[-1] * scales))


# -- implementations --------------------------------------------------------------------------------------------------


def by_hand(x, weight, eps):
    """Widen, square, mean, root, narrow and weigh, one kernel after the other, as published."""
    wide = _wide(x)
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return normed.type_as(x) * weight


def _wide(x):
    return x if x.dtype == torch.float64 else x.float()


def builtin(x, weight, eps):
    """PyTorch's own; the weight comes before the rounding."""
    return F.rms_norm(x, weight.shape, weight, eps)


def vector_norm(x, weight, eps):
    """Sum the squares with a norm that reads half types as they are, so that no float32 copy of x is made for it."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_wide(x[:0]).dtype)
    factor = torch.rsqrt(length.square() / x.shape[-1] + eps)
    return (x * factor).type_as(x) * weight


def fused(x, weight, eps):
    """One kernel."""
    return rms_norm(x, weight, eps)


# -- what is valid ----------------------------------------------------------------------------------------------------


def one_type(x, weight, eps):
    if weight.dtype == x.dtype:
        return True
    return f"a {weight.dtype} weight beside {x.dtype} values; the plain form then returns the wider type"


def sums_well(x, weight, eps):
    if x.device.type == "cpu" and x.shape[-1] > 16384:
        return f"rows of {x.shape[-1]} values; on a CPU this norm adds them one after another, and loses bits"
    return one_type(x, weight, eps)


def fits_kernel(x, weight, eps):
    if one_type(x, weight, eps) is not True:
        return one_type(x, weight, eps)
    if x.shape[-1] > LARGEST:
        return f"rows of {x.shape[-1]} values; registers hold {LARGEST}"
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        return "the values of a row do not lie side by side"
    if row_stride(x) is None:
        return "rows do not lie at even distances"
    return True


def by_length(x, weight, eps):
    """Divide each row by its length, which another routine sums up, times the root of its size."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.hypot(length, torch.full_like(length, (eps * x.shape[-1]) ** 0.5)) * (x.shape[-1] ** 0.5 * weight)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def eps_outside(x, weight, eps):
    """Add eps to the root instead of under it."""
    wide = _wide(x)
    return (wide / (wide.pow(2).mean(-1, keepdim=True).sqrt() + eps)).type_as(x) * weight


def without_eps(x, weight, eps):
    return by_hand(x, weight, 0.0)


def half_squares(x, weight, eps):
    """Square before going to float32: in float16 whatever is over 255 becomes infinite."""
    return (x * torch.rsqrt(x.pow(2).float().mean(-1, keepdim=True) + eps)).type_as(x) * weight


def sum_of_squares(x, weight, eps):
    """Forget to divide by the row's size: a vector of length one."""
    wide = _wide(x)
    return (wide * torch.rsqrt(wide.pow(2).sum(-1, keepdim=True) + eps)).type_as(x) * weight


def layer_norm(x, weight, eps):
    """Subtract the mean."""
    return F.layer_norm(_wide(x), weight.shape, None, None, eps).type_as(x) * weight


def one_plus_weight(x, weight, eps):
    """Take the weight for what Gemma stores, the difference to one."""
    return by_hand(x, 1 + weight, eps)


def without_weight(x, weight, eps):
    return by_hand(x, torch.ones_like(weight), eps)


def over_all_heads(x, weight, eps):
    """Norm the last two dimensions together."""
    wide = _wide(x)
    return (wide * torch.rsqrt(wide.pow(2).mean((-2, -1), keepdim=True) + eps)).type_as(x) * weight


def next_power_of_two(x, weight, eps):
    """Divide by the size of the block that a row was padded to."""
    wide = _wide(x)
    padded = 1 << (x.shape[-1] - 1).bit_length()
    return (wide * torch.rsqrt(wide.pow(2).sum(-1, keepdim=True) / padded + eps)).type_as(x) * weight


def some_values(x, **_):
    return x.numel() > 16 and bool((x != 0).any())


def ordinary(x, **_):
    return x.numel() >= 64 and x.shape[-1] > 2 and bool((x.abs().amax() > 0.1) & (x.abs().amax() < 100))


def as_small_as_eps(x, eps, **_):
    return x.numel() > 0 and bool(x.abs().amax() < 100 * eps**0.5) and bool((x != 0).any())


def small_or_zero(x, eps, **_):
    return as_small_as_eps(x=x, eps=eps) or (x.numel() > 0 and bool((x == 0).all(-1).any()))


def squares_overflow(x, **_):
    return x.dtype == torch.float16 and bool(x.abs().amax() > 256)


def several_heads(x, **_):
    return x.dim() > 2 and x.shape[-2] > 1 and ordinary(x) and x.shape[-1] <= 128


def padded(x, **_):
    return ordinary(x) and x.shape[-1] & (x.shape[-1] - 1) and x.shape[-1] / (1 << x.shape[-1].bit_length()) < 0.9


# -- cases ------------------------------------------------------------------------------------------------------------

EDGE = [
    dict(shape=(4, 32), dtype="float64"),
    dict(shape=(4, 32), dtype="float16"),
    dict(shape=(0, 32), dtype="float32"),
    dict(shape=(3, 1), data="tiny", dtype="float32"),
    dict(shape=(64,), dtype="float32"),
    dict(shape=(5, 96), dtype="bfloat16"),  # no power of two, short
    dict(shape=(3, 1000), dtype="bfloat16"),
    dict(shape=(2, 1536), dtype="bfloat16"),  # two powers of two
    dict(shape=(2, 1100), dtype="float32"),  # long, and no multiple of a vector
    dict(shape=(2, 5120), dtype="bfloat16"),
    dict(shape=(2, 2049), dtype="float64"),
    dict(shape=(2, 4096), dtype="bfloat16"),
    dict(shape=(1, 32768), dtype="float32"),
    dict(shape=(1, 32769), dtype="float32"),
    dict(shape=(2, 5, 3, 16), dtype="float32"),
    dict(shape=(150, 8), dtype="bfloat16"),  # more rows than one program takes, and no multiple of them
    dict(shape=(4, 32), data="tiny", dtype="float32"),
    dict(shape=(4, 32), data="tiny", dtype="bfloat16"),
    dict(shape=(4, 32), data="zero_rows", dtype="float32"),
    dict(shape=(2, 1536), data="zero_rows", dtype="bfloat16"),
    dict(shape=(4, 64), data="large", dtype="float16"),
    dict(shape=(4, 64), eps=0.01, dtype="float32"),
    dict(shape=(2, 3, 48), layout="one_of_three", dtype="bfloat16"),
    dict(shape=(2, 3, 1280), layout="one_of_three", dtype="float32"),
    dict(shape=(2, 3, 32), layout="every_other", dtype="float32"),
    dict(shape=(2, 3, 32), layout="columns_first", dtype="float32"),
    dict(shape=(4, 32), weight_dtype="bfloat16", dtype="float32"),
]

SMOKE = [
    *grid(shape=[(4, 32), (2, 6, 4, 128)], dtype=["float32", "bfloat16"]),
    dict(shape=(4, 1536), dtype="bfloat16"),
]

REAL = [
    *grid(shape=[(1, 512, 4096), (1, 4608, 48, 128), (1, 2640, 1536), (1, 4096, 3072)], dtype=["bfloat16"]),
    dict(shape=(1, 32760, 1536), dtype="bfloat16"),
    dict(shape=(1, 32760, 1536), dtype="float32"),
    dict(shape=(1, 32760, 1536), layout="one_of_three", dtype="bfloat16"),
    dict(shape=(1, 1, 4096), dtype="float16"),
]

HEADLINE = grid(shape=[(1, 27030, 24, 128), (75600, 5120)], dtype=["bfloat16"])

rmsnorm = Operator(
    "rmsnorm",
    baseline=by_hand,
    variants={
        "builtin": Variant(builtin, valid=one_type, kind="library"),
        "vector_norm": Variant(vector_norm, valid=sums_well),
        "triton": Variant(fused, valid=fits_kernel, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "eps_outside": Variant(eps_outside, valid=as_small_as_eps),
        "without_eps": Variant(without_eps, valid=small_or_zero),
        "half_squares": Variant(half_squares, valid=squares_overflow),
        "sum_of_squares": Variant(sum_of_squares, valid=ordinary),
        "layer_norm": Variant(layer_norm, valid=ordinary),
        "one_plus_weight": Variant(one_plus_weight, valid=some_values),
        "without_weight": Variant(without_weight, valid=some_values),
        "over_all_heads": Variant(over_all_heads, valid=several_heads),
        "next_power_of_two": Variant(next_power_of_two, valid=padded),
    },
    oracle=by_length,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight"],
    source="Wan 2.1 WanRMSNorm; sglang #20632",
    claims=[
        Claim(
            latency_ms=latency_ms,
            device="a GPU that is not named",
            source="sglang #20632",
            cases=[dict(shape=shape, dtype="bfloat16")],
        )
        for shape, latency_ms in (
            ((1, 27030, 24, 128), (0.403, 0.105)),
            ((1, 4608, 48, 128), (0.144, 0.054)),
            ((1, 512, 4096), (0.0155, 0.0112)),
        )
    ],
)
