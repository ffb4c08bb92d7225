"""Causal 3-D convolution of a single frame: most of its temporal taps meet zeros, so that two dimensions are enough.

An image, and the first chunk of every video, is one frame without earlier ones: padded to three, two thirds of the products
are with zeros. Only the last temporal tap counts, which is a 2-D convolution. With n cached frames n + 1 taps count: a sum of
that many 2-D convolutions, or one of the frames stacked along channels.

The contract is that of `causal_conv3d`: `x` is [b, c, t, h, w], `cache` holds earlier frames or is None, time is padded at the
front only, by 2 * padding[0] frames, the cached ones first. What is not one frame is here for the dispatch to fall back.
"""

from __future__ import annotations

import math

import kernels_conv3d_torch as forms
import torch
import torch.nn.functional as F
from conv_contraction import contracted, products_met
from kernels_conv3d_gemm import gluon_valid, implicit, implicit_gluon, implicit_valid, implicit_weight

from pairbench import REASSOCIATED, Cost, Operator, Variant, grid


def inputs(
    make, c, h, w, out, dtype, t=1, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1), cache=0, cache_data="normal",
    bias=True, layout="contiguous",
):  # fmt: skip
    kept = _frames(make, (b, c, cache, h, w), layout, dtype) if cache else None
    return {
        "x": _frames(make, (b, c, t, h, w), layout, dtype),
        "cache": kept.zero_() if cache and cache_data == "zeros" else kept,
        "weight": make.normal(out, c, *kernel, dtype=dtype, scale=(c * math.prod(kernel)) ** -0.5),
        "bias": make.normal(out, dtype=dtype, scale=0.25) if bias else None,
        "stride": stride,
        "padding": padding,
    }


def _frames(make, shape, layout, dtype):
    frames = make.normal(*shape, dtype=dtype)
    return frames.contiguous(memory_format=torch.channels_last_3d) if layout == "channels_last_3d" else frames


