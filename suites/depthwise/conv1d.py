"""Depthwise convolution over a sequence: one small convolution a channel, and three ways to launch fewer of them.

Splitting a grouped convolution into its groups is right and simple, and launches one to three kernels for each: with
one group a channel that is thousands of launches for microseconds of arithmetic (2064 and 25 ms for [1, 2048, 21] with
three taps; H200, torch 2.11). Layers like it sit in front of the token mixers of Mamba, gated delta nets and LFM2
(three or four taps, causal) and inside conformers (31 taps).

The contract, `x` of [batch, channels, length] and `weight` of [channels_out, channels/groups, taps]:

    out[b, c, t] = bias[c] + sum_k weight[c, 0, k] * x[b, c // multiplier, t * stride + k * dilation - left]

with zeros outside `x`. `padding` is (left, right), so that a causal layer is (taps - 1, 0). The number of groups
follows from the shapes. Every implementation but the Triton one is built of differentiable operations; gradients are
not judged here, for a case compares outputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels_depthwise import HALF, fused_kernel, output_length
from kernels_grouped import is_depthwise, one_channel_a_group

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant, grid


def inputs(
    make,
    batch,
    channels,
    length,
    taps,
    dtype,
    padding=(0, 0),
    stride=1,
    dilation=1,
    multiplier=1,
    group_size=1,
    bias=False,
    layout="contiguous",
    data="normal",
):
    filters = (channels // group_size * multiplier, group_size, taps)
    if layout == "strided_weight":
        weight = make.normal(*filters, 2, dtype=dtype)[..., 0]
    elif data == "positive":
        weight = make.uniform(*filters, dtype=dtype)
    else:
        weight = make.normal(*filters, dtype=dtype)
    return {
        "x": _signal(make, batch, channels, length, dtype, layout, data),
        "weight": weight,
        "bias": make.normal(filters[0], dtype=dtype) if bias else None,
        "padding": tuple(padding),
        "stride": stride,
        "dilation": dilation,
    }


def _signal(make, batch, channels, length, dtype, layout, data):
    draw = make.uniform if data == "positive" else make.normal
    if layout == "channels_last":  # what a projection leaves: [batch, length, channels], seen transposed
        return draw(batch, length, channels, dtype=dtype).transpose(1, 2)
    if layout == "sliced":  # one of several streams packed into a wider projection
        return draw(batch, channels + 3, 2 * length, dtype=dtype)[:, 1 : channels + 1, ::2]
    return draw(batch, channels, length, dtype=dtype)


def cost(batch, channels, length, taps, dtype, padding=(0, 0), stride=1, dilation=1, multiplier=1, group_size=1, bias=False,
         **_):  # fmt: skip
    channels_out = channels // group_size * multiplier
    length_out = output_length(length, taps, padding, stride, dilation)
    first = range(-padding[0], -padding[0] + length_out * stride, stride)
    products = sum(0 <= at + tap * dilation < length for at in first for tap in range(taps))  # zeros cost nothing
    elements = batch * channels * length + channels_out * (group_size * taps + bias) + batch * channels_out * length_out
    return Cost(
        flops=2.0 * batch * channels_out * group_size * products, bytes=float(elements * getattr(torch, dtype).itemsize)
    )


# Implementations


def per_group_loop(x, weight, bias, padding, stride, dilation):
    """One convolution for each group, and a concatenation."""
    groups = x.shape[1] // weight.shape[1]
    x = F.pad(x, padding) if any(padding) else x
    biases = [None] * groups if bias is None else bias.chunk(groups)
    convolved = [
        F.conv1d(signal, filters, offset, stride, 0, dilation)
        for signal, filters, offset in zip(x.chunk(groups, 1), weight.chunk(groups), biases, strict=True)
    ]
    return torch.cat(convolved, 1)


def shifted_sum(x, weight, bias, padding, stride, dilation):
    """Add up the taps, each a slice of the whole signal times one number a channel.

    taps multiplications and taps - 1 additions, however many channels there are. Half types are accumulated in
    float32 (by promotion inside the multiplication, so without a cast of `x`): rounding every product and sum to
    bfloat16 loses bits with each tap. It costs a cast of the weight and one of the result.
    """
    taps, length_out = weight.shape[2], output_length(x.shape[2], weight.shape[2], padding, stride, dilation)
    factors = weight[:, 0].to(_accumulator(x.dtype))
    x = F.pad(x, padding) if any(padding) else x
    total = None
    for tap in range(taps):
        start = tap * dilation
        term = x[:, :, start : start + (length_out - 1) * stride + 1 : stride] * factors[:, tap, None]
        total = term if total is None else total + term
    if bias is not None:
        total = total + bias[:, None]
    return total.to(x.dtype)


def _accumulator(dtype):
    return torch.float32 if dtype in HALF else dtype


def native_groups(x, weight, bias, padding, stride, dilation):
    """PyTorch's own grouped convolution.

    It knows symmetric padding only. Unequal sides are not padded with a copy: the larger one is given to both, and
    the outputs too many are cut off as a view, which is how the models' own causal layers do it.
    """
    left, right = padding
    groups = x.shape[1] // weight.shape[1]
    excess = max(right - left, 0)
    if excess % stride:  # the cut would fall between two outputs
        return F.conv1d(F.pad(x, padding), weight, bias, stride, 0, dilation, groups)
    out = F.conv1d(x, weight, bias, stride, max(padding), dilation, groups)
    length_out = output_length(x.shape[2], weight.shape[2], padding, stride, dilation)
    return out if left == right else out.narrow(2, excess // stride, length_out)


def gated(x, weight, bias, padding, stride, dilation):
    """The dispatch of the pull request: the shifted sum where it is valid and expected to pay, else the loop.

    Its author found the ungated sum up to 1.9 times slower on 26 of 113 shapes and then asked for a GPU, for fewer
    launches than the loop has, and for little work a channel.
    """
    taps = weight.shape[2]
    work = x.shape[0] * output_length(x.shape[2], taps, padding, stride, dilation) * taps
    plain = stride == dilation == 1 and is_depthwise(x, weight) is True
    if plain and x.is_cuda and 2 * x.shape[1] >= 2 * taps - 1 and work <= 2**20:
        return shifted_sum(x, weight, bias, padding, stride, dilation)
    return per_group_loop(x, weight, bias, padding, stride, dilation)


# Independent oracle


def block_diagonal(x, weight, bias, padding, stride, dilation):
    """Convolve with the dense weight that has the filters on its diagonal and zeros elsewhere.

    Nothing of the grouped code takes part in it. The dense weight grows with the square of the channels, so from
    2**20 numbers on (590 channels of three taps) PyTorch's grouped convolution stands in, in float64 as well.
    """
    channels_out, group_size, taps = weight.shape
    channels = x.shape[1]
    groups = channels // group_size
    x = F.pad(x, padding)
    if channels_out * channels * taps > 2**20:
        return F.conv1d(x, weight, bias, stride, 0, dilation, groups)
    dense = weight.new_zeros(channels_out, channels, taps)
    for filter_ in range(channels_out):
        first = filter_ // (channels_out // groups) * group_size
        dense[filter_, first : first + group_size] = weight[filter_]
    return F.conv1d(x, dense, bias, stride, 0, dilation)


# Impostors


def tiled_multiplier(x, weight, bias, padding, stride, dilation):
    """Repeats the channels as a whole; the filters of one channel lie side by side."""
    return shifted_sum(x.repeat(1, weight.shape[0] // x.shape[1], 1), weight, bias, padding, stride, dilation)


def flipped_taps(x, weight, bias, padding, stride, dilation):
    """Convolves as in signal processing; neural networks correlate."""
    return per_group_loop(x, weight.flip(-1), bias, padding, stride, dilation)


def centred_padding(x, weight, bias, padding, stride, dilation):
    """Pads both sides of a causal layer alike: it sees the future."""
    right = sum(padding) // 2
    return per_group_loop(x, weight, bias, (sum(padding) - right, right), stride, dilation)


def next_channel(x, weight, bias, padding, stride, dilation):
    """Gives each channel its neighbour's filter."""
    return per_group_loop(x, weight.roll(1, 0), bias, padding, stride, dilation)


