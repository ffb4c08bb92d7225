"""A gated residual and the modulated layer norm behind it: how one half of a transformer block hands over to the next.

Published blocks do it in ten kernels, four for the residual and six for the norm (see ln_modulate.py); the stream is
written and read again between them, although the norm needs of it just what the residual has in hand.

The contract, `x` and `y` of [batch, tokens, features], modulations as in adaln.py; two outputs:

    residual = x + y * gate, rounded to the dtype of x
    out = layer_norm(residual) * (1 + scale) + shift, all in float32, rounded once

The norm is fed by the *rounded* residual. The blocks of Wan write the stream in its own dtype before the next norm reads
it, so that a kernel that normalises what it has in float32 gives other results than the model was made with: nearer to
the truth for the norm, and different, where the stream's mean is large, by several spacings.
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
    over_frames,
    over_tokens,
    wide,
)
from kernels_adaln import gated_and_modulated

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
    shift, scale, gate = make_modulations(make, batch, tokens, features, per, frames, modulation, modulation_layout, 3)
    return {
        "x": make_rows(make, batch, tokens, features, dtype, data, layout),
        "y": make_rows(make, batch, tokens, features, dtype, "normal", layout),
        "gate": gate,
        "shift": shift,
        "scale": scale,
        "eps": eps,
    }


def cost(tokens, features, dtype, batch=1, per="sample", frames=1, modulation="float32", **_):
    values = batch * tokens * features
    moved = 4 * values * getattr(torch, dtype).itemsize
    modulations = 3 * modulation_bytes(batch, tokens, features, per, frames, modulation)
    return Cost(flops=9.0 * values, bytes=float(moved + modulations))


# Implementations


def step_by_step(x, y, gate, shift, scale, eps):
    """The end of one half of a published block, and the beginning of the next."""
    residual = _gated(x, y, gate)
    normed = F.layer_norm(wide(residual), x.shape[-1:], eps=eps)
    return residual, modulate(normed, shift, scale).to(x.dtype)


def _gated(x, y, gate):
    gate = over_tokens(gate, x.shape[1])
    product = (over_frames(y, gate) * gate).reshape(y.shape)
    return (wide(x) + product).to(x.dtype)


def addcmul(x, y, gate, shift, scale, eps):
    """Each product and sum as one kernel that also rounds; the norm between casts, as published."""
    residual = _fused_gate(x, y, gate)
    return residual, fused_modulation(F.layer_norm(wide(residual), x.shape[-1:], eps=eps), shift, scale, x.dtype)


def native_norm(x, y, gate, shift, scale, eps):
    """The same without casts, the norm in the stream's own dtype: three kernels on the stream."""
    residual = _fused_gate(x, y, gate)
    return residual, fused_modulation(F.layer_norm(residual, x.shape[-1:], eps=eps), shift, scale, x.dtype)


def _fused_gate(x, y, gate):
    residual = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.addcmul(over_frames(x, gate), over_frames(y, gate), gate, out=over_frames(residual, gate))
    return residual


# What is valid


def can_be_viewed(x, scale, **_):
    return divides(x, scale)


def saves_casts(x, scale, **_):
    return divides(x, scale) if x.dtype in HALF else f"{x.dtype} is cast by nobody; that is addcmul"


# Independent oracle


