"""Layer norm modulated by scale and shift (adaLN), which every block of a diffusion transformer begins with, twice.

As published it is six steps, each a kernel that reads and writes the whole stream: a cast to float32, the norm, 1 + scale,
a product, a sum, a cast back; 36 bytes a value where reading and writing a bfloat16 takes 4.

The contract, `x` of [batch, tokens, features], modulations as in adaln.py:

    out = (x - mean(x)) / sqrt(variance(x) + eps) * (1 + scale) + shift

over the features, the variance not corrected for its mean, everything in float32 for 16-bit types, rounded once to the dtype of x.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from adaln import (
    HALF,
    divides,
    fits_registers,
    fused_modulation,
    has_offset,
    make_modulations,
    make_rows,
    modulate,
    modulation_bytes,
    of_each_token,
    wide,
)
from kernels_adaln import modulated

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant, grid


def inputs(
    make,
    tokens,
    features,
    dtype,
    batch=1,
    per="sample",
    frames=1,
    modulation="float32",
    data="normal",
    layout="contiguous",
    modulation_layout="contiguous",
    eps=1e-6,
):
    shift, scale = make_modulations(make, batch, tokens, features, per, frames, modulation, modulation_layout, 2)
    return {
        "x": make_rows(make, batch, tokens, features, dtype, data, layout),
        "shift": shift,
        "scale": scale,
        "eps": eps,
    }


def cost(tokens, features, dtype, batch=1, per="sample", frames=1, modulation="float32", **_):
    values = batch * tokens * features
    moved = 2 * values * getattr(torch, dtype).itemsize
    modulations = 2 * modulation_bytes(batch, tokens, features, per, frames, modulation)
    # The sum, the difference, its square and their sum, the normed value, the product and the sum of the modulation.
    return Cost(flops=7.0 * values, bytes=float(moved + modulations))


# Implementations


def step_by_step(x, shift, scale, eps):
    """The block as published: FP32LayerNorm, then the modulation in float32, then the stream's dtype."""
    normed = F.layer_norm(wide(x), x.shape[-1:], eps=eps)
    return modulate(normed, shift, scale).to(x.dtype)


def addcmul(x, shift, scale, eps):
    """The modulation as one kernel, which also rounds: addcmul writes into a result of another dtype."""
    return fused_modulation(F.layer_norm(wide(x), x.shape[-1:], eps=eps), shift, scale, x.dtype)


def native_norm(x, shift, scale, eps):
    """The norm in the stream's own dtype: PyTorch's kernel keeps the statistics in float32 by itself.

    Nothing is cast, so two kernels touch the stream and one makes 1 + scale. The normed value is rounded once more.
    """
    return fused_modulation(F.layer_norm(x, x.shape[-1:], eps=eps), shift, scale, x.dtype)


def as_affine(x, shift, scale, eps):
    """The modulation as the norm's own weight and bias, which works for a single sample: one kernel on the stream.

    Weight and bias have to be of the dtype of x, so that they are rounded.
    """
    weight, bias = (1 + scale).flatten().to(x.dtype), shift.flatten().to(x.dtype)
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


# What is valid


def can_be_viewed(x, scale, **_):
    return divides(x, scale)


def saves_casts(x, scale, **_):
    return divides(x, scale) if x.dtype in HALF else f"{x.dtype} is cast by nobody; that is addcmul"


def one_modulation(x, scale, **_):
    if scale.shape[0] * scale.shape[1] != 1:
        return f"{scale.shape[0] * scale.shape[1]} modulations; layer_norm takes one weight"
    return True


# Independent oracle


