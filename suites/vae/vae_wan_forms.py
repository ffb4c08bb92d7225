"""Other ways to compute what `vae_wan.Forms` names, and the weights laid out for them."""

import functools
import itertools

import torch
import torch.nn.functional as F
import vae_wan

from ..conv import kernels_conv3d_torch
from ..conv.kernels_conv3d_gemm import implicit_gluon, implicit_weight

STRIDE = (1, 1, 1)

# -- fewer copies, another layout, another kernel ---------------------------------------------------------------------


def pad_time(x, cache, layer):
    """Put the frames together in one concatenation; the convolution pads height and width."""
    weight = layer["weight"]
    return kernels_conv3d_torch.pad_time(x, cache, weight, layer["bias"], STRIDE, [k // 2 for k in weight.shape[2:]])


def gluon(x, cache, layer):
    """Read chunk and cache where they lie, as an implicit GEMM for Hopper."""
    weight = layer["weight"]
    padding = [k // 2 for k in weight.shape[2:]]
    return implicit_gluon(x, cache, weight, layer["bias"], STRIDE, padding, layer["packed"])


def gluon_images(x, layer):
    """Convolve images [b * t, c, h, w] by the same GEMM, each a video of one frame; it adds the bias on the way."""
    weight = layer["weight"][:, :, None]
    padding = (0, *(k // 2 for k in weight.shape[3:]))
    return implicit_gluon(x[:, :, None], None, weight, layer["bias"], STRIDE, padding, layer["packed"])[:, :, 0]


def interleave_in_layout(x):
    """Write either half of the channels to every other frame, in the layout of x."""
    b, c, t, h, w = x.shape
    layout = kernels_conv3d_torch.layout_of(x)
    frames = torch.empty((b, c // 2, 2 * t, h, w), dtype=x.dtype, device=x.device, memory_format=layout)
    frames[:, :, 0::2] = x[:, : c // 2]
    frames[:, :, 1::2] = x[:, c // 2 :]
    return frames


ONE_COPY = vae_wan.Forms(causal=pad_time)
CHANNELS_LAST = vae_wan.Forms(causal=pad_time, interleave=interleave_in_layout)
GLUON = vae_wan.Forms(causal=gluon, interleave=interleave_in_layout)
GLUON_IMAGES = GLUON._replace(planar=gluon_images)


def in_channels_last(layer):
    layout = torch.channels_last_3d if layer["weight"].dim() == 5 else torch.channels_last
    return layer | {"weight": layer["weight"].contiguous(memory_format=layout)}


def packed(layer):
    """Pack what the implicit GEMM reads; images are convolved as before, in channels-last layout."""
    return layer | implicit_weight(**layer) if layer["weight"].dim() == 5 else in_channels_last(layer)


def packed_images(layer):
    """Pack the convolutions of images too."""
    weight = layer["weight"]
    return layer | implicit_weight(weight if weight.dim() == 5 else weight[:, :, None], layer["bias"])


def each_layer(tree, change):
    """Return the tree of weights with `change` applied to every convolution."""
    if isinstance(tree, list):
        return [each_layer(item, change) for item in tree]
    if isinstance(tree, dict):
        return change(tree) if "weight" in tree else {name: each_layer(item, change) for name, item in tree.items()}
    return tree


def to_dtype(tree, dtype):
    """Return the tree of weights in another dtype."""
    if isinstance(tree, list):
        return [to_dtype(item, dtype) for item in tree]
    return {name: to_dtype(item, dtype) for name, item in tree.items()} if isinstance(tree, dict) else tree.to(dtype)


# -- one shape for every chunk ----------------------------------------------------------------------------------------


def fill_caches(caches):
    """Bring what latent 0 left to its final shape, with zeros before it: what padding would have been."""
    filled = []
    for cache in caches:
        if cache is vae_wan.SKIPPED:  # it stands behind the cache of a convolution with as many channels and pixels
            filled.append(torch.zeros_like(filled[-1]))
        else:
            missing = torch.zeros_like(cache[:, :, : vae_wan.KEPT - cache.shape[2]])
            filled.append(torch.cat([missing, cache], dim=2))
    return filled


def keep_before(latents, chunk, times, device):
    """Return a `keep` for a chunk of which only the first latents count.

    Where those end is a tensor, so that it is no part of what a compiled chunk is compiled for.

    Args:
        latents: How many count.
        chunk: How many there are.
        times: By how much the frames of a latent can have been multiplied.
        device: Of the frames.
    """
    last = {n: torch.arange(n * latents - vae_wan.KEPT, n * latents, device=device) for n in times}
    last[1] = last[1] + vae_wan.KEPT  # counted from the first frame kept before: one latent needs the newest of those
    return functools.partial(_keep_at, last, chunk)


def _keep_at(last, chunk, x, cache):
    n = x.shape[2] // chunk
    return (torch.cat([cache, x], dim=2) if n == 1 else x).index_select(2, last[n])


# -- the oracle -------------------------------------------------------------------------------------------------------


def sum_of_taps(x, cache, layer):
    """Add up one product of matrices for each tap: no convolution takes part, and in float64 these are what a GPU is fast at."""
    weight = layer["weight"]
    before = weight.shape[2] - 1 - (cache.shape[2] if cache is not None else 0)
    frames = F.pad(x if cache is None else torch.cat([cache, x], dim=2), (0, 0, 0, 0, before, 0))
    return _taps_met(frames.movedim(1, -1), weight, layer["bias"])


def taps_of_images(x, layer):
    """The same for images [b * t, c, h, w], each a video of one frame."""
    return _taps_met(x[:, None].movedim(2, -1), layer["weight"][:, :, None], layer["bias"])[:, :, 0]


def _taps_met(frames, weight, bias):
    """Convolve frames [b, t, h, w, c], padded in time already, and return [b, c, t, h, w].

    Height and width are padded so that all pixels of a video lie in one row: then what a tap meets is a part of that row,
    with no copy of it, and the sums between the rows of pixels, which mean nothing, are cut off at the end.
    """
    high, wide = (k // 2 for k in weight.shape[3:])
    rows = F.pad(frames, (0, 0, wide, wide, high, high))
    b, t, h, w, c = rows.shape
    flat = F.pad(rows.reshape(-1, c), (0, 0, high * w + wide, high * w + wide))
    count = b * t * h * w
    kept = t - weight.shape[2] + 1
    total = bias.expand(count, -1).contiguous()
    for i, j, k in itertools.product(*(range(taps) for taps in weight.shape[2:])):
        # Frames that a tap reads beyond the end belong to the next video, and to outputs that are cut off.
        start = (i * h + j) * w + k
        met = flat[start : start + count]
        total[: len(met)].addmm_(met, weight[:, :, i, j, k].T)
    video = total.view(b, t, h, w, -1)[:, :kept, high : h - high, wide : w - wide]
    return video.movedim(-1, 1).contiguous()


def softmax_attend(q, k, v):
    """Attend by the formula, one image at a time: the scores of all would not fit."""
    scale = q.shape[-1] ** -0.5
    return torch.stack([(qi * scale @ ki.mT).softmax(-1) @ vi for qi, ki, vi in zip(q, k, v, strict=True)])


BY_FORMULA = vae_wan.Forms(causal=sum_of_taps, planar=taps_of_images, attend=softmax_attend)