def without_bias(x, weight, bias, padding, stride, dilation):
    """Drops the bias, which the shifted sum has to add itself."""
    return per_group_loop(x, weight, None, padding, stride, dilation)


def dropped_tap(x, weight, bias, padding, stride, dilation):
    """Stops one tap early."""
    return per_group_loop(x, torch.cat([weight[..., :-1], weight[..., :1] * 0], -1), bias, padding, stride, dilation)


def half_accumulation(x, weight, bias, padding, stride, dilation):
    """Rounds every product and every sum to the half type."""
    length_out = output_length(x.shape[2], weight.shape[2], padding, stride, dilation)
    x = F.pad(x, padding)
    total = torch.zeros_like(x[:, :, :length_out])
    for tap in range(weight.shape[2]):
        start = tap * dilation
        total = total + x[:, :, start : start + (length_out - 1) * stride + 1 : stride] * weight[:, 0, tap, None]
    return total if bias is None else total + bias[:, None]


def has_multiplier(x, weight, **_):
    return weight.shape[1] == 1 and weight.shape[0] > x.shape[1] > 1


def has_taps(weight, **_):
    return weight.shape[2] > 1


def has_few_taps(weight, **_):
    """Of 128 taps of like sign, one alone can be smaller than what rounding to bfloat16 may cost."""
    return 1 < weight.shape[2] < 64


