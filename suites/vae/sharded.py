"""Decoding a clip of latents with the Wan 2.1 VAE on several GPUs, each of which has some columns, or rows, of the pixels.

The contract is that of `decoder.py`. Every process has all weights and the caches of its own pixels. What goes from GPU
to GPU: latents and frames, one line of pixels at each seam in front of every convolution of 3 x 3, and keys and values at the
latents' resolution. `sharded_N` wants N GPUs; `processes_3` is the same with processes of a CPU, to try it there: they
share its cores and cannot be faster. Launches, kernels, operators and memory are those of the first GPU, which besides its
slab, the largest if they differ, holds the latents and the video; so none of the others has a higher peak.
"""

import torch
import vae_clip as clip
import vae_shard_team as team
import vae_wan
import vae_wan_forms as forms
from vae_wan import PUBLISHED

from pairbench import Operator, Variant

# -- one GPU, and several ---------------------------------------------------------------------------------------------


def one_device(latents, weights, chunk, split):
    """Decode on one device, chunk by chunk into a video that is allocated once."""
    return clip.assembled(latents, weights, chunk, split, PUBLISHED)


def one_copy(latents, weights, chunk, split):
    """And put chunk, cache and zeros together in one copy, as each of several devices does."""
    return clip.assembled(latents, weights, chunk, split, forms.ONE_COPY)


def in_two(latents, weights, chunk, split, version):
    """Decode two slabs in two processes."""
    return team.decode_in(2, latents, weights, clip.cuts(latents.shape[2], chunk, split), int(version))


def in_three(latents, weights, chunk, split, version):
    """Decode three slabs: the middle one has two seams."""
    return team.decode_in(3, latents, weights, clip.cuts(latents.shape[2], chunk, split), int(version))


def in_four(latents, weights, chunk, split, version):
    """Decode four slabs in four processes."""
    return team.decode_in(4, latents, weights, clip.cuts(latents.shape[2], chunk, split), int(version))


def prepare_two(weights):
    return {"version": team.load(2, weights)}


def prepare_three(weights):
    return {"version": team.load(3, weights)}


def prepare_four(weights):
    return {"version": team.load(4, weights)}


def enough_for(devices):
    """Return a `valid` that wants a line of pixels for each device."""

    def valid(latents, **_):
        lines = max(latents.shape[3:])
        return lines >= devices or f"{lines} latents across cannot be cut into {devices} slabs"

    return valid


# -- deliberately wrong, all on one device: two slabs of rows ---------------------------------------------------------


def no_halo(latents, weights, chunk, split):
    """Pad each slab with zeros, at the seam too."""
    return _with_lines(latents, weights, chunk, split, lambda other, _: torch.zeros_like(other[..., :1, :]))


def halo_from_the_wrong_side(latents, weights, chunk, split):
    """Take the line of the neighbour that is farthest from the seam."""

    def far(other, below):
        return other[..., -1:, :] if below else other[..., :1, :]

    return _with_lines(latents, weights, chunk, split, far)


def halo_of_its_own(latents, weights, chunk, split):
    """Repeat the slab's own line at the seam, as if the image were mirrored there."""
    return _with_lines(latents, weights, chunk, split, None)


def halo_without_the_cache(latents, weights, chunk, split):
    """Exchange lines of the new frames alone, and have zeros beside those that were kept."""
    return _with_lines(latents, weights, chunk, split, _near, cached=False)


def local_attention(latents, weights, chunk, split):
    """Let each slab attend to its own pixels."""
    height, width = latents.shape[3:]
    tokens = [width * rows for rows in _two(height)]

    def attend(q, k, v):
        pieces = zip(*(value.split(tokens, dim=2) for value in (q, k, v)), strict=True)
        return torch.cat([vae_wan.attend(*piece) for piece in pieces], dim=2)

    return clip.assembled(latents, weights, chunk, split, PUBLISHED._replace(attend=attend))


