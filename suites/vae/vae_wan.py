"""The Wan 2.1 video decoder as plain functions over a tree of weights, one chunk of latents at a time.

It stands apart from the declarations in `decoder.py`, and knows nothing of how a clip is cut into chunks. All that
looks at other pixels or other frames goes through `Forms`: what makes it faster, or spreads it over devices, is a
replacement there. All else concerns one pixel alone.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..conv import kernels_conv3d_torch

KEPT = 2
"""Frames that a convolution of three taps keeps of each chunk."""

SKIPPED = "skipped"
"""What a convolution that doubles the frames keeps of latent 0, which it never sees."""


class Widths(NamedTuple):
    """What the decoder's layers are made from; the defaults are those of Wan 2.1."""

    base: int = 96
    latent: int = 16
    stages: tuple = (4, 4, 2, 1)
    """Channels of each stage over the base, from the latents to the pixels."""
    blocks: int = 3
    """Residual blocks of a stage."""
    doubling: tuple = (True, True, False, False)
    """Whether the step behind a stage doubles the frames."""


class Place(NamedTuple):
    """Where a layer works: how often height and width, and the frames, were doubled before it."""

    space: int
    time: int


def structure(widths, conv, gamma):
    """Return the decoder as a tree of what `conv(cin, cout, kernel, place)` and `gamma(channels)` make of each layer.

    Weights and arithmetic are both made from it, so that they cannot disagree.
    """

    def residual(cin, cout, place):
        block = {"norm1": gamma(cin), "conv1": conv(cin, cout, (3, 3, 3), place)}
        block |= {"norm2": gamma(cout), "conv2": conv(cout, cout, (3, 3, 3), place)}
        return block | ({"shortcut": conv(cin, cout, (1, 1, 1), place)} if cin != cout else {})

    def attention(c, place):
        return {"norm": gamma(c), "qkv": conv(c, 3 * c, (1, 1), place), "proj": conv(c, c, (1, 1), place)}

    place = Place(0, 0)
    c = widths.base * widths.stages[0]
    tree = {
        "post_quant": conv(widths.latent, widths.latent, (1, 1, 1), place),
        "conv_in": conv(widths.latent, c, (3, 3, 3), place),
        "mid": [residual(c, c, place), attention(c, place), residual(c, c, place)],
        "up": [],
    }
    for i, multiple in enumerate(widths.stages):
        cout = widths.base * multiple
        stage = {"blocks": [residual(c if j == 0 else cout, cout, place) for j in range(widths.blocks)]}
        if i + 1 < len(widths.stages):
            if widths.doubling[i]:
                stage["time_conv"] = conv(cout, 2 * cout, (3, 1, 1), place)
            place = Place(place.space + 1, place.time + widths.doubling[i])
            stage["resample"] = conv(cout, cout // 2, (3, 3), place)
        c = cout // 2
        tree["up"].append(stage)
    return tree | {"norm_out": gamma(cout), "conv_out": conv(cout, 3, (3, 3, 3), place)}


def make_weights(make, widths, dtype):
    """Return seeded weights that keep activations of order one, and nearly all pixels within [-1, 1]."""

    def conv(cin, cout, kernel, place):
        # SiLU leaves 0.6 of what a norm made 1; only 2 pixels in 100 should meet the clamp, which hides differences.
        gain = 0.7 if cout == 3 else 1.0
        weight = make.normal(cout, cin, *kernel, dtype=dtype, scale=gain * (cin * math.prod(kernel)) ** -0.5)
        return {"weight": weight, "bias": make.normal(cout, dtype=dtype, scale=0.1 * gain)}

    return structure(widths, conv, lambda c: make.normal(c, 1, 1, 1, dtype=dtype, mean=1.0, scale=0.1))


def fresh_caches(weights):
    """Return the empty caches of a stream, one a cached convolution: shortcuts and `post_quant` own none."""
    residuals = len(weights["mid"][0::2]) + sum(len(stage["blocks"]) for stage in weights["up"])
    doublings = sum("time_conv" in stage for stage in weights["up"])
    return [None] * (2 + 2 * residuals + doublings)


# -- what looks at other pixels or frames -----------------------------------------------------------------------------


def causal(x, cache, layer):
    """Convolve [b, c, t, h, w] with what was kept of earlier frames, or zeros, before it."""
    weight = layer["weight"]
    return kernels_conv3d_torch.pad_all(x, cache, weight, layer["bias"], (1, 1, 1), [k // 2 for k in weight.shape[2:]])


def keep(x, cache):
    """Copy the last two frames; a chunk of one frame needs the newest of the old ones too."""
    kept = x[:, :, -KEPT:].clone()
    return torch.cat([cache[:, :, -1:], kept], dim=2) if kept.shape[2] < KEPT and cache is not None else kept


def planar(x, layer):
    """Convolve images [b * t, c, h, w]."""
    weight = layer["weight"]
    return F.conv2d(x, weight, layer["bias"], padding=weight.shape[-1] // 2)


def attend(q, k, v):
    """Attend with one head, [b * t, 1, h * w, c]: each frame to itself alone."""
    return F.scaled_dot_product_attention(q, k, v)


def interleave(x):
    """Turn two frames that lie in the channels, [b, 2 * c, t, h, w], into [b, c, 2 * t, h, w]."""
    b, c, t, h, w = x.shape
    x = x.reshape(b, 2, c // 2, t, h, w)
    return torch.stack((x[:, 0], x[:, 1]), 3).reshape(b, c // 2, 2 * t, h, w)


class Forms(NamedTuple):
    """How everything is computed that needs more than the pixel itself; as published unless replaced."""

    causal: object = causal
    keep: object = keep
    planar: object = planar
    attend: object = attend
    interleave: object = interleave


PUBLISHED = Forms()

# -- the network ------------------------------------------------------------------------------------------------------


class Slots:
    """Hands a stream's caches out in the order of the layers, and takes their successors."""

    def __init__(self, caches):
        self.caches, self.at = caches, 0

    def swap(self, kept):
        """Return the next layer's cache, and keep another in its place."""
        old, self.caches[self.at] = self.caches[self.at], kept
        self.at += 1
        return old

    @property
    def next(self):
        """The next layer's cache."""
        return self.caches[self.at]


def decode_chunk(x, weights, caches, forms):
    """Decode latents [b, c, t, h, w] to frames [b, 3, 4 * t, 8 * h, 8 * w]; the first latent of a stream gives one frame.

    Args:
        caches: What the chunk before left, or `fresh_caches`, and then x is latent 0 alone; its items are replaced. None
            decodes a whole clip in one piece, without any.
    """
    slots = None if caches is None else Slots(caches)
    x = _cached(x, weights["conv_in"], slots, forms)
    for block in weights["mid"]:
        x = _attention(x, block, forms) if "qkv" in block else _residual(x, block, slots, forms)
    for stage in weights["up"]:
        for block in stage["blocks"]:
            x = _residual(x, block, slots, forms)
        if "time_conv" in stage:
            x = _double(x, stage["time_conv"], slots, forms)
        if "resample" in stage:
            x = _enlarge(x, stage["resample"], forms)
    return _cached(F.silu(rms_norm(x, weights["norm_out"])), weights["conv_out"], slots, forms)


def rms_norm(x, gamma):
    """Normalise over channels, as the published module does: its missing bias is the number 0.0, and added."""
    return F.normalize(x, dim=1) * x.shape[1] ** 0.5 * gamma + 0.0


def _cached(x, layer, slots, forms):
    cache = None if slots is None else slots.swap(forms.keep(x, slots.next))
    return forms.causal(x, cache, layer)


def _residual(x, block, slots, forms):
    shortcut = forms.causal(x, None, block["shortcut"]) if "shortcut" in block else x
    for norm, conv in (("norm1", "conv1"), ("norm2", "conv2")):
        x = _cached(F.silu(rms_norm(x, block[norm])), block[conv], slots, forms)
    return x + shortcut


def _attention(x, block, forms):
    b, c, t, h, w = x.shape
    images = rms_norm(_images(x), block["norm"][..., 0])
    qkv = forms.planar(images, block["qkv"]).reshape(b * t, 1, 3 * c, h * w).transpose(2, 3).contiguous()
    mixed = forms.attend(*qkv.chunk(3, dim=-1))
    images = forms.planar(mixed.squeeze(1).transpose(1, 2).reshape(b * t, c, h, w), block["proj"])
    return _video(images, b) + x


def _double(x, layer, slots, forms):
    """Double the frames, except that of latent 0."""
    if slots is None:
        first, rest = x[:, :, :1], x[:, :, 1:]
        return torch.cat([first, forms.interleave(forms.causal(rest, None, layer))], 2) if rest.shape[2] else first
    cache = slots.next
    if cache is None:
        slots.swap(SKIPPED)
        return x
    cache = None if cache is SKIPPED else cache
    kept = forms.keep(x, cache)
    if kept.shape[2] < KEPT:
        kept = torch.cat([torch.zeros_like(kept), kept], dim=2)
    slots.swap(kept)
    return forms.interleave(forms.causal(x, cache, layer))


def _enlarge(x, layer, forms):
    """Double height and width, by way of float32 as published; float64 stays what it is."""
    images = _images(x)
    wide = images.to(torch.promote_types(x.dtype, torch.float32))
    return _video(forms.planar(F.interpolate(wide, scale_factor=2.0, mode="nearest-exact").type_as(x), layer), len(x))


def _images(x):
    return x.transpose(1, 2).reshape(-1, x.shape[1], *x.shape[3:])


def _video(images, b):
    return images.unflatten(0, (b, -1)).transpose(1, 2)


# -- how much there is to do ------------------------------------------------------------------------------------------


def clip_frames(latents, doublings=2):
    """Return how many frames so many latents are after so many doublings."""
    return latents and 1 + (latents - 1) * 2**doublings


def count_weights(widths):
    """Return the numbers in the weights."""
    return sum(leaves(structure(widths, lambda i, o, kernel, at: o * (i * math.prod(kernel) + 1), lambda c: c)))


def count_flops(widths, latents, height, width):
    """Return the operations of all convolutions and the attention for one clip, taps that meet padding left out."""

    def conv(cin, cout, kernel, place):
        frames = clip_frames(latents, place.time)
        if kernel == (3, 1, 1):
            frames -= 1  # that of latent 0 passes by
        taps = 3 - 3 / frames if kernel[0] == 3 and len(kernel) == 3 and frames > 1 else 1.0
        pixels = [size * 2**place.space for size in (height, width)]
        across = [3 * size - 2 if k == 3 else size for size, k in zip(pixels, kernel[-2:], strict=True)]
        return 2.0 * cin * cout * frames * taps * math.prod(across)

    scores = 4.0 * latents * (height * width) ** 2 * widths.base * widths.stages[0]
    return scores + sum(leaves(structure(widths, conv, lambda c: 0.0)))


def leaves(tree):
    """Return the leaves of dicts and lists in order."""
    if not isinstance(tree, dict | list):
        return [tree]
    return [leaf for item in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(item)]