def is_one_sided(padding, **_):
    return abs(padding[0] - padding[1]) > 1


def has_channels(weight, **_):
    return weight.shape[0] > 1


def has_bias(bias, **_):
    return bias is not None


def rounds_often(x, weight, **_):
    """With few taps the roundings stay below what a single one at the end may cost; nothing could tell them apart."""
    return x.dtype in HALF and weight.shape[2] >= 128 and is_depthwise(x, weight) is True


# Cases

EDGE = [
    dict(batch=1, channels=4, length=300, taps=129, dtype="bfloat16"),  # so many that rounding each product shows
    dict(batch=2, channels=3, length=7, taps=3, dtype="float64"),
    dict(batch=2, channels=5, length=9, taps=1, dtype="float32"),
    dict(batch=1, channels=4, length=3, taps=5, padding=(4, 0), dtype="float32"),
    dict(batch=1, channels=4, length=6, taps=3, padding=(3, 4), dtype="float32"),
    dict(batch=1, channels=4, length=1, taps=4, padding=(3, 0), dtype="float32"),
    dict(batch=2, channels=1, length=8, taps=3, dtype="float32"),
    dict(batch=1, channels=6, length=8, taps=3, group_size=6, multiplier=6, dtype="float32"),  # dense: one group
    dict(batch=1, channels=6, length=8, taps=3, group_size=2, multiplier=4, dtype="float32"),
    dict(batch=2, channels=4, length=8, taps=3, multiplier=2, bias=True, dtype="float32"),
    dict(batch=2, channels=4, length=11, taps=3, padding=(1, 1), stride=2, dtype="float32"),
    dict(batch=1, channels=4, length=10, taps=3, padding=(0, 1), stride=2, dtype="float32"),
    dict(batch=2, channels=4, length=11, taps=3, padding=(4, 0), dilation=2, dtype="float32"),
    dict(batch=1, channels=4, length=12, taps=4, padding=(3, 0), stride=2, dilation=2, bias=True, dtype="float32"),
    dict(batch=2, channels=6, length=12, taps=4, padding=(0, 3), dtype="float32"),
    dict(batch=2, channels=6, length=12, taps=4, padding=(3, 0), layout="channels_last", bias=True, dtype="float32"),
    dict(batch=2, channels=4, length=12, taps=4, padding=(3, 0), layout="sliced", dtype="float32"),
    dict(batch=2, channels=4, length=12, taps=4, padding=(3, 0), layout="strided_weight", dtype="float32"),
    dict(batch=1, channels=2, length=1030, taps=4, padding=(3, 0), bias=True, dtype="float16"),
    dict(batch=2, channels=2, length=1024, taps=3, padding=(1, 1), dtype="bfloat16"),
]

