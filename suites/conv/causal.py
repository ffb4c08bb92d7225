"""Causal 3-D convolution of video autoencoders: time is padded at the front only, from a cache of earlier frames or zeros.

The plain form pads all three dimensions by copying. The variants differ in what they copy, in which layout the
convolution runs, and in whether there is a padded copy at all.
"""

import kernels_conv3d_torch as forms
import torch
import torch.nn.functional as F
from kernels_conv3d_gemm import gluon_valid, implicit, implicit_gluon, implicit_valid, implicit_weight

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant


def inputs(
    make, c, t, h, w, out, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1), cache=0, bias=True,
    layout="contiguous", dtype="bfloat16",
):  # fmt: skip
    return {
        "x": _video(make, (b, c, t, h, w), layout, dtype),
        "cache": _video(make, (b, c, cache, h, w), layout, dtype) if cache else None,
        "weight": make.normal(out, c, *kernel, dtype=dtype, scale=(c * kernel[0] * kernel[1] * kernel[2]) ** -0.5),
        "bias": make.normal(out, dtype=dtype, scale=0.25) if bias else None,
        "stride": stride,
        "padding": padding,
    }


def _video(make, shape, layout, dtype):
    b, c, t, h, w = shape
    if layout == "frames_first":  # a decoded video, [b, t, c, h, w] in memory
        return make.normal(b, t, c, h, w, dtype=dtype).transpose(1, 2)
    video = make.normal(*shape, dtype=dtype)
    return video.to(memory_format=torch.channels_last_3d) if layout == "channels_last_3d" else video


def cost(
    c, t, h, w, out, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1), cache=0, bias=True,
    layout="contiguous", dtype="bfloat16",
):  # fmt: skip
    cached = min(cache, 2 * padding[0])
    steps, taps_t = _taps(t, kernel[0], stride[0], before=2 * padding[0], known=cached)
    rows, taps_h = _taps(h, kernel[1], stride[1], before=padding[1], after=padding[1])
    cols, taps_w = _taps(w, kernel[2], stride[2], before=padding[2], after=padding[2])
    elements = b * c * (t + cached) * h * w + out * c * kernel[0] * kernel[1] * kernel[2] + out * bias
    elements += b * out * steps * rows * cols
    return Cost(flops=2 * b * c * out * taps_t * taps_h * taps_w, bytes=elements * getattr(torch, dtype).itemsize)


def _taps(size, kernel, stride, before=0, after=0, known=0):
    """Return how many outputs a dimension has, and how many taps of them all meet data instead of padding zeros."""
    outputs = (size + before + after - kernel) // stride + 1
    first = range(-before, -before + outputs * stride, stride)
    return outputs, sum(-known <= at + tap < size for at in first for tap in range(kernel))


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def uncropped(x, cache, weight, bias, stride, padding):
    """Concatenate a cache longer than the padding and forget to crop it: there are more frames."""
    return F.conv3d(torch.cat([cache, x], dim=2), weight, bias, stride, (0, *padding[1:]))


def cache_ignored(x, cache, weight, bias, stride, padding):
    return forms.pad_all(x, None, weight, bias, stride, padding)


def cache_behind(x, cache, weight, bias, stride, padding):
    """Append the cache to x instead of putting it before."""
    front = 2 * padding[0]
    x = F.pad(torch.cat([x, cache], dim=2), (*padding[2:] * 2, *padding[1:2] * 2, front - cache.shape[2], 0))
    return F.conv3d(x, weight, bias, stride)


def symmetric_time(x, cache, weight, bias, stride, padding):
    """Look as far ahead as back, as an ordinary convolution does."""
    return F.conv3d(x, weight, bias, stride, padding)


def time_reversed(x, cache, weight, bias, stride, padding):
    return forms.pad_all(x, cache, weight.flip(2), bias, stride, padding)


def frame_late(x, cache, weight, bias, stride, padding):
    late = torch.cat([torch.zeros_like(x[:, :, :1]), x[:, :, :-1]], dim=2)
    return forms.pad_all(late, cache, weight, bias, stride, padding)


def replicated_border(x, cache, weight, bias, stride, padding):
    """Repeat the border pixels where zeros belong."""
    frames = forms.filled(x, cache, 2 * padding[0], torch.contiguous_format)
    return F.conv3d(F.pad(frames, (*padding[2:] * 2, *padding[1:2] * 2, 0, 0), mode="replicate"), weight, bias, stride)