def by_definition(x, y, gate, shift, scale, eps):
    """Give every token its modulation by indexing and compute the statistics by hand. Nothing is rounded in between."""
    tokens = x.shape[1]
    residual = torch.addcmul(x, y, of_each_token(gate, tokens))
    centred = residual - residual.mean(-1, keepdim=True)
    centred *= (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return residual, centred.mul_(1 + of_each_token(scale, tokens)).add_(of_each_token(shift, tokens))


# Impostors


def without_gate(x, y, gate, shift, scale, eps):
    return step_by_step(x, y, torch.ones_like(gate), shift, scale, eps)


def gate_of_one_more(x, y, gate, shift, scale, eps):
    """Treats the gate like the scale."""
    return step_by_step(x, y, 1 + gate, shift, scale, eps)


def norm_of_x(x, y, gate, shift, scale, eps):
    """Normalises the stream as it was before the sum."""
    normed = F.layer_norm(wide(x), x.shape[-1:], eps=eps)
    return _gated(x, y, gate), modulate(normed, shift, scale).to(x.dtype)


def norm_of_the_unrounded(x, y, gate, shift, scale, eps):
    """Normalises the float32 sum, which the model never sees."""
    residual = wide(x) + (over_frames(y, gate) * gate).reshape(y.shape)
    normed = F.layer_norm(residual, x.shape[-1:], eps=eps)
    return residual.to(x.dtype), modulate(normed, shift, scale).to(x.dtype)


def without_one(x, y, gate, shift, scale, eps):
    return step_by_step(x, y, gate, shift, scale - 1, eps)


def shift_as_gate(x, y, gate, shift, scale, eps):
    """Takes the six modulations in another order."""
    return step_by_step(x, y, shift, gate, scale, eps)


def has_rows(x, **_):
    return x.numel() > 0


def has_features(x, **_):
    """Of a single feature nothing is left but shift."""
    return x.numel() > 0 and x.shape[2] > 1


def is_half_with_offset(x, scale, **_):
    return x.dtype in HALF and has_offset(x) and divides(x, scale) is True


# Cases

TINY = dict(batch=2, tokens=4, features=32)

EDGE = [
    dict(**TINY, dtype="float64", modulation="float64"),
    dict(tokens=0, features=32, dtype="float32"),
    dict(tokens=1, features=32, dtype="float32"),
    dict(batch=2, tokens=5, features=1, dtype="float32"),
    dict(batch=3, tokens=3, features=33, dtype="bfloat16"),  # no multiple of a vector
    dict(tokens=5, features=1537, dtype="bfloat16"),  # of a piece, and one value in the last
    dict(tokens=2, features=40000, dtype="float32"),  # longer than registers hold
    dict(**TINY, data="constant", dtype="float32"),
    dict(**TINY, data="offset", dtype="float32"),
    dict(**TINY, data="offset", dtype="bfloat16"),
    dict(**TINY, data="offset", dtype="float16"),
    dict(batch=2, tokens=5, features=48, per="frame", frames=3, dtype="float32"),  # 2, 2 and 1
    dict(tokens=6, features=48, per="frame", frames=4, dtype="bfloat16"),  # 2, 2, 2 and none
    dict(**TINY, per="frame", frames=2, modulation_layout="chunked", dtype="bfloat16"),
    dict(**TINY, per="token", modulation_layout="chunked", dtype="float32"),
    dict(**TINY, modulation_layout="chunked", dtype="float32"),
    dict(**TINY, modulation="bfloat16", dtype="bfloat16"),
    dict(**TINY, layout="sliced", dtype="float32"),
    dict(**TINY, per="frame", frames=2, layout="transposed", dtype="bfloat16"),
]

SMOKE = [
    *grid(batch=[2], tokens=[12], features=[32], dtype=["float32", "bfloat16"]),
    dict(batch=2, tokens=12, features=32, per="frame", frames=3, dtype="float32"),
]

WAN_SMALL, WAN_TI2V, WAN_LARGE = dict(features=1536), dict(features=3072), dict(features=5120)

REAL = [
    dict(**WAN_SMALL, tokens=2640, per="frame", frames=3, dtype="bfloat16"),  # Matrix-Game-2, a block
    # Self-Forcing, as its blocks cut the six apart
    dict(**WAN_SMALL, tokens=4680, per="frame", frames=3, modulation_layout="chunked", dtype="bfloat16"),
    dict(**WAN_SMALL, tokens=32760, dtype="float32"),
    dict(**WAN_TI2V, tokens=27280, per="token", modulation_layout="chunked", dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=512, dtype="bfloat16"),
]

HEADLINE = [
    dict(**WAN_SMALL, tokens=32760, dtype="bfloat16"),
    dict(**WAN_LARGE, tokens=75600, dtype="bfloat16"),
]

gate_residual_norm = Operator(
    "gate_residual_norm",
    baseline=step_by_step,
    variants={
        "addcmul": Variant(addcmul, valid=can_be_viewed),
        "native_norm": Variant(native_norm, valid=saves_casts),
        "triton": Variant(gated_and_modulated, valid=fits_registers, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "without_gate": Variant(without_gate, valid=has_rows),
        "gate_of_one_more": Variant(gate_of_one_more, valid=has_rows),
        "norm_of_x": Variant(norm_of_x, valid=has_features),
        "norm_of_the_unrounded": Variant(norm_of_the_unrounded, valid=is_half_with_offset),
        "without_one": Variant(without_one, valid=has_features),
        "shift_as_gate": Variant(shift_as_gate, valid=has_rows),
    },
    oracle=by_definition,
    tolerance=REASSOCIATED,
    cost=cost,
    source="sglang #14289, huggingface/diffusers transformer_wan.py",
    claims=[
        Claim(
            speedup=4.99,
            device="NVIDIA H200",
            source="sglang #14289",
            cases=[dict(tokens=32760, features=1536, dtype="bfloat16")],
            shape="the mean over their shapes, which are not said",
        ),
    ],
)