def by_definition(x, shift, scale, eps):
    """Compute the statistics by hand, and give every token its modulation by indexing."""
    centred = x - x.mean(-1, keepdim=True)
    centred *= (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return centred.mul_(1 + of_each_token(scale, x.shape[1])).add_(of_each_token(shift, x.shape[1]))


# Impostors


def without_one(x, shift, scale, eps):
    """Multiplies with scale instead of 1 + scale."""
    return step_by_step(x, shift, scale - 1, eps)


def swapped(x, shift, scale, eps):
    """Takes the two in the other order; libraries differ in which of the six comes first."""
    return step_by_step(x, scale, shift, eps)


def first_frame(x, shift, scale, eps):
    """Modulates all frames like the first."""
    return step_by_step(x, shift[:, 0], scale[:, 0], eps)


def every_other_token(x, shift, scale, eps):
    """Deals the frames' modulations out token by token."""
    at = torch.arange(x.shape[1], device=x.device) % scale.shape[1]
    return step_by_step(x, shift.squeeze(2)[:, at], scale.squeeze(2)[:, at], eps)


def half_statistics(x, shift, scale, eps):
    """Keeps mean and variance in the stream's 16 bits."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return modulate(((x - mean) * (variance + eps).rsqrt()).float(), shift, scale).to(x.dtype)


def raw_moments(x, shift, scale, eps):
    """Takes the variance for E[x^2] - E[x]^2, in one pass: where the mean is large, the difference is noise."""
    mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    return modulate((x - mean) * (square - mean.square() + eps).rsqrt(), shift, scale)


def unbiased(x, shift, scale, eps):
    """Divides by features - 1, as torch.var does unless told otherwise."""
    mean = x.mean(-1, keepdim=True)
    return modulate((x - mean) * (x.var(-1, keepdim=True) + eps).rsqrt(), shift, scale)


def without_eps(x, shift, scale, eps):
    return step_by_step(x, shift, scale, 0.0)


def has_rows(x, **_):
    return x.numel() > 0


def has_features(x, **_):
    """Of a single feature nothing is left but shift."""
    return x.numel() > 0 and x.shape[2] > 1 and not is_constant(x)


def is_constant(x, **_):
    return x.numel() > 0 and x.shape[2] > 1 and bool((x == x[..., :1]).all())


def has_frames(x, scale, **_):
    return scale.dim() == 4 and scale.shape[1] > 1 and x.shape[1] > scale.shape[1] and not is_constant(x)


def is_half_with_offset(x, **_):
    return x.dtype in HALF and has_offset(x)


def is_float_with_offset(x, **_):
    return x.dtype == torch.float32 and has_offset(x)


def has_few_features(x, **_):
    """Of 1000 features, one more or less is 5e-4; with 16 bits it shows only where there are fewer still."""
    return has_features(x) and x.shape[2] <= (16 if x.dtype in HALF else 1000)


# Cases

TINY = dict(batch=2, tokens=4, features=32)

EDGE = [
    dict(**TINY, dtype="float64", modulation="float64"),
    dict(**TINY, per="frame", frames=2, dtype="float64", modulation="float64"),
    dict(tokens=0, features=32, dtype="float32"),
    dict(tokens=0, features=32, per="token", dtype="bfloat16"),
    dict(tokens=1, features=32, dtype="float32"),
    dict(batch=2, tokens=5, features=1, dtype="float32"),
    dict(batch=2, tokens=5, features=2, dtype="float32"),
    dict(batch=3, tokens=3, features=33, dtype="float32"),  # no multiple of a vector
    dict(tokens=5, features=1537, dtype="bfloat16"),  # of a piece, and one value in the last
    dict(tokens=3, features=5120, dtype="bfloat16"),
    dict(tokens=2, features=40000, dtype="float32"),  # longer than registers hold
    dict(**TINY, data="constant", dtype="float32"),
    dict(**TINY, data="constant", dtype="bfloat16"),
    dict(**TINY, data="offset", dtype="float32"),
    dict(**TINY, data="offset", dtype="bfloat16"),
    dict(**TINY, data="offset", dtype="float16"),
    dict(batch=2, tokens=5, features=48, per="frame", frames=3, dtype="float32"),  # 2, 2 and 1
    dict(tokens=6, features=48, per="frame", frames=4, dtype="bfloat16"),  # 2, 2, 2 and none
    dict(tokens=6, features=48, per="frame", frames=6, dtype="float32"),  # a token each
    dict(**TINY, modulation_layout="chunked", dtype="float32"),
    dict(**TINY, per="frame", frames=2, modulation_layout="chunked", dtype="bfloat16"),
    dict(**TINY, per="token", modulation_layout="chunked", dtype="float32"),
    dict(**TINY, modulation="bfloat16", dtype="bfloat16"),
    dict(**TINY, layout="sliced", dtype="float32"),
    dict(**TINY, layout="transposed", dtype="float32"),
    dict(**TINY, per="frame", frames=2, layout="transposed", dtype="bfloat16"),
    dict(**TINY, eps=1e-2, dtype="float32"),
    dict(tokens=3, features=32000, dtype="bfloat16"),  # nearly as long as registers hold
]

SMOKE = [
    *grid(batch=[2], tokens=[12], features=[32], dtype=["float32", "bfloat16"]),
    dict(batch=2, tokens=12, features=32, per="frame", frames=3, dtype="float32"),
    dict(batch=2, tokens=12, features=32, per="token", modulation_layout="chunked", dtype="bfloat16"),
]

WAN_SMALL, WAN_TI2V, WAN_LARGE = dict(features=1536), dict(features=3072), dict(features=5120)

REAL = [
    dict(**WAN_SMALL, tokens=2640, per="frame", frames=3, dtype="bfloat16"),  # Matrix-Game-2, a block
    # Self-Forcing, as its blocks cut the six apart
    dict(**WAN_SMALL, tokens=4680, per="frame", frames=3, modulation_layout="chunked", dtype="bfloat16"),
    dict(**WAN_SMALL, tokens=32760, per="frame", frames=21, dtype="bfloat16"),
    dict(**WAN_SMALL, tokens=32760, dtype="float32"),
    dict(**WAN_SMALL, tokens=2640, modulation="bfloat16", dtype="bfloat16"),
    dict(**WAN_TI2V, tokens=27280, per="token", modulation_layout="chunked", dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=32760, dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=512, dtype="bfloat16"),
]

HEADLINE = [
    dict(tokens=128, features=3072, dtype="bfloat16"),
    dict(tokens=1024, features=1024, dtype="bfloat16"),
    dict(**WAN_SMALL, tokens=32760, dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=75600, dtype="bfloat16"),
]

ln_modulate = Operator(
    "ln_modulate",
    baseline=step_by_step,
    variants={
        "addcmul": Variant(addcmul, valid=can_be_viewed),
        "native_norm": Variant(native_norm, valid=saves_casts),
        "as_affine": Variant(as_affine, valid=one_modulation),
        "triton": Variant(modulated, valid=fits_registers, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "without_one": Variant(without_one, valid=has_features),
        "swapped": Variant(swapped, valid=has_rows),
        "first_frame": Variant(first_frame, valid=has_frames),
        "every_other_token": Variant(every_other_token, valid=has_frames),
        "half_statistics": Variant(half_statistics, valid=is_half_with_offset),
        "raw_moments": Variant(raw_moments, valid=is_float_with_offset),
        "unbiased": Variant(unbiased, valid=has_few_features),
        "without_eps": Variant(without_eps, valid=is_constant),
    },
    oracle=by_definition,
    tolerance=REASSOCIATED,
    cost=cost,
    source="sglang #14717, huggingface/diffusers transformer_wan.py",
    claims=[
        Claim(
            latency_ms=(0.0341, 0.0090),
            device="a GPU that is not named",
            source="sglang #14717",
            cases=[dict(tokens=128, features=3072, dtype="bfloat16")],
            unmet="7.1 us are near the least: a copy of as many bytes takes 4.8 us; and the baseline takes 26 us, not 34",
        ),
        Claim(
            latency_ms=(0.0386, 0.0113),
            device="a GPU that is not named",
            source="sglang #14717",
            cases=[dict(tokens=1024, features=1024, dtype="bfloat16")],
        ),
    ],
)