def bias_each_tap(x, cache, weight, bias, stride, padding):
    """Add the bias once for each temporal tap, as a sum of 2-D convolutions easily does."""
    return forms.pad_all(x, cache, weight, bias * weight.shape[2], stride, padding)


def half_precision(x, cache, weight, bias, stride, padding):
    half = (None if value is None else value.bfloat16() for value in (x, cache, weight, bias))
    return forms.pad_all(*half, stride, padding).to(x.dtype)


def _has_cache(cache, padding, **_):
    return cache is not None and padding[0] > 0


def _longer_cache(cache, padding, **_):
    return cache is not None and cache.shape[2] > 2 * padding[0] > 0


def _padded_time(cache, padding, **_):
    return cache is None and padding[0] > 0


def _several_taps(weight, **_):
    return weight.shape[2] > 1


# -- cases ------------------------------------------------------------------------------------------------------------

# Half precision where frames and borders are the point: a float32 case takes Triton's interpreter six times as long.
_TINY = {"c": 4, "h": 4, "w": 5, "out": 5, "dtype": "float16"}

EDGE = [
    dict(_TINY, t=2, dtype="float64"),
    dict(_TINY, t=1),
    dict(_TINY, t=1, cache=2),
    dict(_TINY, t=1, h=5, w=18),
    dict(_TINY, t=2, cache=1),  # the second chunk of a stream: padding is two frames, one is there
    dict(_TINY, t=2, cache=3),  # longer than the padding: its oldest frame must not count
    dict(_TINY, t=3, kernel=(1, 1, 1), padding=(0, 0, 0)),
    dict(_TINY, t=2, kernel=(1, 1, 1), padding=(0, 0, 0), cache=2),  # no padding: the cache must be ignored
    dict(_TINY, t=2, kernel=(3, 1, 1), padding=(1, 0, 0), cache=2),
    dict(_TINY, t=5, kernel=(3, 1, 1), padding=(0, 0, 0), stride=(2, 1, 1)),
    dict(_TINY, t=4, stride=(2, 1, 1), cache=2),
    dict(_TINY, t=2, stride=(1, 2, 2)),
    dict(_TINY, t=2, padding=(1, 0, 2)),
    dict(_TINY, t=4, kernel=(5, 3, 1), padding=(2, 1, 0), cache=1),
    dict(_TINY, t=2, b=2, cache=2),
    dict(_TINY, t=2, bias=False),
    dict(_TINY, t=2, layout="frames_first"),
    dict(_TINY, t=1, layout="channels_last_3d"),
    dict(_TINY, t=2, b=2, cache=2, layout="channels_last_3d"),
    dict(_TINY, t=2, cache=2, c=8, out=96, dtype="bfloat16", layout="channels_last_3d"),
    dict(_TINY, t=2, c=3, out=20),
    dict(_TINY, t=2, c=1, out=1),
    dict(_TINY, t=1, cache=3, dtype="float32", layout="channels_last_3d"),
]

SMOKE = [
    {"c": 4, "t": 2, "h": 4, "w": 8, "out": 8, "dtype": "float32"},
    {"c": 16, "t": 1, "h": 4, "w": 8, "out": 16, "cache": 2, "dtype": "bfloat16"},
    {"c": 40, "t": 2, "h": 5, "w": 8, "out": 24, "cache": 2, "dtype": "bfloat16", "layout": "channels_last_3d"},
]

# Steady state of the Wan 2.1 decoder at 480 x 832: what each stage convolves for one latent frame, two frames cached.
REAL = [
    {"c": 384, "t": 1, "h": 60, "w": 104, "out": 384, "cache": 2, "dtype": "bfloat16"},
    {"c": 384, "t": 2, "h": 120, "w": 208, "out": 384, "cache": 2, "dtype": "bfloat16"},
    {"c": 192, "t": 4, "h": 240, "w": 416, "out": 192, "cache": 2, "dtype": "bfloat16"},
    # Between the stages: twice the frames on the way up, half of them on the way down.
    {
        "c": 384,
        "t": 1,
        "h": 60,
        "w": 104,
        "out": 768,
        "kernel": (3, 1, 1),
        "padding": (1, 0, 0),
        "cache": 2,
        "dtype": "bfloat16",
    },
    {
        "c": 192,
        "t": 5,
        "h": 120,
        "w": 208,
        "out": 192,
        "kernel": (3, 1, 1),
        "padding": (0, 0, 0),
        "stride": (2, 1, 1),
        "dtype": "bfloat16",
    },
    # The first chunk of every video: one frame and no cache.
    {"c": 384, "t": 1, "h": 60, "w": 104, "out": 384, "dtype": "bfloat16"},
    {"c": 96, "t": 1, "h": 480, "w": 832, "out": 96, "dtype": "bfloat16"},
    # The last convolution, to RGB.
    {"c": 96, "t": 4, "h": 480, "w": 832, "out": 3, "cache": 2, "dtype": "bfloat16"},
    # Does it help as the resolution grows?
    *(
        {"c": 96, "t": 4, "h": h, "w": w, "out": 96, "cache": 2, "dtype": "bfloat16"}
        for h, w in ((240, 416), (720, 1280))
    ),
    {"b": 2, "c": 32, "t": 16, "h": 64, "w": 64, "out": 64, "dtype": "float32"},
]

