"""Patch embedding of video transformers: a latent video cut into patches that do not overlap, one product for all.

Here the layer is written as Conv3d over a whole video, with a kernel and stride of (1, 2, 2) in the Wan models, and the
transformer then wants tokens: the result is flattened and transposed. Cut into patches first, it is a copy and one matrix
product, which writes tokens as they are; a kernel that gathers the patches needs no copy either.

The contract: `x` is [batch, channels, time, height, width] or a single video without the batch; `weight` and `bias` are
those of Conv3d. The result is [batch, tokens, features] or [tokens, features], contiguous in that order, which every
implementation has to deliver: else the one that leaves a transposed view would leave the work to whoever comes next. Tokens
are in the order time, height, width. What does not fill a kernel at the far ends is left out, as a convolution does.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from kernels_patch_embed import gathered_product

from pairbench import REASSOCIATED, Cost, Operator, Variant, grid


def inputs(
    make, channels, size, features, dtype, batch=1, kernel=(1, 2, 2), stride=None, padding=0, dilation=1, bias=True,
    layout="contiguous",
):  # fmt: skip
    weight = make.normal(features, channels, *kernel, dtype=dtype, scale=(channels * math.prod(kernel)) ** -0.5)
    if layout == "weight_channels_last":
        weight = weight.to(memory_format=torch.channels_last_3d)
    return {
        "x": _video(make, batch, channels, size, dtype, layout),
        "weight": weight,
        "bias": make.normal(features, dtype=dtype) if bias else None,
        "stride": stride or kernel,
        "padding": padding,
        "dilation": dilation,
    }


def _video(make, batch, channels, size, dtype, layout):
    if layout == "single":
        return make.normal(channels, *size, dtype=dtype)
    if layout == "frames_first":
        return make.normal(batch, size[0], channels, *size[1:], dtype=dtype).transpose(1, 2)
    if layout == "channels_last_3d":
        return make.normal(batch, *size, channels, dtype=dtype).movedim(-1, 1)
    if layout == "sliced":  # the latents beside a mask in a wider tensor
        return make.normal(batch, channels + 4, *size, dtype=dtype)[:, 4:]
    return make.normal(batch, channels, *size, dtype=dtype)


def cost(
    channels, size, features, dtype, batch=1, kernel=(1, 2, 2), stride=None, padding=0, dilation=1, bias=True, **_
):  # fmt: skip
    stride = stride or kernel
    spans = [dilation * (taps - 1) + 1 for taps in kernel]
    counts = [(n + 2 * padding - span) // step + 1 for n, span, step in zip(size, spans, stride, strict=True)]
    inner, tokens = channels * math.prod(kernel), batch * math.prod(counts)
    reached = [
        min(n, (count - 1) * step + span) for n, count, step, span in zip(size, counts, stride, spans, strict=True)
    ]
    elements = batch * channels * math.prod(reached) + features * (inner + bias) + tokens * features
    return Cost(flops=2.0 * tokens * features * inner, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def conv3d(x, weight, bias, stride, padding, dilation):
    """The published module: Conv3d, then flattened, transposed, and laid out as tokens."""
    return _tokens(F.conv3d(x, weight, bias, stride, padding, dilation))


def channels_last(x, weight, bias, stride, padding, dilation):
    """Conv3d in channels-last layout, with the weight laid out so beforehand: its result lies as tokens do."""
    videos = x if x.dim() == 5 else x[None]
    y = _tokens(
        F.conv3d(videos.contiguous(memory_format=torch.channels_last_3d), weight, bias, stride, padding, dilation)
    )
    return y if x.dim() == 5 else y[0]


def channels_last_weight(weight, bias):
    return {"weight": weight.contiguous(memory_format=torch.channels_last_3d)}


def conv2d(x, weight, bias, stride, padding, dilation):
    """Convolve every frame in two dimensions, in channels-last layout."""
    frames = x.transpose(1, 2).flatten(0, 1).contiguous(memory_format=torch.channels_last)
    y = F.conv2d(frames, weight[:, :, 0], bias, stride[1:])
    tokens = x.shape[2] * y.shape[2] * y.shape[3]
    return y.permute(0, 2, 3, 1).contiguous().view(x.shape[0], tokens, weight.shape[0])


def linear(x, weight, bias, stride, padding, dilation):
    """Copy the patches out, and multiply them with the convolution's own weight, seen as a matrix."""
    return F.linear(_patches(x, weight), weight.reshape(weight.shape[0], -1), bias)


def gathered(x, weight, bias, stride, padding, dilation):
    """One kernel that gathers and multiplies."""
    return gathered_product(x, weight.reshape(weight.shape[0], -1), bias, weight.shape[2:])


