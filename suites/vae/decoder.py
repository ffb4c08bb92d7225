"""Decoding a clip of latents with the Wan 2.1 VAE: how many latents go through the network in one call.

The published decoder takes one latent a call, which keeps memory small and launches the whole network for every four
frames. Every operation in it is causal or concerns one frame, and latent 0 alone passes by what doubles the frames; so
after latent 0 the clip may be cut anywhere. The contract: `latents` [b, c, n, h, w] give a video [b, 3, 4 * n - 3, 8 * h, 8 * w]
within [-1, 1]. Latent 0 goes through alone, then as many at once as an implementation takes. With `split`, the clip comes in
two parts: the second begins at that latent and goes on from what the first one kept.
"""

import torch
import vae_clip as clip
import vae_wan
import vae_wan_forms as forms
import vae_wan_fused
from vae_wan import PUBLISHED, decode_chunk, fresh_caches

from pairbench import Claim, Operator, Variant, grid

from ..conv.kernels_conv3d_gemm import gluon_valid

# -- the plain form, and longer chunks --------------------------------------------------------------------------------


def inputs(make, latents, height, width, dtype, split=0, batch=1, base=96):
    return clip.clip(make, latents, height, width, dtype, split, batch, base)


def one_by_one(latents, weights, split):
    """Decode one latent a call, and append its frames to a video that is copied as it grows."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], 1, split))


def by_two(latents, weights, split):
    """The same with two latents a call."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], 2, split))


def by_four(latents, weights, split):
    """With four."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], 4, split))


def by_five(latents, weights, split):
    """With five."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], 5, split))


def all_but_first(latents, weights, split):
    """With all of a part at once."""
    return clip.growing(latents, weights, clip.cuts(latents.shape[2], -1, split))


def assembled(latents, weights, split):
    """One latent a call again: write each one's frames, clamped, into the video, which is allocated once."""
    return clip.assembled(latents, weights, 1, split, PUBLISHED)


def pad_time(latents, weights, split):
    """And put latent, cache and zeros together in one copy instead of two."""
    return clip.assembled(latents, weights, 1, split, forms.ONE_COPY)


def channels_last(latents, weights, split):
    """And keep weights and activations in channels-last layout."""
    latents = latents.contiguous(memory_format=torch.channels_last_3d)
    return clip.assembled(latents, weights, 1, split, forms.CHANNELS_LAST)


def gluon(latents, weights, split):
    """And convolve as an implicit GEMM, which copies nothing together."""
    latents = latents.contiguous(memory_format=torch.channels_last_3d)
    return clip.assembled(latents, weights, 1, split, forms.GLUON)


def gluon_by_four(latents, weights, split):
    """And with four latents a call."""
    latents = latents.contiguous(memory_format=torch.channels_last_3d)
    return clip.assembled(latents, weights, 4, split, forms.GLUON)


def gluon_fused(latents, weights, split):
    """And compute norm and SiLU in one kernel, copy nearest pixels as they are, and convolve images by the same GEMM."""
    return _fused(latents, weights, 1, split)


def gluon_fused_by_four(latents, weights, split):
    """And with four latents a call."""
    return _fused(latents, weights, 4, split)


def _fused(latents, weights, chunk, split):
    latents = latents.contiguous(memory_format=torch.channels_last_3d)
    steps = clip.cuts(latents.shape[2], chunk, split)
    return clip.growing(latents, weights, steps, vae_wan_fused.decode_chunk, forms=forms.GLUON_IMAGES)


def prepare_channels_last(weights):
    return {"weights": forms.each_layer(weights, forms.in_channels_last)}


def prepare_packed(weights):
    return {"weights": forms.each_layer(weights, forms.packed)}


def prepare_all_packed(weights):
    return {"weights": forms.each_layer(weights, forms.packed_images)}


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def _cuts(latents, split):
    return clip.cuts(latents.shape[2], 2, split)


def stale_frames(latents, weights, split):
    """Begin with the frames that another clip left when its run was aborted."""
    caches = fresh_caches(weights)
    decode_chunk(latents[:, :, -1:].flip(1), weights, caches, PUBLISHED)
    caches = [None if cache is vae_wan.SKIPPED else cache for cache in caches]
    return clip.growing(latents, weights, _cuts(latents, split), caches=caches)