HEADLINE = [
    {"b": 4, "c": 64, "t": 32, "h": 128, "w": 128, "out": 64, "dtype": "float32"},
    {"b": 4, "c": 64, "t": 32, "h": 128, "w": 128, "out": 64, "dtype": "bfloat16"},
    {"b": 4, "c": 64, "t": 32, "h": 128, "w": 128, "out": 64, "dtype": "bfloat16", "layout": "channels_last_3d"},
    {"c": 96, "t": 4, "h": 480, "w": 832, "out": 96, "cache": 2, "dtype": "bfloat16"},
    {"c": 96, "t": 4, "h": 480, "w": 832, "out": 96, "cache": 2, "dtype": "bfloat16", "layout": "channels_last_3d"},
]

causal_conv3d = Operator(
    "causal_conv3d",
    baseline=forms.pad_all,
    variants={
        "pad_time": forms.pad_time,
        "preallocated": forms.preallocated,
        "fused_pad": Variant(forms.fused_pad, needs="triton"),
        "full_pad": Variant(forms.full_pad, valid=forms.full_pad_valid),
        "channels_last": Variant(forms.channels_last, prepare=forms.channels_last_weight),
        "sum_of_2d": Variant(forms.sum_of_2d, prepare=forms.weight_taps, valid=forms.sum_of_2d_valid),
        "time_in_channels": Variant(forms.time_in_channels, prepare=forms.weight_taps_in_channels),
        "conv2d": Variant(forms.conv2d, valid=forms.conv2d_valid),
        "triton": Variant(implicit, prepare=implicit_weight, valid=implicit_valid, needs="triton"),
        "gluon": Variant(implicit_gluon, prepare=implicit_weight, valid=gluon_valid, needs="sm_90"),
    },
    impostors={
        "uncropped": Variant(uncropped, valid=_longer_cache),
        "cache_ignored": Variant(cache_ignored, valid=_has_cache),
        "cache_behind": Variant(cache_behind, valid=_has_cache),
        "symmetric_time": Variant(symmetric_time, valid=_padded_time),
        "time_reversed": Variant(time_reversed, valid=_several_taps),
        "frame_late": frame_late,
        "replicated_border": Variant(replicated_border, valid=lambda padding, **_: max(padding[1:]) > 0),
        "bias_each_tap": Variant(
            bias_each_tap, valid=lambda weight, bias, **_: bias is not None and weight.shape[2] > 1
        ),
        "half_precision": Variant(half_precision, valid=lambda x, **_: x.dtype == torch.float32),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    constants=["weight", "bias"],
    tolerance=REASSOCIATED,
    cost=cost,
    source="diffusers #12800",
    claims=[
        Claim(
            latency_ms=(44.787, 42.507),
            device="a GPU that is not named",
            source="diffusers #12800",
            cases=[HEADLINE[0]],
        ),
        Claim(
            speedup=1.0,
            mode="compile",
            implementation="pad_time",
            device="a GPU that is not named",
            source="diffusers #12800",
            cases=[HEADLINE[0]],
        ),
        Claim(
            speedup=(1.14, 1.31),
            device="NVIDIA H200",
            source="sglang #27263",
            cases=[HEADLINE[3]],
            shape="bfloat16 with cached frames, sizes not said",
        ),
        Claim(
            speedup=(1.49, 2.30),
            device="NVIDIA H200",
            source="sglang #27263",
            shape="assembling the input alone, without the convolution",
        ),
    ],
)
