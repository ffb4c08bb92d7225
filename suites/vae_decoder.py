"""Decoding a clip of latents with the Wan 2.1 VAE: how many latents go through the network in one call.

The published decoder takes one latent a call, which keeps memory small and launches the whole network for every four
frames. Every operation in it is causal or concerns one frame, and latent 0 alone passes by what doubles the frames; so
after latent 0 the clip may be cut anywhere. The contract: `latents` [b, c, n, h, w] give a video [b, 3, 4 * n - 3, 8 * h, 8 * w]
within [-1, 1]. `chunk` latents go through at once, all but the first for -1. With `split`, the clip comes in two parts:
the second begins at that latent and goes on from what the first one kept.
"""

import torch
import vae_clip as clip
import vae_wan
import vae_wan_forms as forms
from kernels_conv3d_gemm import gluon_valid
from vae_wan import PUBLISHED, decode_chunk, fresh_caches

from pairbench import Operator, Variant, grid

# -- the plain form, and longer chunks --------------------------------------------------------------------------------


def one_by_one(latents, weights, chunk, split):
    """Decode one latent a call, and append its frames to a video that is copied as it grows."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], 1, split))


def chunked(latents, weights, chunk, split):
    """The same with a chunk of latents a call."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split))


def assembled(latents, weights, chunk, split):
    """Write each chunk's frames, clamped, into the video, which is allocated once."""
    return clip.assembled(latents, weights, chunk, split, PUBLISHED)


def pad_time(latents, weights, chunk, split):
    """And put chunk, cache and zeros together in one copy instead of two."""
    return clip.assembled(latents, weights, chunk, split, forms.ONE_COPY)


def channels_last(latents, weights, chunk, split):
    """And keep weights and activations in channels-last layout."""
    latents = latents.contiguous(memory_format=torch.channels_last_3d)
    return clip.assembled(latents, weights, chunk, split, forms.CHANNELS_LAST)


def gluon(latents, weights, chunk, split):
    """And convolve as an implicit GEMM, which copies nothing together."""
    latents = latents.contiguous(memory_format=torch.channels_last_3d)
    return clip.assembled(latents, weights, chunk, split, forms.GLUON)


def prepare_channels_last(weights):
    return {"weights": forms.each_layer(weights, forms.in_channels_last)}


def prepare_packed(weights):
    return {"weights": forms.each_layer(weights, forms.packed)}


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def stale_frames(latents, weights, chunk, split):
    """Begin with the frames that another clip left when its run was aborted."""
    caches = fresh_caches(weights)
    decode_chunk(latents[:, :, -1:].flip(1), weights, caches, PUBLISHED)
    caches = [None if cache is vae_wan.SKIPPED else cache for cache in caches]
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), caches=caches)


def stale_cache(latents, weights, chunk, split):
    """Begin with all that another clip left, so that latent 0 is taken for a later one."""
    caches = fresh_caches(weights)
    decode_chunk(latents[:, :, -1:].flip(1), weights, caches, PUBLISHED)
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), caches=caches)


def restarted(latents, weights, chunk, split):
    """Forget all earlier frames with every chunk."""

    def decode(x, weights, caches, forms):
        frames = decode_chunk(x, weights, caches, forms)
        caches[:] = [vae_wan.SKIPPED if _doubles(slot, weights) else None for slot in range(len(caches))]
        return frames

    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), decode)


def latent_0_doubled(latents, weights, chunk, split):
    """Let latent 0 through what doubles the frames, and drop the frames too many."""
    caches = [vae_wan.SKIPPED if _doubles(slot, weights) else None for slot in range(len(fresh_caches(weights)))]
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), caches=caches)[:, :, 3:]


def _doubles(slot, weights):
    """Say whether a cache is that of a convolution which doubles the frames; each ends its stage."""
    at = 4
    for stage in weights["up"]:
        at += 2 * len(stage["blocks"]) + ("time_conv" in stage)
        if slot == at:
            return "time_conv" in stage
    return False


def short_cache(latents, weights, chunk, split):
    """Forget that a chunk of one frame needs the newest of the old ones too."""
    one_kept = PUBLISHED._replace(keep=lambda x, cache: x[:, :, -vae_wan.KEPT :].clone())
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), forms=one_kept)


def uncropped(latents, weights, chunk, split):
    """Keep a frame more than there is padding, and cut what that adds off at the wrong end."""

    def causal(x, cache, layer):
        return vae_wan.causal(x if cache is None else torch.cat([cache, x], 2), None, layer)[:, :, : x.shape[2]]

    three_kept = PUBLISHED._replace(causal=causal, keep=lambda x, cache: x[:, :, -3:].clone())
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), forms=three_kept)