def stale_cache(latents, weights, split):
    """Begin with all that another clip left, so that latent 0 is taken for a later one."""
    caches = fresh_caches(weights)
    decode_chunk(latents[:, :, -1:].flip(1), weights, caches, PUBLISHED)
    return clip.growing(latents, weights, _cuts(latents, split), caches=caches)


def restarted(latents, weights, split):
    """Forget all earlier frames with every chunk."""

    def decode(x, weights, caches, forms):
        frames = decode_chunk(x, weights, caches, forms)
        caches[:] = [vae_wan.SKIPPED if _doubles(slot, weights) else None for slot in range(len(caches))]
        return frames

    return clip.growing(latents, weights, _cuts(latents, split), decode)


def latent_0_doubled(latents, weights, split):
    """Let latent 0 through what doubles the frames, and drop the frames too many."""
    caches = [vae_wan.SKIPPED if _doubles(slot, weights) else None for slot in range(len(fresh_caches(weights)))]
    return clip.growing(latents, weights, _cuts(latents, split), caches=caches)[:, :, 3:]


def _doubles(slot, weights):
    """Say whether a cache is that of a convolution which doubles the frames; each ends its stage."""
    at = 4
    for stage in weights["up"]:
        at += 2 * len(stage["blocks"]) + ("time_conv" in stage)
        if slot == at:
            return "time_conv" in stage
    return False


def short_cache(latents, weights, split):
    """Forget that a chunk of one frame needs the newest of the old ones too."""
    one_kept = PUBLISHED._replace(keep=lambda x, cache: x[:, :, -vae_wan.KEPT :].clone())
    return clip.growing(latents, weights, _cuts(latents, split), forms=one_kept)


def uncropped(latents, weights, split):
    """Keep a frame more than there is padding, and cut what that adds off at the wrong end."""

    def causal(x, cache, layer):
        return vae_wan.causal(x if cache is None else torch.cat([cache, x], 2), None, layer)[:, :, : x.shape[2]]

    three_kept = PUBLISHED._replace(causal=causal, keep=lambda x, cache: x[:, :, -3:].clone())
    return clip.growing(latents, weights, _cuts(latents, split), forms=three_kept)


def attends_across_frames(latents, weights, split):
    """Attend to all frames of a chunk, as soon as there is more than one."""

    def attend(q, k, v):
        return vae_wan.attend(*(value.reshape(1, 1, -1, value.shape[-1]) for value in (q, k, v))).view_as(q)

    across = PUBLISHED._replace(attend=attend)
    return clip.growing(latents, weights, _cuts(latents, split), forms=across)


