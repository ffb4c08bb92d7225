"""Decoding a clip with the Wan 2.1 VAE in a lower precision than float32, which the published pipeline decodes in.

The contract is that of `decoder.py`, with a float32 video whatever is computed in. These variants are not equal to
the baseline and not meant to be: they are held to the relative error of the whole video.
"""

import torch
import vae_clip as clip
import vae_wan
import vae_wan_forms as forms
from vae_wan import PUBLISHED

from pairbench import Claim, Operator, Tolerance, Variant, grid


def float32(latents, weights, chunk, split):
    """Decode in the dtype of latents and weights."""
    return clip.assembled(latents, weights, chunk, split, PUBLISHED)


def bfloat16(latents, weights, chunk, split):
    """Decode in bfloat16, weights and activations both; convert the video."""
    return clip.assembled(latents.bfloat16(), weights, chunk, split, PUBLISHED).to(latents.dtype)


def float16(latents, weights, chunk, split):
    """Decode in float16."""
    return clip.assembled(latents.half(), weights, chunk, split, PUBLISHED).to(latents.dtype)


def bfloat16_weights(latents, weights, chunk, split):
    """Store the weights in bfloat16, and compute in the dtype of the latents."""
    return clip.assembled(latents, forms.to_dtype(weights, latents.dtype), chunk, split, PUBLISHED)


def prepare_bfloat16(weights):
    return {"weights": forms.to_dtype(weights, torch.bfloat16)}


def prepare_float16(weights):
    return {"weights": forms.to_dtype(weights, torch.float16)}


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def eight_bits(latents, weights, chunk, split):
    """Round the weights to eight bits with no scales."""
    rounded = forms.to_dtype(forms.to_dtype(weights, torch.float8_e4m3fn), latents.dtype)
    return clip.assembled(latents, rounded, chunk, split, PUBLISHED)


def one_tap_less(latents, weights, chunk, split):
    """Leave the oldest frame out of every convolution."""

    def causal(x, cache, layer):
        newer = layer["weight"].clone()
        newer[:, :, : newer.shape[2] // 3] = 0
        return vae_wan.causal(x, cache, layer | {"weight": newer})

    return clip.assembled(latents, weights, chunk, split, PUBLISHED._replace(causal=causal))


def several_frames(latents, **_):
    return latents.shape[2] > 1


TINY = dict(base=8, height=2, width=3, dtype="float32")

vae_decode_dtype = Operator(
    "vae_decode_dtype",
    baseline=float32,
    variants={
        "bfloat16": Variant(bfloat16, prepare=prepare_bfloat16),
        "bfloat16_weights": Variant(bfloat16_weights, prepare=prepare_bfloat16),
        "float16": Variant(float16, prepare=prepare_float16),
    },
    impostors={"eight_bits": eight_bits, "one_tap_less": Variant(one_tap_less, valid=several_frames)},
    inputs=clip.inputs,
    oracle=clip.whole_clip,
    cases={
        "edge": [
            dict(TINY, latents=1, chunk=1),
            dict(TINY, latents=2, chunk=1),
            dict(TINY, latents=4, chunk=2, batch=2),
            dict(TINY, latents=4, chunk=2, split=2),
        ],
        "smoke": [dict(TINY, latents=4, chunk=2)],
        "real": grid(latents=[5], height=[32], width=[32], chunk=[1], dtype=["float32"]),
        "headline": [dict(latents=5, height=90, width=160, chunk=1, dtype="float32")],
    },
    constants=["weights"],
    # On a CPU, with 8 to 96 channels as base, bfloat16 is off by 0.012 to 0.03, and a single pixel by up to 0.21 of the RMS.
    tolerance={"float32": Tolerance(rel_l2=5e-2, atol_rms=0.5)},
    cost=clip.cost,
    source="maxdiffusion #411; FastVideo #1472",
    claims=[
        Claim(
            speedup=(1.2, 1.3),
            implementation="bfloat16",
            device="a GPU that is not named",
            source="FastVideo #1472",
            cases=[dict(latents=5, height=90, width=160, chunk=1, dtype="float32")],
            shape="decoding, sizes not said",
        ),
    ],
)
