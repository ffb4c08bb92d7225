"""3-D convolution in two layouts: contiguous, or with the channels of a pixel side by side (channels-last).

On a GPU the fast convolutions for half types read channels-last. Given contiguous tensors, a library transposes the input, the
weight and the result in every call, or takes another algorithm. What is laid out once need not be transposed again: the weight
after loading, the activations where a network begins (`layout_block.py`). Which form is the fastest differs by shape.

The contract: `x`, [b, c, t, h, w], comes contiguous or channels-last (`layout`), as the layer before it left it, with its
frames already put together in time; height and width are padded. Forms that convert hand the result on in the layout that `x`
came in, so that all leave the next layer the same. Where only the weight or only the input is channels-last ("mixed"), it is
the library's choice what happens. A tensor with a single channel, or a single pixel, is in both layouts at once.
"""

from __future__ import annotations

import math

import kernels_conv3d_torch as forms
import torch
import torch.nn.functional as F
from conv_contraction import contracted, products_met

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant, grid

LAST = torch.channels_last_3d


def inputs(make, c, t, h, w, out, dtype, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), bias=True, layout="contiguous"):
    return {
        "x": _video(make, (b, c, t, h, w), layout, dtype),
        "weight": make.normal(out, c, *kernel, dtype=dtype, scale=(c * math.prod(kernel)) ** -0.5),
        "bias": make.normal(out, dtype=dtype, scale=0.25) if bias else None,
        "stride": stride,
    }


def _video(make, shape, layout, dtype):
    video = make.normal(*shape, dtype=dtype)
    if layout == "degenerate":  # of one frame, whose stride in time says nothing
        return video.transpose(1, 2).contiguous().transpose(1, 2)
    return video.contiguous(memory_format=LAST) if layout == "channels_last_3d" else video