def cost(
    c, h, w, out, dtype, t=1, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1), cache=0, bias=True, **_
):  # fmt: skip
    front = 2 * padding[0]
    cached = min(cache, front)
    over_time, frames = products_met(t + cached, kernel[0], stride[0], front - cached, 0)
    over_rows, rows = products_met(h, kernel[1], stride[1], padding[1], padding[1])
    over_columns, columns = products_met(w, kernel[2], stride[2], padding[2], padding[2])
    elements = b * c * (t + cached) * h * w + out * (c * math.prod(kernel) + bias) + b * out * frames * rows * columns
    products = b * c * out * over_time * over_rows * over_columns
    return Cost(flops=2.0 * products, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- the forms in two dimensions --------------------------------------------------------------------------------------


def sum_of_frames(x, cache, weight, bias, stride, padding, taps):
    """Add up one 2-D convolution for each frame that there is; the bias goes with the newest."""
    total = None
    for frame, tap in zip(reversed(_met(x, cache, padding)), taps, strict=False):
        part = F.conv2d(frame, tap, bias if total is None else None, stride[1:], padding[1:])
        total = part if total is None else total.add_(part)
    return total.unsqueeze(2)


def separate_taps(weight, bias):
    """Return the temporal taps, the newest frame's first."""
    return {"taps": [tap.contiguous() for tap in reversed(weight.unbind(2))]}


def stacked_frames(x, cache, weight, bias, stride, padding, stacked):
    """Stack the frames along channels for one 2-D convolution, in the layout that the weight was laid out in."""
    frames = _met(x, cache, padding)
    taps = stacked[len(frames) - 1]
    last = taps.is_contiguous(memory_format=torch.channels_last) and not taps.is_contiguous()
    together = frames[0] if len(frames) == 1 else torch.cat(frames, 1)
    if last:
        together = together.contiguous(memory_format=torch.channels_last)
    y = F.conv2d(together, taps, bias, stride[1:], padding[1:]).unsqueeze(2)
    return y.contiguous(memory_format=forms.layout_of(x))


def dispatched(x, cache, weight, bias, stride, padding, stacked):
    """Two dimensions for a single frame, else the plain form."""
    if is_single_frame(x, cache, weight, stride, padding) is True:
        return stacked_frames(x, cache, weight, bias, stride, padding, stacked)
    return forms.pad_all(x, cache, weight, bias, stride, padding)


def stack_taps(weight, bias):
    """Return the last one, two, ... temporal taps side by side along channels: what 1, 2, ... frames meet."""
    taps = weight.transpose(1, 2)
    return {"stacked": [taps[:, -count:].flatten(1, 2).contiguous() for count in range(1, taps.shape[1] + 1)]}


def stack_taps_channels_last(weight, bias):
    stacked = stack_taps(weight, bias)["stacked"]
    return {"stacked": [taps.contiguous(memory_format=torch.channels_last) for taps in stacked]}


def _met(x, cache, padding):
    """Return the frames that the output reaches, oldest first, as [b, c, h, w]."""
    front = 2 * padding[0]
    if cache is None or front == 0:
        return [x[:, :, 0]]
    return [*cache[:, :, max(0, cache.shape[2] - front) :].unbind(2), x[:, :, 0]]


# -- what is valid ----------------------------------------------------------------------------------------------------


def is_single_frame(x, cache, weight, stride, padding, **_):
    if x.shape[2] != 1:
        return f"{x.shape[2]} frames; each has another set of earlier ones"
    if weight.shape[2] != 2 * padding[0] + 1:
        return f"{weight.shape[2]} temporal taps for {2 * padding[0]} frames of padding; the last one does not meet the frame"
    return True


def is_summable(x, cache, weight, stride, padding, **_):
    single = is_single_frame(x, cache, weight, stride, padding)
    if single is True and x.element_size() < 4 and len(_met(x, cache, padding)) > 1:
        return f"it rounds a sum for each frame, which is more than {x.dtype} leaves room for"
    return single


# -- the independent oracle -------------------------------------------------------------------------------------------


def contracted_frames(x, cache, weight, bias, stride, padding):
    """Contract tap by tap; a cache of zeros is taken for none at all, which it has to be equal to."""
    front = 2 * padding[0]
    if cache is not None and front > 0 and bool(cache.any()):
        kept = cache[:, :, max(0, cache.shape[2] - front) :]
        x, front = torch.cat([kept, x], 2), front - kept.shape[2]
    return contracted(x, weight, bias, stride, padding[1:], front)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def first_tap(x, cache, weight, bias, stride, padding):
    """Take the tap of the oldest frame."""
    return F.conv2d(x[:, :, 0], weight[:, :, 0], bias, stride[1:], padding[1:]).unsqueeze(2)


def middle_tap(x, cache, weight, bias, stride, padding):
    """Take the tap that a convolution which pads both ends of time would use."""
    middle = weight[:, :, weight.shape[2] // 2]
    return F.conv2d(x[:, :, 0], middle, bias, stride[1:], padding[1:]).unsqueeze(2)


def repeated_frame(x, cache, weight, bias, stride, padding):
    """Pad time with the frame itself: all taps count, summed up."""
    return F.conv2d(x[:, :, 0], weight.sum(2), bias, stride[1:], padding[1:]).unsqueeze(2)


def bias_each_frame(x, cache, weight, bias, stride, padding):
    """Add the bias with every 2-D convolution of the sum."""
    return forms.pad_all(x, cache, weight, bias * len(_met(x, cache, padding)), stride, padding)


def cache_ignored(x, cache, weight, bias, stride, padding):
    return forms.pad_all(x, None, weight, bias, stride, padding)


def cache_reversed(x, cache, weight, bias, stride, padding):
    return forms.pad_all(x, cache.flip(2), weight, bias, stride, padding)


def oldest_kept(x, cache, weight, bias, stride, padding):
    """Keep the oldest frames of a cache that is longer than the padding."""
    return forms.pad_all(x, cache[:, :, : 2 * padding[0]], weight, bias, stride, padding)


def some_single_frame(x, cache, weight, stride, padding, **_):
    return weight.shape[2] > 1 and is_single_frame(x, cache, weight, stride, padding) is True


def some_cache(cache, padding, **_):
    return cache is not None and padding[0] > 0 and bool(cache.any())


def several_cached(cache, padding, **_):
    return some_cache(cache, padding) and cache.shape[2] > 1


def longer_cache(cache, padding, **_):
    return some_cache(cache, padding) and cache.shape[2] > 2 * padding[0]


def bias_of_several(x, cache, bias, padding, **_):
    return bias is not None and len(_met(x, cache, padding)) > 1


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(c=4, h=4, w=5, out=5, dtype="float16")

EDGE = [
    dict(TINY, dtype="float64"),
    dict(TINY, cache=2, dtype="float64"),
    dict(TINY),
    dict(TINY, cache=1),
    dict(TINY, cache=2),
    dict(TINY, cache=3),  # longer than the padding: its oldest frame must not count
    dict(TINY, cache=1, cache_data="zeros"),
    dict(TINY, cache=2, cache_data="zeros", dtype="float64"),
    dict(TINY, kernel=(5, 3, 3), padding=(2, 1, 1)),
    dict(TINY, kernel=(5, 1, 1), padding=(2, 0, 0), cache=3),
    dict(TINY, kernel=(3, 1, 1), padding=(1, 0, 0), cache=2),
    dict(TINY, kernel=(1, 3, 3), padding=(0, 1, 1), cache=2),  # no padding in time: the cache must be ignored
    dict(TINY, kernel=(1, 1, 1), padding=(0, 0, 0)),
    dict(TINY, kernel=(2, 3, 3), padding=(1, 1, 1)),  # two outputs of one frame
    dict(TINY, t=2),
    dict(TINY, t=3, cache=2, stride=(2, 1, 1)),
    dict(TINY, stride=(1, 2, 2)),
    dict(TINY, padding=(1, 0, 2), bias=False),
    dict(TINY, b=2, cache=2, layout="channels_last_3d"),
    dict(TINY, b=2, cache=2, bias=False, dtype="float64"),
    dict(TINY, c=8, out=24, cache=1, layout="channels_last_3d", dtype="bfloat16"),
    dict(TINY, c=1, out=3, layout="channels_last_3d"),  # one channel, one frame: in both layouts at once
]

SMOKE = [
    *grid(c=[16], h=[4], w=[8], out=[16], dtype=["float32", "bfloat16"]),
    dict(c=16, h=4, w=8, out=16, cache=2, dtype="bfloat16"),
]

# The first chunk of a video at 480 x 832 in the Wan 2.1 decoder, and steps of a stream that has frames cached.
REAL = [
    dict(c=384, h=60, w=104, out=384, dtype="float32"),
    *(dict(c=384, h=60, w=104, out=384, cache=cache, dtype="bfloat16") for cache in (0, 1, 2)),
    dict(c=384, h=60, w=104, out=384, layout="channels_last_3d", dtype="bfloat16"),
    dict(c=192, h=240, w=416, out=192, dtype="bfloat16"),
    dict(c=96, h=480, w=832, out=96, dtype="bfloat16"),
    dict(c=96, h=480, w=832, out=96, cache=2, dtype="bfloat16"),
    dict(c=96, h=480, w=832, out=3, dtype="bfloat16"),
    dict(c=384, h=60, w=104, out=768, kernel=(3, 1, 1), padding=(1, 0, 0), cache=2, dtype="bfloat16"),
    dict(c=384, h=128, w=128, out=384, dtype="bfloat16"),  # an image of 1024 x 1024, where there is always one frame
]

HEADLINE = [
    *(dict(c=96, h=720, w=1280, out=96, cache=cache, dtype="bfloat16") for cache in (0, 2)),
    dict(c=96, h=720, w=1280, out=96, layout="channels_last_3d", dtype="bfloat16"),
    dict(c=96, h=720, w=1280, out=96, dtype="float32"),
]

causal_conv3d_frame = Operator(
    "causal_conv3d_frame",
    baseline=forms.pad_all,
    variants={
        "pad_time": forms.pad_time,
        "channels_last": Variant(forms.channels_last, prepare=forms.channels_last_weight),
        "sum_of_frames": Variant(sum_of_frames, prepare=separate_taps, valid=is_summable),
        "stacked_frames": Variant(stacked_frames, prepare=stack_taps, valid=is_single_frame),
        "stacked_channels_last": Variant(stacked_frames, prepare=stack_taps_channels_last, valid=is_single_frame),
        "dispatched": Variant(dispatched, prepare=stack_taps),
        "triton": Variant(implicit, prepare=implicit_weight, valid=implicit_valid, needs="triton"),
        "gluon": Variant(implicit_gluon, prepare=implicit_weight, valid=gluon_valid, needs="sm_90"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "first_tap": Variant(first_tap, valid=some_single_frame),
        "middle_tap": Variant(middle_tap, valid=some_single_frame),
        "repeated_frame": Variant(repeated_frame, valid=some_single_frame),
        "bias_each_frame": Variant(bias_each_frame, valid=bias_of_several),
        "cache_ignored": Variant(cache_ignored, valid=some_cache),
        "cache_reversed": Variant(cache_reversed, valid=several_cached),
        "oldest_kept": Variant(oldest_kept, valid=longer_cache),
    },
    oracle=contracted_frames,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="diffusers #12800; diffusers AutoencoderKLQwenImage",
)