def dispatched(x, weight, bias, stride, padding, dilation):
    """The product where it is valid, else the convolution."""
    if is_linear(x, weight, stride, padding, dilation) is True:
        return linear(x, weight, bias, stride, padding, dilation)
    return conv3d(x, weight, bias, stride, padding, dilation)


def _tokens(y):
    return y.flatten(-3).transpose(-1, -2).contiguous()


def _patches(x, weight):
    """Return [batch, tokens, channels * kt * kh * kw]."""
    batch, channels, *size = x.shape
    kt, kh, kw = weight.shape[2:]
    steps, lines, columns = size[0] // kt, size[1] // kh, size[2] // kw
    x = x[:, :, : steps * kt, : lines * kh, : columns * kw]  # a convolution leaves the rest out
    x = x.reshape(batch, channels, steps, kt, lines, kh, columns, kw).permute(0, 2, 4, 6, 1, 3, 5, 7)
    return x.reshape(batch, steps * lines * columns, channels * kt * kh * kw)


# -- what is valid ----------------------------------------------------------------------------------------------------


def is_linear(x, weight, stride, padding, dilation, **_):
    kernel = tuple(weight.shape[2:])
    if x.dim() != 5:
        return f"{x.dim()} dimensions; patches are cut out of a batch of videos"
    if padding:
        return f"padding {padding}; the border's patches hold zeros that are nowhere in the video"
    if dilation != 1:
        return f"dilation {dilation}; the kernel skips pixels"
    if tuple(stride) != kernel:
        return f"kernel {kernel} but stride {tuple(stride)}; patches overlap or leave gaps"
    return True


def is_linear_in_triton(x, **rest):
    if x.dtype == torch.float64:
        return "float64; the kernel accumulates in float32"
    return is_linear(x, **rest)


def is_linear_a_frame(x, weight, **rest):
    if weight.shape[2] != 1:
        return f"{weight.shape[2]} frames a patch; a convolution in two dimensions sees one"
    return is_linear(x, weight, **rest)


# -- the independent oracle -------------------------------------------------------------------------------------------


def windows(x, weight, bias, stride, padding, dilation):
    """Cut the windows out and contract them with the weight, so that no convolution takes part.

    Dilated cases, which only the convolution itself computes, have it.
    """
    if dilation != 1:
        return conv3d(x, weight, bias, stride, padding, dilation)
    videos = F.pad(x if x.dim() == 5 else x[None], (padding,) * 6)
    for axis in range(3):
        videos = videos.unfold(2 + axis, weight.shape[2 + axis], stride[axis])
    y = torch.einsum("bcthwijk,fcijk->bthwf", videos, weight).flatten(1, 3)
    y = y if bias is None else y + bias
    return y if x.dim() == 5 else y[0]


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def channels_behind(x, weight, bias, **geometry):
    """Flatten the weight as (time, height, width, channels)."""
    return F.linear(_patches(x, weight), weight.permute(0, 2, 3, 4, 1).flatten(1), bias)


def time_behind(x, weight, bias, **geometry):
    """Let tokens run over time fastest."""
    steps = x.shape[2] // weight.shape[2]
    return linear(x, weight, bias, **geometry).unflatten(1, (steps, -1)).transpose(1, 2).flatten(1, 2)


def swapped_in_patch(x, weight, bias, **geometry):
    """Take rows of a patch for its columns."""
    return linear(x, weight.transpose(-1, -2), bias, **geometry)


def cropped_in_front(x, weight, bias, **geometry):
    """Leave out the first row and column where the convolution leaves out the last."""
    first = [extent % taps for extent, taps in zip(x.shape[2:], weight.shape[2:], strict=True)]
    return linear(x[:, :, first[0] :, first[1] :, first[2] :], weight, bias, **geometry)


def not_transposed(x, weight, bias, **geometry):
    """Take [features, tokens] for [tokens, features] without transposing."""
    y = conv3d(x, weight, bias, **geometry)
    return y.transpose(1, 2).reshape(y.shape)


def ignores_stride(x, weight, bias, **geometry):
    """Cut patches side by side, although the kernel leaves gaps or overlaps itself."""
    return linear(x, weight, bias, **geometry)


def without_bias(x, weight, bias, **geometry):
    return conv3d(x, weight, None, **geometry)


def some_linear(x, weight, stride, padding, dilation, **_):
    return x.shape[0] > 0 and is_linear(x, weight, stride, padding, dilation) is True


def some_channels(weight, **rest):
    return weight.shape[1] > 1 and some_linear(weight=weight, **rest)


def some_steps(x, weight, **rest):
    return x.dim() == 5 and x.shape[2] > weight.shape[2] and some_linear(x, weight, **rest)


