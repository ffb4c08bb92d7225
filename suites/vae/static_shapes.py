"""Decoding a clip in chunks of one shape: the last one padded to full length and its frames trimmed, or left short.

A compiler, or a captured graph, is made for shapes: a short last chunk is one more. Padding it costs arithmetic, part
of which is thrown away, and is right because nothing in the decoder looks ahead. What it leaves behind is wrong, though:
the caches end in padding, and a second part of the clip must not go on from them. The contract is that of
`decoder.py`.
"""

import torch.nn.functional as F
import vae_clip as clip
import vae_wan
import vae_wan_forms as forms
from vae_wan import PUBLISHED, decode_chunk, fresh_caches

from pairbench import Operator, Variant

from ..common.kernels_opaque import compile_apart

FRAMES = 4
"""Of each latent but the first."""


def ragged(latents, weights, chunk, split):
    """Decode what is left as a chunk of its own length."""
    return clip.assembled(latents, weights, chunk, split, PUBLISHED)


def padded(latents, weights, chunk, split):
    """Pad what is left with zeros to a whole chunk, and drop the frames too many."""
    return _in_whole_chunks(latents, weights, chunk, split)


def static(latents, weights, chunk, split):
    """And have caches of one shape too: two frames from the start, and those before the padding at the end."""
    # By how much the frames of a latent have been multiplied where something is kept.
    times = [2**i for i in range(1 + sum("time_conv" in stage for stage in weights["up"]))]

    def keeping(count):
        return vae_wan.Forms(keep=forms.keep_before(count, chunk, times, latents.device))

    return _in_whole_chunks(latents, weights, chunk, split, forms.fill_caches, keeping)


def _in_whole_chunks(latents, weights, chunk, split, fill=None, keeping=None):
    """Decode latent 0, then padded chunks.

    Args:
        fill: Brings the caches that latent 0 left to another shape.
        keeping: Gives the forms for a chunk of which so many latents count.
    """
    latents = vae_wan.causal(latents, None, weights["post_quant"])
    caches, video = fresh_caches(weights), clip.empty_video(latents)
    video[:, :, :1] = decode_chunk(latents[:, :, :1], weights, caches, PUBLISHED).clamp_(-1, 1)
    caches = fill(caches) if fill else caches
    for begin, end in clip.cuts(latents.shape[2], chunk, split)[1:]:
        compile_apart()
        x = F.pad(latents[:, :, begin:end], (0, 0, 0, 0, 0, chunk - (end - begin)))
        count = end - begin
        frames = decode_chunk(x, weights, caches, keeping(count) if keeping else PUBLISHED)[:, :, : FRAMES * count]
        at = vae_wan.clip_frames(begin)
        video[:, :, at : at + frames.shape[2]] = frames.clamp_(-1, 1)
    return video


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def padded_in_front(latents, weights, chunk, split):
    """Pad before the latents that are left, and drop the first frames."""
    return _padded_wrongly(latents, weights, chunk, split, front=True)


def trimmed_in_front(latents, weights, chunk, split):
    """Pad behind, and drop the first frames."""
    return _padded_wrongly(latents, weights, chunk, split, front=False)


def _padded_wrongly(latents, weights, chunk, split, front):
    def decode(x, weights, caches, forms):
        missing = 0 if caches[0] is None else chunk - x.shape[2]
        frames = decode_chunk(F.pad(x, (0, 0, 0, 0, missing * front, missing * (not front))), weights, caches, forms)
        return frames[:, :, FRAMES * missing :]

    return clip.growing(latents, weights, clip.cuts(latents.shape[2], chunk, split), decode)


def untrimmed(latents, weights, chunk, split):
    """Hand on the frames of the padding."""
    steps = clip.cuts(latents.shape[2], chunk, split)
    missing = chunk - (steps[-1][1] - steps[-1][0])
    latents = F.pad(latents, (0, 0, 0, 0, 0, missing))
    return clip.growing(latents, weights, [*steps[:-1], (steps[-1][0], latents.shape[2])])


def some_padding(latents, chunk, split, **_):
    return any(end - begin < chunk for begin, end in clip.cuts(latents.shape[2], chunk, split)[1:])


def padding_at_the_end(latents, chunk, split, **_):
    return latents.shape[2] > 1 and (latents.shape[2] - max(1, split)) % chunk > 0


def goes_on_from_padding(latents, chunk, split, **_):
    return any(end - begin < chunk for begin, end in clip.cuts(latents.shape[2], chunk, split)[1:-1])


def ends_with_padding(latents, chunk, split, **_):
    if goes_on_from_padding(latents, chunk, split):
        return "the first part leaves caches that end in padding, and the second would go on from them"
    return True


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(base=8, height=2, width=3, dtype="float32")

vae_static_shapes = Operator(
    "vae_static_shapes",
    baseline=ragged,
    variants={"padded": Variant(padded, valid=ends_with_padding), "static": static},
    impostors={
        "padded_continued": Variant(padded, valid=goes_on_from_padding),
        "padded_in_front": Variant(padded_in_front, valid=some_padding),
        "trimmed_in_front": Variant(trimmed_in_front, valid=some_padding),
        "untrimmed": Variant(untrimmed, valid=padding_at_the_end),
    },
    inputs=clip.inputs,
    oracle=clip.whole_clip,
    cases={
        "edge": [
            dict(TINY, latents=1, chunk=4),
            dict(TINY, latents=2, chunk=4),
            dict(TINY, latents=3, chunk=1),  # never any padding
            dict(TINY, latents=5, chunk=2),  # none here
            dict(TINY, latents=4, chunk=2, batch=2),
            dict(TINY, latents=5, chunk=2, split=3),  # goes on from a whole chunk
            dict(TINY, latents=5, chunk=2, split=2),  # from one latent and a padding
            dict(TINY, latents=5, chunk=3, split=3),
            dict(TINY, latents=3, chunk=2, split=1),
            dict(TINY, latents=4, chunk=2, dtype="float64"),
            dict(TINY, latents=4, chunk=2, dtype="bfloat16"),
        ],
        "smoke": [dict(TINY, latents=6, chunk=4)],
        "real": [
            dict(latents=21, height=30, width=52, chunk=8, dtype="bfloat16"),
            dict(latents=21, height=30, width=52, chunk=8, split=11, dtype="bfloat16"),
        ],
        "headline": [dict(latents=31, height=44, width=80, chunk=8, dtype="bfloat16")],
    },
    constants=["weights"],
    tolerance=clip.THROUGH_A_NETWORK,
    cost=clip.cost,
    source="maxdiffusion #411",
)