SMOKE = [
    *grid(batch=[2], channels=[16], length=[21], taps=[3], dtype=["float32", "bfloat16"]),
    dict(batch=1, channels=32, length=64, taps=4, padding=(3, 0), bias=True, dtype="float32"),
]

# Channels and taps as the models have them. A decoder keeps the last taps - 1 steps as its state, so that one new
# token is a signal of `taps` steps without padding.
LFM2 = dict(channels=2048, taps=3)  # LFM2-1.2B, hidden size 2048
MAMBA = dict(channels=5120, taps=4, bias=True)  # Mamba-2.8B, inner width 5120
GATED_DELTA_NET = dict(channels=8192, taps=4, layout="channels_last")  # Qwen3-Next: queries, keys, values packed
CONFORMER = dict(channels=1024, taps=31, padding=(15, 15), layout="channels_last")

REAL = [
    dict(**LFM2, batch=1, length=3, dtype="bfloat16"),
    dict(**LFM2, batch=64, length=3, dtype="bfloat16"),
    dict(**LFM2, batch=1, length=512, padding=(2, 0), dtype="bfloat16"),
    dict(**LFM2, batch=1, length=4096, padding=(2, 0), dtype="bfloat16"),
    dict(**MAMBA, batch=1, length=4, dtype="bfloat16"),
    dict(**MAMBA, batch=1, length=2048, padding=(3, 0), dtype="bfloat16"),
    dict(**GATED_DELTA_NET, batch=64, length=4, dtype="bfloat16"),
    dict(**GATED_DELTA_NET, batch=1, length=4096, padding=(3, 0), dtype="bfloat16"),
    dict(**CONFORMER, batch=1, length=500, dtype="float32"),
]

PUBLISHED = grid(batch=[1], channels=[2048], length=[21], taps=[3], dtype=["float32", "bfloat16"])

HEADLINE = [
    *PUBLISHED,
    dict(batch=8, channels=6144, length=16384, taps=4, padding=(3, 0), dtype="bfloat16"),
]

depthwise_conv1d = Operator(
    "depthwise_conv1d",
    baseline=per_group_loop,
    variants={
        "shifted_sum": Variant(shifted_sum, valid=is_depthwise),
        "native_groups": native_groups,
        "gated": gated,
        "triton": Variant(fused_kernel, valid=one_channel_a_group, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "tiled_multiplier": Variant(tiled_multiplier, valid=has_multiplier),
        "flipped_taps": Variant(flipped_taps, valid=has_taps),
        "centred_padding": Variant(centred_padding, valid=is_one_sided),
        "next_channel": Variant(next_channel, valid=has_channels),
        "without_bias": Variant(without_bias, valid=has_bias),
        "dropped_tap": Variant(dropped_tap, valid=has_few_taps),
        "half_accumulation": Variant(half_accumulation, valid=rounds_often),
    },
    oracle=block_diagonal,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="candle #3531",
    claims=[
        Claim(
            latency_ms=(31.971, 0.023),
            device="NVIDIA RTX PRO 6000",
            source="candle #3531",
            cases=PUBLISHED,
            shape="dtype not said",
        ),
        Claim(launches=(4096, 5), device="NVIDIA RTX PRO 6000", source="candle #3531", cases=PUBLISHED),
        Claim(
            latency_ms=(33.0, 0.1),
            device="NVIDIA RTX 5090",
            source="candle #3531",
            cases=PUBLISHED,
            shape="a layer of LFM2; under 0.1 ms",
        ),
        Claim(
            speedup=0.526,
            implementation="shifted_sum",
            device="a GPU that is not named",
            source="candle #3531",
            shape="the worst of 113 shapes without a gate; 26 of them were slower",
        ),
    ],
)