def cost(c, t, h, w, out, dtype, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), bias=True, **_):
    products, outputs = b * c * out, b * out
    for size, taps, step, side in zip((t, h, w), kernel, stride, (0, kernel[1] // 2, kernel[2] // 2), strict=True):
        met, placed = products_met(size, taps, step, side, side)
        products, outputs = products * met, outputs * placed
    elements = b * c * t * h * w + out * (c * math.prod(kernel) + bias) + outputs
    return Cost(flops=2.0 * products, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def as_they_come(x, weight, bias, stride):
    """Convolve a contiguous weight with whatever comes in; height and width are padded, time is not."""
    return F.conv3d(x, weight, bias, stride, _padding(weight))


def contiguous(x, weight, bias, stride):
    """Everything contiguous, whatever comes in."""
    return _handed_on(as_they_come(x.contiguous(), weight, bias, stride), x)


def mixed_weight(x, weight, bias, stride):
    """Only the weight in channels-last, laid out beforehand."""
    return _handed_on(as_they_come(x, weight, bias, stride), x)


def mixed_input(x, weight, bias, stride):
    """Only the input in channels-last."""
    return _handed_on(as_they_come(x.contiguous(memory_format=LAST), weight, bias, stride), x)


def channels_last(x, weight, bias, stride):
    """Both in channels-last, the weight beforehand."""
    return mixed_input(x, weight, bias, stride)


def weight_last(weight, bias):
    return {"weight": weight.contiguous(memory_format=LAST)}


def comes_channels_last(x, **_):
    return forms.layout_of(x) == LAST or "x is contiguous already; that is the baseline"


def comes_contiguous(x, **_):
    return forms.layout_of(x) != LAST or "x is channels-last already; that is the baseline"


def _padding(weight):
    return (0, weight.shape[3] // 2, weight.shape[4] // 2)


def _handed_on(y, x):
    return y.contiguous(memory_format=forms.layout_of(x))


def contracted_once(x, weight, bias, stride):
    return contracted(x, weight, bias, stride, _padding(weight)[1:], 0)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def _as_it_lies(tensor):
    """Read the memory of a channels-last tensor as if it were contiguous."""
    return tensor.permute(0, 2, 3, 4, 1).reshape(tensor.shape)


def weight_as_it_lies(x, weight, bias, stride):
    return as_they_come(x, _as_it_lies(weight), bias, stride)


def input_as_it_lies(x, weight, bias, stride):
    return as_they_come(_as_it_lies(x), weight, bias, stride)


def result_as_it_lies(x, weight, bias, stride):
    return _as_it_lies(as_they_come(x, weight, bias, stride))


def without_bias(x, weight, bias, stride):
    return as_they_come(x, weight, None, stride)


def padded_time(x, weight, bias, stride):
    """Pad time as well, on both ends, and cut the frames too many off behind."""
    frames = (x.shape[2] - weight.shape[2]) // stride[0] + 1
    padding = (weight.shape[2] // 2, *_padding(weight)[1:])
    return F.conv3d(x, weight, bias, stride, padding)[:, :, :frames]


def several_channels_in(x, weight, **_):
    return x.shape[1] > 1 and weight.shape[2:].numel() > 1


def several_pixels_in(x, **_):
    return x.shape[1] > 1 and x.shape[2:].numel() > 1


def several_pixels_out(x, weight, **_):
    return weight.shape[0] > 1 and x.shape[3:].numel() > 1


def has_bias(bias, **_):
    return bias is not None


def has_taps_in_time(weight, **_):
    return weight.shape[2] > 1


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(c=4, t=3, h=5, w=6, out=5, dtype="float32")

EDGE = [
    dict(TINY, dtype="float64"),
    dict(TINY),
    dict(TINY, layout="channels_last_3d"),
    dict(TINY, b=2, out=3, layout="channels_last_3d"),  # to RGB
    dict(TINY, b=2, out=1),
    dict(TINY, c=1),  # one channel: in both layouts at once
    dict(TINY, c=1, layout="channels_last_3d"),
    dict(TINY, t=1, kernel=(1, 3, 3)),
    dict(TINY, t=1, kernel=(1, 3, 3), layout="channels_last_3d"),
    dict(TINY, t=1, kernel=(1, 3, 3), layout="degenerate"),
    dict(TINY, t=3, h=1, w=1, layout="channels_last_3d"),
    dict(TINY, kernel=(1, 1, 1), layout="channels_last_3d"),
    dict(TINY, t=5, kernel=(3, 1, 1), stride=(2, 1, 1)),
    dict(TINY, stride=(1, 2, 2), layout="channels_last_3d"),
    dict(TINY, bias=False),
    dict(TINY, b=2, dtype="float16"),
    dict(TINY, b=2, layout="channels_last_3d", dtype="bfloat16"),
]

# What the stages of the Wan 2.1 decoder convolve for one latent at 480 x 832, with two earlier frames before it.
STAGES = {
    "mid": dict(c=384, t=3, h=60, w=104, out=384),
    "up1": dict(c=384, t=4, h=120, w=208, out=384),
    "up2": dict(c=192, t=6, h=240, w=416, out=192),
    "up3": dict(c=96, t=6, h=480, w=832, out=96),
}
LAYOUTS = ("contiguous", "channels_last_3d")

REAL = [
    *(dict(stage, layout=layout, dtype="bfloat16") for stage in STAGES.values() for layout in LAYOUTS),
    dict(STAGES["up2"], dtype="float32"),
    dict(STAGES["up2"], dtype="float16"),
    *(dict(c=96, t=6, h=480, w=832, out=3, layout=layout, dtype="bfloat16") for layout in LAYOUTS),
    dict(c=384, t=1, h=60, w=104, out=384, kernel=(1, 3, 3), dtype="bfloat16"),
]

conv3d_layout = Operator(
    "conv3d_layout",
    baseline=as_they_come,
    variants={
        "contiguous": Variant(contiguous, valid=comes_channels_last),
        "mixed_weight": Variant(mixed_weight, prepare=weight_last),
        "mixed_input": Variant(mixed_input, valid=comes_contiguous),
        "channels_last": Variant(channels_last, prepare=weight_last),
    },
    inputs=inputs,
    cases={
        "edge": EDGE,
        "smoke": [
            *grid(c=[16], t=[3], h=[8], w=[8], out=[16], dtype=["float32", "bfloat16"]),
            dict(c=16, t=3, h=8, w=8, out=16, layout="channels_last_3d", dtype="float32"),
        ],
        "real": REAL,
        "headline": [dict(c=96, t=6, h=720, w=1280, out=96, layout=layout, dtype="bfloat16") for layout in LAYOUTS],
    },
    impostors={
        "weight_as_it_lies": Variant(weight_as_it_lies, valid=several_channels_in),
        "input_as_it_lies": Variant(input_as_it_lies, valid=several_pixels_in),
        "result_as_it_lies": Variant(result_as_it_lies, valid=several_pixels_out),
        "without_bias": Variant(without_bias, valid=has_bias),
        "padded_time": Variant(padded_time, valid=has_taps_in_time),
    },
    oracle=contracted_once,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="sglang #26214",
    claims=[
        Claim(
            speedup=(2.7, 3.7),
            device="a Hopper GPU",
            source="sglang #27431",
            cases=[dict(c=96, t=6, h=720, w=1280, out=96, layout="contiguous", dtype="bfloat16")],
            shape="convolutions of LTX",
            unmet="7.4 of the baseline's 8.7 ms are what the convolution takes with all of it in channels-last, too: 1.18x is all that is left",
        ),
    ],
)