def some_features(weight, **rest):
    return weight.shape[0] > 1 and some_steps(weight=weight, **rest)


def some_square(weight, **rest):
    return weight.shape[-1] == weight.shape[-2] > 1 and some_linear(weight=weight, **rest)


def does_not_divide(x, weight, **rest):
    uneven = any(extent % taps for extent, taps in zip(x.shape[-3:], weight.shape[2:], strict=True))
    return uneven and some_linear(x, weight, **rest)


def strides_otherwise(x, weight, stride, padding, **_):
    return x.dim() == 5 and padding == 0 and tuple(stride) != tuple(weight.shape[2:])


def some_bias(x, bias, **_):
    return bias is not None and x.shape[0] > 0


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(channels=4, size=(3, 6, 10), features=24, dtype="float32")

EDGE = [
    dict(TINY, dtype="float64"),
    dict(TINY, batch=2),
    dict(TINY, batch=0),
    dict(TINY, size=(1, 2, 2)),  # one token
    dict(TINY, bias=False),
    dict(TINY, size=(3, 7, 10)),
    dict(TINY, size=(3, 6, 11)),
    dict(TINY, batch=2, size=(5, 7, 9), kernel=(2, 2, 2)),
    dict(TINY, size=(2, 6, 10), kernel=(1, 2, 5)),
    dict(TINY, layout="single"),
    dict(TINY, layout="sliced"),
    dict(TINY, batch=2, layout="frames_first"),
    dict(TINY, batch=2, layout="channels_last_3d", dtype="bfloat16"),
    dict(TINY, layout="weight_channels_last"),
    dict(TINY, size=(2, 8, 8), stride=(1, 1, 1)),  # overlaps
    dict(TINY, size=(2, 8, 8), stride=(1, 3, 3)),  # leaves gaps
    dict(TINY, padding=1),
    dict(TINY, size=(3, 8, 8), dilation=2),
    dict(TINY, channels=1, features=1),
    dict(TINY, channels=36, features=40, dtype="float16"),  # neither is a multiple of a tile
    dict(TINY, features=136, dtype="bfloat16"),
    dict(TINY, size=(1, 26, 26), dtype="float16"),  # more tokens than a tile has
]

SMOKE = [
    *grid(channels=[16], size=[(3, 8, 10)], features=[32], dtype=["float32", "bfloat16"]),
    dict(channels=36, size=(3, 8, 10), features=64, dtype="float32"),
]

# Latents of 480 x 832 and 720 x 1280 pixels, 81 frames, in the Wan models.
WAN_480 = dict(channels=16, size=(21, 60, 104))
WAN_720 = dict(channels=16, size=(21, 90, 160))

REAL = [
    *(dict(channels=16, size=(3, 60, 104), features=1536, dtype=dtype) for dtype in ("float32", "bfloat16")),
    dict(channels=16, size=(3, 44, 80), features=1536, dtype="bfloat16"),
    dict(WAN_480, features=1536, dtype="float32"),
    dict(WAN_480, features=1536, dtype="bfloat16"),
    dict(WAN_480, features=1536, layout="channels_last_3d", dtype="bfloat16"),
    dict(WAN_480, features=1536, batch=2, dtype="bfloat16"),
    dict(WAN_480, features=5120, dtype="bfloat16"),
    dict(channels=36, size=(21, 60, 104), features=5120, dtype="bfloat16"),  # image to video
    dict(channels=48, size=(31, 44, 80), features=3072, dtype="bfloat16"),  # the 5B model
]

HEADLINE = [
    dict(WAN_720, features=5120, dtype="bfloat16"),
    dict(WAN_720, features=5120, dtype="float32"),
    dict(channels=36, size=(21, 90, 160), features=5120, dtype="bfloat16"),
]

patch_embed_video = Operator(
    "patch_embed_video",
    baseline=conv3d,
    variants={
        "channels_last": Variant(channels_last, prepare=channels_last_weight),
        "conv2d": Variant(conv2d, valid=is_linear_a_frame),
        "linear": Variant(linear, valid=is_linear),
        "dispatched": dispatched,
        "triton": Variant(gathered, valid=is_linear_in_triton, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "channels_behind": Variant(channels_behind, valid=some_channels),
        "time_behind": Variant(time_behind, valid=some_steps),
        "swapped_in_patch": Variant(swapped_in_patch, valid=some_square),
        "cropped_in_front": Variant(cropped_in_front, valid=does_not_divide),
        "not_transposed": Variant(not_transposed, valid=some_features),
        "ignores_stride": Variant(ignores_stride, valid=strides_otherwise),
        "without_bias": Variant(without_bias, valid=some_bias),
    },
    oracle=windows,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="sglang #19788; WanTransformer3DModel.patch_embedding",
)
