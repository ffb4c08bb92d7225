"""A clip of latents through the decoder of `vae_wan`, a chunk at a time: what the pairs in `decoder.py` have in common."""

import itertools

import torch
import vae_wan
import vae_wan_forms
from vae_wan import PUBLISHED, decode_chunk, fresh_caches

from pairbench import Cost, Tolerance

from ..common.kernels_opaque import compile_apart


def inputs(make, latents, height, width, dtype, chunk, split=0, batch=1, base=96):
    return clip(make, latents, height, width, dtype, split, batch, base) | {"chunk": chunk}


def clip(make, latents, height, width, dtype, split, batch, base):
    """Return a clip of latents and the weights that decode it; how many go through at once is not said."""
    widths = vae_wan.Widths(base=base)
    return {
        "latents": make.normal(batch, widths.latent, latents, height, width, dtype=dtype),
        "weights": vae_wan.make_weights(make, widths, dtype),
        "split": split,
    }


def cost(latents, height, width, dtype, chunk=1, split=0, batch=1, base=96):
    """Return the arithmetic of convolutions and attention; latents and weights are read once, the video is written."""
    widths = vae_wan.Widths(base=base)
    pixels = height * width * (widths.latent * latents + 3 * 64 * vae_wan.clip_frames(latents))
    elements = batch * pixels + vae_wan.count_weights(widths)
    flops = batch * vae_wan.count_flops(widths, latents, height, width)
    return Cost(flops=flops, bytes=float(elements * getattr(torch, dtype).itemsize))


def cuts(latents, chunk, split=0):
    """Return where each call begins and ends: latent 0 alone, then `chunk` at a time, each part for itself."""
    marks = [0, 1]
    for end in (split, latents):
        marks += range(marks[-1] + chunk, end, chunk) if chunk > 0 else ()
        marks += [end] if end > marks[-1] else ()
    return list(itertools.pairwise(marks))


def growing(latents, weights, steps, decode=None, caches=None, forms=None):
    """Decode step by step, and append each step's frames to a video that is copied as it grows.

    Args:
        steps: Where each begins and ends.
        decode: What decodes one of them; the network, unless given.
        caches: What an earlier clip left; for impostors.
        forms: How the network computes; as published, unless given.
    """
    decode, forms = decode or decode_chunk, forms or PUBLISHED
    latents = forms.causal(latents, None, weights["post_quant"])
    caches, video = fresh_caches(weights) if caches is None else caches, None
    for begin, end in steps:
        compile_apart()
        frames = decode(latents[:, :, begin:end], weights, caches, forms)
        video = frames if video is None else torch.cat([video, frames], dim=2)
    return video.clamp(-1, 1)


def assembled(latents, weights, chunk, split, forms):
    """Decode chunk by chunk into a video that is allocated once."""
    latents = forms.causal(latents, None, weights["post_quant"])
    caches, video = fresh_caches(weights), empty_video(latents)
    for begin, end in cuts(latents.shape[2], chunk, split):
        compile_apart()
        frames = decode_chunk(latents[:, :, begin:end], weights, caches, forms)
        at = vae_wan.clip_frames(begin)
        video[:, :, at : at + frames.shape[2]] = frames.clamp_(-1, 1)
    return video


def empty_video(latents):
    b, _, n, h, w = latents.shape
    return latents.new_empty(b, 3, vae_wan.clip_frames(n), 8 * h, 8 * w)


# -- an independent oracle --------------------------------------------------------------------------------------------


def whole_clip(latents, weights, split, chunk=1):
    """Decode the clip in one piece, with no cache and no 3-D convolution.

    A long clip's activations would not fit: it has the plain form itself, with the same sums in place of convolutions.
    """
    b, _, n, h, w = latents.shape
    largest = b * weights["norm_out"].shape[0] * vae_wan.clip_frames(n) * 64 * h * w
    if largest > 1 << 28:
        return growing(latents, weights, cuts(n, 1), forms=vae_wan_forms.BY_FORMULA)
    return growing(latents, weights, [(0, n)], _without_cache, [], vae_wan_forms.BY_FORMULA)


def _without_cache(latents, weights, caches, forms):
    return decode_chunk(latents, weights, None, forms)


# A network rounds in some hundred places, one behind the other. On a CPU the published decoder, with 8 and with 96 channels
# as base, is off its oracle by 0.02 in relative L2 in bfloat16, 0.002 in float16 and 1e-6 in float32; the worst of 10,000
# pixels by four to eight times that. Two evaluations that choose other convolution algorithms are that far apart.
THROUGH_A_NETWORK = {
    "float64": Tolerance(rtol=1e-12, atol_rms=1e-12),
    "float32": Tolerance(rtol=1e-4, atol_rms=5e-5),
    "float16": Tolerance(rtol=2e-3, atol_rms=5e-2),
    "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=2e-1),
}