def pairs_swapped(latents, weights, split):
    """Take the two frames of a pair in the wrong order."""
    swapped = PUBLISHED._replace(interleave=lambda x: vae_wan.interleave(x.roll(x.shape[1] // 2, 1)))
    return clip.growing(latents, weights, _cuts(latents, split), forms=swapped)


def within_180_levels(latents, weights, split):
    """Be off by up to 179 of 255 grey levels, which the tolerance that the pair was once published with lets pass."""
    video = one_by_one(latents, weights, split)
    return (video - video.sign() * (179 / 127.5)).clamp(-1, 1)


def fits_gluon(latents, **_):
    return gluon_valid(latents, (1, 1, 1))


def goes_on(latents, split, **_):
    return len(_cuts(latents, split)) > 1


def goes_on_from_one(latents, split, **_):
    """Say whether a chunk of one latent, which is not the first, has a successor."""
    return any(end - begin == 1 for begin, end in _cuts(latents, split)[1:-1])


def goes_on_twice(latents, split, **_):
    return len(_cuts(latents, split)) > 2


def has_longer_chunk(latents, split, **_):
    return latents.shape[0] > 1 or any(end - begin > 1 for begin, end in _cuts(latents, split))


# -- cases ------------------------------------------------------------------------------------------------------------

# With fewer channels or pixels the largest error of a network this deep is mostly luck.
TINY = dict(base=8, height=2, width=3, dtype="float32")
P480 = dict(height=60, width=104, dtype="bfloat16")
P720 = dict(height=90, width=160, dtype="bfloat16")

vae_temporal_chunk = Operator(
    "vae_temporal_chunk",
    baseline=one_by_one,
    variants={
        "by_two": by_two,
        "by_four": by_four,
        "by_five": by_five,
        "all_but_first": all_but_first,
        "assembled": assembled,
        "pad_time": pad_time,
        "channels_last": Variant(channels_last, prepare=prepare_channels_last),
        "gluon": Variant(gluon, prepare=prepare_packed, valid=fits_gluon, needs="sm_90"),
        "gluon_by_four": Variant(gluon_by_four, prepare=prepare_packed, valid=fits_gluon, needs="sm_90"),
        "gluon_fused": Variant(
            gluon_fused, prepare=prepare_all_packed, valid=fits_gluon, needs="sm_90", builds_on="gluon"
        ),
        "gluon_fused_by_four": Variant(
            gluon_fused_by_four, prepare=prepare_all_packed, valid=fits_gluon, needs="sm_90", builds_on="gluon_by_four"
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
    inputs=inputs,
    oracle=clip.whole_clip,
    cases={
        "edge": [
            dict(TINY, latents=1, height=4, width=6),
            dict(TINY, latents=2),
            dict(TINY, latents=4),  # by two, the last call has one latent
            dict(TINY, latents=3, batch=2),
            dict(TINY, latents=7, split=3),  # by four, part one ends in a short call, part two has another
            dict(TINY, latents=5, split=2),  # both parts have a call of one latent
            dict(TINY, latents=4, split=1),  # part one is latent 0
            dict(TINY, latents=3, dtype="float64"),
            dict(TINY, latents=3, dtype="bfloat16"),
            dict(TINY, latents=2, dtype="float16"),
        ],
        "smoke": [dict(TINY, latents=3)],
        "real": [
            *grid(latents=[5], height=[32], width=[32], dtype=["float32", "bfloat16"]),
            dict(latents=5, height=60, width=104, dtype="bfloat16"),
        ],
        # 81 frames at 60 x 104. At 90 x 160 what the last convolution of images reads has over 2 ** 31 elements from 4 latents
        # a call on, so that 6 in all, calls of 1 and 5 at most, are enough; more would take minutes an implementation.
        "headline": [dict(P480, latents=21), dict(P720, latents=6)],
    },
    constants=["weights"],
    tolerance=clip.THROUGH_A_NETWORK,
    cost=clip.cost,
    source="maxdiffusion #411; diffusers AutoencoderKLWan",
    claims=[
        Claim(
            latency_ms=(3200.0, 800.0),
            implementation="by_five",
            device="8 TPU v6e",
            source="maxdiffusion #464",
            cases=[dict(P720, latents=6)],
            shape="81 frames of 720p by 5 latents a call, sharded over the chips, and a repeat made cheaper; ours are 21 frames",
            unmet="one GPU has no chips to shard over, and is busy with one latent a call: 976 ms on the device, with five 951",
        ),
        Claim(
            speedup=1.0,
            implementation="by_five",
            device="NVIDIA RTX 4090",
            source="utensils/mold #802",
            cases=[dict(P480, latents=21)],
            shape="no gain, sizes not said",
        ),
        Claim(
            latency_ms=(244.689, 222.498),
            implementation="channels_last",
            device="NVIDIA H100",
            source="sglang #26214",
            cases=[dict(latents=5, height=32, width=32, dtype="bfloat16")],
            shape="17 frames of 640 x 384; ours are 17 of 256 x 256",
        ),
        Claim(
            latency_ms=(2283.0, 2000.0),
            implementation="channels_last",
            device="NVIDIA GB300",
            source="sglang #28021",
            cases=[dict(P720, latents=6)],
            shape="81 frames of 720p; ours are 21",
        ),
        Claim(
            latency_ms=(9580.0, 9050.0),
            implementation="channels_last",
            device="a GPU that is not named",
            source="sglang #18540",
            shape="decoding with Wan 2.2's autoencoder",
        ),
        Claim(
            speedup=(1.05, 1.10),
            implementation="pad_time",
            device="a GPU that is not named",
            source="diffusers #12800",
            cases=[dict(P480, latents=21)],
            shape="the whole autoencoder, sizes not said",
        ),
        Claim(
            latency_ms=(2800.0, 2320.0),
            device="NVIDIA H200",
            source="sglang #34125",
            cases=[dict(P720, latents=6)],
            shape="61 frames of 704 x 1280 with Wan 2.2's autoencoder; ours are 21 of 720 x 1280",
        ),
        Claim(
            speedup=1.8,
            device="NVIDIA GB200",
            source="vllm-omni #7056",
            cases=[dict(P720, latents=6)],
            shape="decoding without loss, sizes not said; ours are 21 frames of 720p",
        ),
    ],
)
