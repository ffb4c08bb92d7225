"""Patch embedding of vision transformers: a convolution whose kernel never overlaps itself, against one product.

Where the kernel equals the stride, every patch is read once and multiplied with the whole weight: a linear layer that
was written as Conv3d. As such it is at the mercy of the 3D convolutions of the day; with some releases of PyTorch and
cuDNN (2.9 with 9.10) the same call took thousands of times longer, and with good ones it still launches three to
five kernels where one does: with torch 2.11 on an H200, 990 us against 26 us for 4096 patches of Qwen3-VL in bfloat16.

The contract: `pixels` hold patches, one a row, [patches, channels * kt * kh * kw], columns in that order, or
[patches, channels, time, height, width]; `weight` is that of Conv3d, [features, channels, kt, kh, kw]. The result is
[patches, features] in the weight's dtype, to which pixels are cast first. A row larger than the kernel gives one
patch for each position of the kernel, in the order time, height, width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant, grid

QWEN3_VL = (3, 2, 16, 16)


def inputs(
    make,
    patches,
    features,
    dtype,
    patch=QWEN3_VL,
    size=None,
    stride=None,
    padding=0,
    dilation=1,
    groups=1,
    bias=True,
    data="normal",
    layout="rows",
    pixel_dtype=None,
):
    channels, *kernel = patch
    shape = (patches, channels, *(size or kernel))
    pixels = _pixels(make, shape, pixel_dtype or dtype, data)
    if layout in ("rows", "channels_last_3d"):  # the latter is the weight's
        pixels = pixels.flatten(1)
    elif layout == "sliced":  # rows of a wider table
        pixels = torch.cat([pixels.flatten(1), pixels.flatten(1)[:, :3]], 1)[:, : pixels[0].numel()]
    weight = make.normal(features, channels // groups, *kernel, dtype=dtype, scale=math.prod(patch) ** -0.5)
    return {
        "pixels": pixels,
        "weight": weight.to(memory_format=torch.channels_last_3d) if layout == "channels_last_3d" else weight,
        "bias": make.normal(features, dtype=dtype) if bias else None,
        "stride": tuple(stride or kernel),
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


def _pixels(make, shape, dtype, data):
    if data == "uniform":
        return make.uniform(*shape, dtype=dtype)
    if data == "smooth":  # like an image: a level and two slopes a channel, and a little noise, within [0, 1]
        level = make.uniform(*shape[:2], 1, 1, 1, low=0.3, high=0.7, dtype=dtype)
        slopes = make.uniform(2, *shape[:2], 1, 1, 1, low=-0.1, high=0.1, dtype=dtype)
        down = torch.linspace(-1, 1, shape[3], device=make.device, dtype=level.dtype)[:, None]
        across = torch.linspace(-1, 1, shape[4], device=make.device, dtype=level.dtype)
        return level + slopes[0] * down + slopes[1] * across + make.normal(*shape, dtype=dtype, scale=0.01)
    return make.normal(*shape, dtype=dtype)


def cost(patches, features, dtype, patch=QWEN3_VL, size=None, stride=None, padding=0, dilation=1, groups=1, bias=True,
         pixel_dtype=None, **_):  # fmt: skip
    channels, *kernel = patch
    size, stride = size or kernel, stride or kernel
    positions = math.prod(
        (extent + 2 * padding - dilation * (taps - 1) - 1) // step + 1
        for extent, taps, step in zip(size, kernel, stride, strict=True)
    )
    outputs = patches * positions * features
    inner = math.prod(patch) // groups
    written = getattr(torch, dtype).itemsize * (outputs + features * (inner + bias))
    read = getattr(torch, pixel_dtype or dtype).itemsize * patches * channels * math.prod(size)
    return Cost(flops=2.0 * outputs * inner, bytes=float(written + read))


# Implementations


def conv3d(pixels, weight, bias, stride, padding, dilation, groups):
    """The published module: a view as volumes, Conv3d, a view as rows."""
    if pixels.dim() == 2:
        pixels = pixels.reshape(-1, weight.shape[1] * groups, *weight.shape[2:])
    volumes = F.conv3d(pixels.to(weight.dtype), weight, bias, stride, padding, dilation, groups)
    return volumes.flatten(2).transpose(1, 2).reshape(-1, weight.shape[0])


def linear(pixels, weight, bias, stride, padding, dilation, groups):
    """One matrix product with the convolution's own weight, seen as a matrix.

    `reshape` and not `view`: a weight in channels_last_3d has no such view and is copied in every call.

    Two more forms were tried for few patches and left out (4 patches in bfloat16, graph replay, H200, torch 2.11, where
    this one takes 5.2 us): a Triton kernel of 16 rows, 4.9 us, and no faster as a plain call; addmm with the matrix
    stored the other way round, 4.6 us, but with one float32 row on a CPU its error is over twice the convolution's in
    one draw of five.
    """
    return F.linear(_rows(pixels, weight).to(weight.dtype), weight.reshape(weight.shape[0], -1), bias)


def linear_prepared(pixels, weight, bias, stride, padding, dilation, groups, matrix):
    """The same with the matrix laid out once, after loading."""
    return F.linear(_rows(pixels, weight).to(weight.dtype), matrix, bias)


def lay_out(weight, bias):
    return {"matrix": weight.reshape(weight.shape[0], -1).contiguous()}


def _rows(pixels, weight):
    """Return one row a patch; a view where there is one patch a row already."""
    if pixels.dim() == 2:
        return pixels
    count, channels, *size = pixels.shape
    kt, kh, kw = weight.shape[2:]
    steps, lines, columns = size[0] // kt, size[1] // kh, size[2] // kw
    if (steps, lines, columns) != (1, 1, 1):
        pixels = pixels.reshape(count, channels, steps, kt, lines, kh, columns, kw).permute(0, 2, 4, 6, 1, 3, 5, 7)
    return pixels.reshape(count * steps * lines * columns, channels * kt * kh * kw)


# What is valid


def is_linear(pixels, weight, stride, padding, dilation, groups, **_):
    kernel = tuple(weight.shape[2:])
    if groups != 1:
        return f"{groups} groups; a matrix product mixes all channels"
    if padding:
        return f"padding {padding}; the border's patches hold zeros that are in no row"
    if dilation != 1:
        return f"dilation {dilation}; the kernel skips pixels"
    size = kernel if pixels.dim() == 2 else tuple(pixels.shape[2:])
    if size == kernel:
        return True  # a single position, whatever the stride
    if stride != kernel:
        return f"kernel {kernel} but stride {stride}; patches overlap or leave gaps"
    if any(extent % taps for extent, taps in zip(size, kernel, strict=True)):
        return f"volumes of {size} do not divide into patches of {kernel}"
    return True


# Independent oracle


def windows(pixels, weight, bias, stride, padding, dilation, groups):
    """Cut the windows out and contract them with the weight, so that no convolution takes part.

    That matters: 3D convolutions have been silently wrong. Dilated and grouped cases, which only the baseline
    computes, have the convolution itself.
    """
    if dilation != 1 or groups != 1:
        return conv3d(pixels, weight, bias, stride, padding, dilation, groups)
    if pixels.dim() == 2:
        pixels = pixels.reshape(-1, *weight.shape[1:])
    pixels = F.pad(pixels, (padding,) * 6)
    for axis in range(3):
        pixels = pixels.unfold(2 + axis, weight.shape[2 + axis], stride[axis])
    rows = pixels.permute(0, 2, 3, 4, 1, 5, 6, 7).reshape(-1, weight[0].numel())
    product = rows @ weight.reshape(weight.shape[0], -1).T
    return product if bias is None else product + bias


# Impostors


def time_first(pixels, weight, bias, **geometry):
    """Flattens the weight as (time, channels, height, width)."""
    return F.linear(_rows(pixels, weight).to(weight.dtype), weight.transpose(1, 2).reshape(weight.shape[0], -1), bias)


def channels_last(pixels, weight, bias, **geometry):
    """Takes the weight as it lies in memory in channels_last_3d."""
    matrix = weight.permute(0, 2, 3, 4, 1).reshape(weight.shape[0], -1)
    return F.linear(_rows(pixels, weight).to(weight.dtype), matrix, bias)


def untied(pixels, weight, bias, **geometry):
    """A linear layer that the checkpoint never reached: right in scale and shape, and random."""
    fresh = torch.arange(weight.numel(), device=weight.device, dtype=torch.float64).mul(1.7).sin().mul(2**0.5)
    matrix = (fresh.reshape(weight.shape[0], -1) * weight[0].numel() ** -0.5).to(weight.dtype)
    return F.linear(_rows(pixels, weight).to(weight.dtype), matrix, bias)


def without_bias(pixels, weight, bias, **geometry):
    return linear(pixels, weight, None, **geometry)


def ignores_stride(pixels, weight, bias, **geometry):
    """Cuts patches side by side, although the kernel leaves gaps."""
    size = [extent // taps * taps for extent, taps in zip(pixels.shape[2:], weight.shape[2:], strict=True)]
    return linear(pixels[:, :, : size[0], : size[1], : size[2]], weight, bias, **geometry)


def some_linear(pixels, weight, **geometry):
    return pixels.shape[0] > 0 and is_linear(pixels, weight, **geometry) is True


def some_linear_over_time(pixels, weight, **geometry):
    return some_linear(pixels, weight, **geometry) and min(weight.shape[1:3]) > 1


def some_linear_of_channels(pixels, weight, **geometry):
    return some_linear(pixels, weight, **geometry) and weight.shape[1] > 1


def some_linear_with_bias(pixels, weight, bias, **geometry):
    return bias is not None and some_linear(pixels, weight, **geometry)


def leaves_gaps(pixels, weight, stride, padding, dilation, groups, **_):
    plain = (padding, dilation, groups) == (0, 1, 1) and pixels.dim() == 5
    return plain and any(step > taps for step, taps in zip(stride, weight.shape[2:], strict=True))


# Cases

TINY = dict(patch=(3, 2, 4, 4), features=96)  # with fewer outputs, the largest error of so few is mostly luck

EDGE = [
    dict(**TINY, patches=0, dtype="float32"),
    dict(**TINY, patches=1, dtype="float32"),
    dict(**TINY, patches=3, dtype="float64"),
    dict(**TINY, patches=5, bias=False, dtype="float32"),
    dict(**TINY, patches=5, layout="channels_last_3d", dtype="float32"),
    dict(**TINY, patches=5, layout="sliced", dtype="float32"),
    dict(**TINY, patches=5, layout="volumes", dtype="float32"),
    dict(**TINY, patches=2, layout="volumes", size=(4, 8, 12), dtype="float32"),
    dict(**TINY, patches=2, layout="volumes", size=(2, 9, 8), dtype="float32"),  # does not divide
    dict(**TINY, patches=2, layout="volumes", size=(2, 8, 8), stride=(2, 2, 2), dtype="float32"),  # overlaps
    dict(**TINY, patches=2, layout="volumes", size=(2, 10, 10), stride=(2, 6, 6), dtype="float32"),  # leaves gaps
    dict(**TINY, patches=5, stride=(1, 2, 2), dtype="float32"),  # one position, so the stride is never taken
    dict(**TINY, patches=2, padding=1, dtype="float32"),
    dict(**TINY, patches=2, layout="volumes", size=(4, 8, 8), dilation=2, dtype="float32"),
    dict(**TINY, patches=2, groups=3, dtype="float32"),
    dict(**TINY, patches=5, pixel_dtype="float32", dtype="bfloat16"),
    dict(**TINY, patches=5, dtype="float16"),
    dict(**TINY, patches=17, data="uniform", dtype="bfloat16"),
    dict(**TINY, patches=17, data="smooth", dtype="float32"),
    dict(patch=(1, 1, 4, 4), features=7, patches=3, dtype="float32"),
]

SMOKE = [
    *grid(patches=[4, 36], patch=[(3, 2, 8, 8)], features=[64], dtype=["float32", "bfloat16"]),
    dict(patches=36, patch=(3, 2, 8, 8), features=64, data="smooth", dtype="bfloat16"),
]

QWEN25_VL = dict(patch=(3, 2, 14, 14), features=1280, bias=False)

REAL = [
    *grid(patches=[4, 576, 4096], features=[1152], data=["uniform"], dtype=["bfloat16"]),
    dict(patches=576, features=1152, pixel_dtype="float32", dtype="bfloat16"),
    dict(patches=576, features=1152, layout="channels_last_3d", dtype="bfloat16"),
    *(dict(**QWEN25_VL, patches=patches, dtype="bfloat16") for patches in (256, 4096, 16384)),
    dict(patches=9216, features=1024, dtype="bfloat16"),  # the forum's reproducer of slow 16-bit convolutions
    dict(patches=9216, features=1024, dtype="float16"),
    dict(patches=49920, features=1152, dtype="bfloat16"),
]

HEADLINE = [
    *grid(patches=[4, 196, 576, 4096, 24168], features=[1152], dtype=["float32", "bfloat16"]),
    dict(patches=24168, features=1152, data="smooth", dtype="bfloat16"),
]

patch_embed = Operator(
    "patch_embed",
    baseline=conv3d,
    variants={
        "linear": Variant(linear, valid=is_linear),
        "linear_prepared": Variant(linear_prepared, prepare=lay_out, valid=is_linear),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "time_first": Variant(time_first, valid=some_linear_over_time),
        "channels_last": Variant(channels_last, valid=some_linear_of_channels),
        "untied": Variant(untied, valid=some_linear),
        "without_bias": Variant(without_bias, valid=some_linear_with_bias),
        "ignores_stride": Variant(ignores_stride, valid=leaves_gaps),
    },
    oracle=windows,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="sglang-omni #132",
    claims=[
        Claim(
            speedup=speedup,
            device="NVIDIA H20",
            source="sglang-omni #132",
            cases=grid(patches=[patches], features=[1152], dtype=["float32", "bfloat16"]),
            shape=f"{milliseconds} ms; dtype not said",
            unmet=unmet,
        )
        for patches, speedup, milliseconds, unmet in (
            (
                4,
                11.3,
                "0.211 -> 0.019",
                "in float32 the baseline takes 81 us and not 211: it launches two kernels, in bfloat16 four",
            ),
            (196, 13.7, "0.254 -> 0.019", "in float32, TF32 off, the product takes 54 us, and the baseline only 98"),
            (
                576,
                18.2,
                "0.362 -> 0.020",
                "in float32, TF32 off, the product takes 91 us; 20 us would be 102 TFLOP/s, twice what a large one does",
            ),
        )
    ],
)