def attends_across_frames(latents, weights, chunk, split):
    """Attend to all frames of a chunk, as soon as there is more than one."""

    def attend(q, k, v):
        return vae_wan.attend(*(value.reshape(1, 1, -1, value.shape[-1]) for value in (q, k, v))).view_as(q)

    across = PUBLISHED._replace(attend=attend)
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), forms=across)


def pairs_swapped(latents, weights, chunk, split):
    """Take the two frames of a pair in the wrong order."""
    swapped = PUBLISHED._replace(interleave=lambda x: vae_wan.interleave(x.roll(x.shape[1] // 2, 1)))
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), forms=swapped)


def within_180_levels(latents, weights, chunk, split):
    """Be off by up to 179 of 255 grey levels, which the tolerance that the pair was once published with lets pass."""
    video = one_by_one(latents, weights, chunk, split)
    return (video - video.sign() * (179 / 127.5)).clamp(-1, 1)


def goes_on(latents, chunk, split, **_):
    return len(clip.cuts(latents.shape[2], chunk, split)) > 1


def goes_on_from_one(latents, chunk, split, **_):
    """Say whether a chunk of one latent, which is not the first, has a successor."""
    return any(end - begin == 1 for begin, end in clip.cuts(latents.shape[2], chunk, split)[1:-1])


def goes_on_twice(latents, chunk, split, **_):
    return len(clip.cuts(latents.shape[2], chunk, split)) > 2


def has_longer_chunk(latents, chunk, split, **_):
    return latents.shape[0] > 1 or any(end - begin > 1 for begin, end in clip.cuts(latents.shape[2], chunk, split))


# -- cases ------------------------------------------------------------------------------------------------------------

# With fewer channels or pixels the largest error of a network this deep is mostly luck.
TINY = dict(base=8, height=2, width=3, dtype="float32")
P480 = dict(height=60, width=104, dtype="bfloat16")
P720 = dict(height=90, width=160, dtype="bfloat16")

vae_temporal_chunk = Operator(
    "vae_temporal_chunk",
    baseline=one_by_one,
    variants={
        "chunked": chunked,
        "assembled": assembled,
        "pad_time": pad_time,
        "channels_last": Variant(channels_last, prepare=prepare_channels_last),
        "gluon": Variant(
            gluon, prepare=prepare_packed, valid=lambda latents, **_: gluon_valid(latents, (1, 1, 1)), needs="sm_90"
        ),
    },
    impostors={
        "stale_frames": stale_frames,
        "stale_cache": stale_cache,
        "restarted": Variant(restarted, valid=goes_on),
        "latent_0_doubled": latent_0_doubled,
        "short_cache": Variant(short_cache, valid=goes_on_from_one),
        "uncropped": Variant(uncropped, valid=goes_on_twice),
        "attends_across_frames": Variant(attends_across_frames, valid=has_longer_chunk),
        "pairs_swapped": Variant(pairs_swapped, valid=goes_on),
        "within_180_levels": within_180_levels,
    },
    inputs=clip.inputs,
    oracle=clip.whole_clip,
    cases={
        "edge": [
            dict(TINY, latents=1, chunk=4),
            dict(TINY, latents=2, chunk=-1),
            dict(TINY, latents=3, chunk=1),
            dict(TINY, latents=4, chunk=2),  # the last chunk has one latent
            dict(TINY, latents=3, chunk=5),  # longer than the clip
            dict(TINY, latents=3, chunk=2, batch=2),
            dict(TINY, latents=5, chunk=3, split=3),  # part one ends in a short chunk, part two has another
            dict(TINY, latents=4, chunk=-1, split=1),  # part one is latent 0
            dict(TINY, latents=3, chunk=1, dtype="float64"),
            dict(TINY, latents=3, chunk=2, dtype="bfloat16"),
            dict(TINY, latents=2, chunk=1, dtype="float16"),
        ],
        "smoke": grid(latents=[3], height=[4], width=[4], base=[8], chunk=[1, 2], dtype=["float32"]),
        "real": grid(latents=[5], height=[32], width=[32], chunk=[1, 2, -1], dtype=["float32", "bfloat16"]),
        # Over 2 ** 31 elements: at 90 x 160 what the last convolution of images reads from 4 latents a call, and what the
        # widest 3-D one reads from 6; at 60 x 104 from 8 and from 14. Running out of memory is an outcome like any other.
        "headline": [dict(size, latents=21, chunk=chunk) for size in (P480, P720) for chunk in (1, 2, 4, 5, -1)],
    },
    constants=["weights"],
    tolerance=clip.THROUGH_A_NETWORK,
    cost=clip.cost,
    source="maxdiffusion #411; diffusers AutoencoderKLWan",
)