def _with_lines(latents, weights, chunk, split, line, cached=True):
    """Decode with two slabs of rows, each widened by a line of the other.

    Args:
        line: Takes the other slab and whether it is the one below, and returns the line; None for a slab's own.
        cached: Whether lines of the frames that were kept are right.
    """
    rows = _two(latents.shape[3])

    def widened(x):
        above, below = x.split([x.shape[-2] // sum(rows) * length for length in rows], dim=-2)
        if line is None:
            return torch.cat([above, above[..., -1:, :]], -2), torch.cat([below[..., :1, :], below], -2)
        return torch.cat([above, line(below, True)], -2), torch.cat([line(above, False), below], -2)

    def joined(above, below):
        return torch.cat([above[..., :-1, :], below[..., 1:, :]], dim=-2)

    def causal(x, cache, layer):
        if layer["weight"].shape[-1] == 1:
            return vae_wan.causal(x, cache, layer)
        kept = (None, None) if cache is None else widened(cache)
        if cache is not None and not cached:
            kept[0][..., -1:, :].zero_()
            kept[1][..., :1, :].zero_()
        return joined(*(vae_wan.causal(part, old, layer) for part, old in zip(widened(x), kept, strict=True)))

    def planar(x, layer):
        if layer["weight"].shape[-1] == 1:
            return vae_wan.planar(x, layer)
        return joined(*(vae_wan.planar(part, layer) for part in widened(x)))

    return clip.assembled(latents, weights, chunk, split, PUBLISHED._replace(causal=causal, planar=planar))


def _near(other, below):
    return other[..., :1, :] if below else other[..., -1:, :]


def _two(height):
    return height - height // 2, height // 2


def has_a_seam(latents, **_):
    return latents.shape[3] > 1


def has_a_far_side(latents, **_):
    """Say whether both slabs have two rows, so that near and far are not the same."""
    return latents.shape[3] > 3


def keeps_frames(latents, **_):
    return latents.shape[3] > 1 and latents.shape[2] > 1


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(base=8, height=4, width=6, dtype="float32")
P480 = dict(height=60, width=104, dtype="bfloat16")
P720 = dict(height=90, width=160, dtype="bfloat16")

vae_sharded = Operator(
    "vae_sharded",
    baseline=one_device,
    variants={
        "one_copy": one_copy,
        "sharded_2": Variant(in_two, prepare=prepare_two, valid=enough_for(2), needs="gpus:2"),
        "sharded_4": Variant(in_four, prepare=prepare_four, valid=enough_for(4), needs="gpus:4"),
        "processes_3": Variant(in_three, prepare=prepare_three, valid=enough_for(3), needs="cpu"),
    },
    impostors={
        "no_halo": Variant(no_halo, valid=has_a_seam),
        "halo_from_the_wrong_side": Variant(halo_from_the_wrong_side, valid=has_a_far_side),
        "halo_of_its_own": Variant(halo_of_its_own, valid=has_a_seam),
        "halo_without_the_cache": Variant(halo_without_the_cache, valid=keeps_frames),
        "local_attention": Variant(local_attention, valid=has_a_seam),
    },
    inputs=clip.inputs,
    oracle=clip.whole_clip,
    cases={
        "edge": [
            dict(TINY, latents=1, chunk=1, width=7),  # slabs of 4 and 3, of 3 and 2 and 2
            dict(TINY, latents=2, chunk=1, height=5, width=4, dtype="float64"),  # rows are cut, and do not divide
            dict(TINY, latents=2, chunk=1, height=2, width=3),  # three slabs of one column
            dict(TINY, latents=2, chunk=1, height=2, width=2),  # two of them, and too few for three
            dict(TINY, latents=3, chunk=-1, batch=2),
            dict(TINY, latents=4, chunk=2, split=3),
            dict(TINY, latents=2, chunk=1, dtype="bfloat16"),
            dict(TINY, latents=2, chunk=1, dtype="float16"),
        ],
        "smoke": [dict(TINY, latents=3, chunk=2)],
        "real": [
            dict(latents=5, height=32, width=32, chunk=chunk, dtype=dtype)
            for chunk in (1, 4)
            for dtype in ("float32", "bfloat16")
        ],
        # Clips of 33 and 17 frames; longer ones need as much memory, but for the video, and time in proportion.
        "headline": [dict(P480, latents=9, chunk=4), dict(P720, latents=5, chunk=1)],
    },
    constants=["weights"],
    tolerance=clip.THROUGH_A_NETWORK,
    cost=clip.cost,
    source="maxdiffusion #411",
)
