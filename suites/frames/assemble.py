"""A video put together from the chunks that a causal decoder gives: one frame for the first latent, four for each other.

The plain form concatenates what it has with each new chunk, which copies every frame once for each chunk behind it, and
clamps the whole at the end. Written to its place in a video of the final size, by the clamp itself, every value is read
once and written once.
"""

from __future__ import annotations

import torch
from frames_data import video

from pairbench import EXACT, Cost, Operator, Variant, grid


def inputs(make, latents, height, width, dtype, batch=1, channels=3, data="uniform", layout="contiguous"):
    frames = [1] + [4] * (latents - 1)
    return {"chunks": [video(make, batch, channels, count, height, width, dtype, data, layout) for count in frames]}


def cost(latents, height, width, dtype, batch=1, channels=3, **_):
    values = batch * channels * (4 * latents - 3) * height * width
    return Cost(flops=2.0 * values, bytes=2.0 * values * getattr(torch, dtype).itemsize)


# -- the plain form, and others ---------------------------------------------------------------------------------------


def growing(chunks):
    """Concatenate what there is with each new chunk; clamp the whole at the end."""
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = torch.cat([whole, chunk], 2)
    return torch.clamp(whole, min=-1.0, max=1.0)


def cat_once(chunks):
    """Keep the chunks, concatenate all of them once, clamp in place."""
    return torch.cat(chunks, 2).clamp_(-1.0, 1.0)


def preallocated(chunks):
    """Copy each chunk to its place in a video allocated at its final size; clamp in place at the end."""
    whole, places = _places(chunks)
    for place, chunk in zip(places, chunks, strict=True):
        place.copy_(chunk)
    return whole.clamp_(-1.0, 1.0)


def clamp_in_write(chunks):
    """Let the clamp itself write each chunk to its place: every value is read once and written once."""
    whole, places = _places(chunks)
    for place, chunk in zip(places, chunks, strict=True):
        torch.clamp(chunk, -1.0, 1.0, out=place)
    return whole


def _places(chunks):
    """Return an empty video for all chunks, and each one's frames of it."""
    counts = [chunk.shape[2] for chunk in chunks]
    batch, channels, _, height, width = chunks[0].shape
    whole = chunks[0].new_empty(batch, channels, sum(counts), height, width)
    return whole, whole.split(counts, 2)


def taken_in_turn(chunks):
    """Stack single frames and bound them by comparisons, so that neither a concatenation of chunks nor a clamp takes part."""
    frames = torch.stack([frame for chunk in chunks for frame in chunk.unbind(2)], 2)
    return torch.where(frames > 1, 1.0, torch.where(frames < -1, -1.0, frames))


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def unclamped(chunks):
    return torch.cat(chunks, 2)


def unit_clamp(chunks):
    """Clamp to [0, 1], the range of another decoder."""
    return torch.cat(chunks, 2).clamp(0, 1)


def first_chunk_of_four(chunks):
    """Place chunk i at frame 4 i, as if the first one had four frames; the last one is cut off."""
    whole, _ = _places(chunks)
    whole.zero_()
    for index, chunk in enumerate(chunks):
        room = whole[:, :, 4 * index : 4 * index + chunk.shape[2]]
        room.copy_(chunk[:, :, : room.shape[2]])
    return whole.clamp_(-1, 1)


def under_allocated(chunks):
    """Allocate one frame a latent, as a port that misread the factor did."""
    whole = chunks[0].new_empty(*chunks[0].shape[:2], len(chunks), *chunks[0].shape[3:])
    start = 0
    for chunk in chunks:
        whole[:, :, start : start + chunk.shape[2]] = chunk.clamp(-1, 1)
        start += chunk.shape[2]
    return whole


def newest_first(chunks):
    return growing(chunks[::-1])


def last_chunk_repeated(chunks):
    """Hand on a buffer that the decoder has meanwhile written the last chunk into."""
    return growing([chunk if chunk.shape != chunks[-1].shape else chunks[-1] for chunk in chunks])


def several_chunks(chunks, **_):
    return len(chunks) > 1


def equal_chunks(chunks, **_):
    return len(chunks) > 2


def some_beyond_one(chunks, **_):
    return any(bool((chunk.abs() > 1).any()) for chunk in chunks)


# -- cases -------------------------------------------------------------------------------------------------------------

STREAM = dict(latents=4, height=5, width=7)

decode_assemble = Operator(
    "decode_assemble",
    baseline=growing,
    variants={"cat_once": cat_once, "preallocated": preallocated, "clamp_in_write": clamp_in_write},
    inputs=inputs,
    cases={
        "edge": [
            *(dict(STREAM, latents=latents, dtype="float32") for latents in (1, 2, 3)),
            dict(STREAM, dtype="float64"),
            dict(STREAM, dtype="float16"),
            dict(STREAM, data="special", dtype="float32"),
            dict(STREAM, data="special", dtype="bfloat16"),
            dict(STREAM, batch=2, dtype="float32"),
            dict(STREAM, batch=2, layout="channels_last_3d", dtype="bfloat16"),
            dict(STREAM, batch=2, layout="cropped", dtype="bfloat16"),
            dict(STREAM, channels=1, dtype="float32"),
            dict(STREAM, height=1, width=1, dtype="float32"),
        ],
        "smoke": grid(latents=[5], height=[8], width=[8], dtype=["float32", "bfloat16"]),
        "real": [
            *grid(latents=[21], height=[480], width=[832], dtype=["float32", "bfloat16"]),
            dict(latents=21, height=480, width=832, layout="channels_last_3d", dtype="bfloat16"),
        ],
        # 81 frames of 720 x 1280, and 121 of what the 5B model makes.
        "headline": [
            *grid(latents=[21], height=[720], width=[1280], dtype=["float32", "bfloat16"]),
            dict(latents=31, height=704, width=1280, dtype="float32"),
        ],
    },
    impostors={
        "unclamped": Variant(unclamped, valid=some_beyond_one),
        "unit_clamp": unit_clamp,
        "first_chunk_of_four": Variant(first_chunk_of_four, valid=several_chunks),
        "under_allocated": Variant(under_allocated, valid=several_chunks),
        "newest_first": Variant(newest_first, valid=several_chunks),
        "last_chunk_repeated": Variant(last_chunk_repeated, valid=equal_chunks),
    },
    oracle=taken_in_turn,
    tolerance=EXACT,
    cost=cost,
    source="diffusers AutoencoderKLWan._decode; maxdiffusion #411",
)
