"""The forms of grouped convolutions in two and three dimensions that PyTorch's own operators make up.

All take x, [batch, channels, (depth,) height, width], and weight, [channels_out, channels/groups, taps...], and hand on the
layout that came in. The declarations stand in `conv_nd.py` and `grouped_conv.py`.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from kernels_depthwise_nd import output_sizes

HALF = (torch.float16, torch.bfloat16)


def convolve(x, weight, bias, padding, stride, dilation, groups=1):
    """Convolve in as many dimensions as there are."""
    function = F.conv2d if x.dim() == 4 else F.conv3d
    return function(x, weight, bias, stride, padding, dilation, groups)


def groups_of(x, weight):
    return x.shape[1] // weight.shape[1]


def per_group_loop(x, weight, bias, padding, stride, dilation):
    """One convolution for each group, and a concatenation."""
    groups = groups_of(x, weight)
    biases = [None] * groups if bias is None else bias.chunk(groups)
    parts = zip(x.chunk(groups, 1), weight.chunk(groups), biases, strict=True)
    return torch.cat([convolve(*part, padding, stride, dilation) for part in parts], 1)


def native_groups(x, weight, bias, padding, stride, dilation):
    """PyTorch's own grouped convolution."""
    return convolve(x, weight, bias, padding, stride, dilation, groups_of(x, weight))


def channels_last(x, weight, bias, padding, stride, dilation):
    """The same in channels-last layout, with the weight laid out so beforehand; hand on the layout that came in."""
    y = native_groups(x.contiguous(memory_format=_last(x)), weight, bias, padding, stride, dilation)
    return y.contiguous() if x.is_contiguous() else y


def channels_last_weight(weight, bias):
    return {"weight": weight.contiguous(memory_format=_last(weight))}


def _last(tensor):
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def shifted_sum(x, weight, bias, padding, stride, dilation):
    """Add up the taps, each a slice of the whole input times one number a channel.

    As many multiplications as there are taps, however many channels. Half types are accumulated in float32, by promotion
    inside the multiplication.
    """
    sizes = output_sizes(x, weight, padding, stride, dilation)
    factors = weight[:, 0].to(torch.float32 if x.dtype in HALF else x.dtype)
    if any(padding):
        x = F.pad(x, [side for pad in reversed(padding) for side in (pad, pad)])
    total = None
    for tap in itertools.product(*(range(taps) for taps in weight.shape[2:])):
        term = _met_by(x, tap, sizes, stride, dilation) * factors[(slice(None), *tap)].view(-1, *[1] * len(sizes))
        total = term if total is None else total + term
    if bias is not None:
        total = total + bias.view(-1, *[1] * len(sizes))
    return total.to(x.dtype)


def _met_by(x, tap, sizes, stride, dilation):
    """Return the view of the padded input that one tap meets."""
    firsts = [at * reach for at, reach in zip(tap, dilation, strict=True)]
    windows = [
        slice(first, first + (size - 1) * step + 1, step)
        for first, size, step in zip(firsts, sizes, stride, strict=True)
    ]
    return x[(slice(None), slice(None), *windows)]


def gated(x, weight, bias, padding, stride, dilation):
    """The dispatch of the pull request: the shifted sum where it is valid and expected to pay, else the loop.

    It asks for a GPU, for launches of the loop in half as many again as the sum has (three a group against one a tap and
    one for each addition), and for little work a channel.
    """
    taps = weight.shape[2:].numel()
    work = x.shape[0] * taps
    for size in output_sizes(x, weight, padding, stride, dilation):
        work *= size
    plain = max(*stride, *dilation) == 1 and is_depthwise(x, weight) is True
    if plain and x.is_cuda and 3 * x.shape[1] * 2 >= (2 * taps - 1) * 3 and work <= 2**20:
        return shifted_sum(x, weight, bias, padding, stride, dilation)
    return per_group_loop(x, weight, bias, padding, stride, dilation)


def batched_gemm(x, weight, bias, padding, stride, dilation):
    """Unfold the patches, and multiply those of all groups in one batched product."""
    groups = groups_of(x, weight)
    patches = F.unfold(x, weight.shape[2:], dilation, padding, stride).unflatten(1, (groups, -1))
    y = (weight.flatten(1).unflatten(0, (groups, -1)) @ patches).flatten(1, 2)
    y = y if bias is None else y + bias[:, None]
    y = y.unflatten(2, output_sizes(x, weight, padding, stride, dilation))
    return y if x.is_contiguous() else y.contiguous(memory_format=torch.channels_last)


def is_depthwise(x, weight, **_):
    if weight.shape[1] != 1:
        return f"{weight.shape[1]} channels in a group; a sum over taps alone leaves out the sum over channels"
    if weight.shape[0] != x.shape[1]:
        return f"{weight.shape[0]} filters for {x.shape[1]} channels; slices and filters do not pair up"
    return True


def one_channel_a_group(x, weight, **_):
    if weight.shape[1] != 1:
        return f"{weight.shape[1]} channels in a group; the kernel sums over taps only"
    return x.dtype != torch.float64 or "float64; the kernel accumulates in float32"


# -- the independent oracle -------------------------------------------------------------------------------------------


def block_diagonal(x, weight, bias, padding, stride, dilation):
    """Convolve with the dense weight that has the filters on its diagonal and zeros elsewhere.

    Nothing of the grouped code takes part in it. The dense weight grows with the square of the channels; from 2**20 numbers
    on the taps are contracted one after another, each a slice of the input, which takes no convolution at all.
    """
    channels_out, group_size = weight.shape[:2]
    channels = x.shape[1]
    groups = channels // group_size
    if channels_out * channels * weight.shape[2:].numel() > 2**20:
        return _contracted(x, weight, bias, padding, stride, dilation)
    dense = weight.new_zeros(channels_out, channels, *weight.shape[2:])
    for filter_ in range(channels_out):
        first = filter_ // (channels_out // groups) * group_size
        dense[filter_, first : first + group_size] = weight[filter_]
    return convolve(x, dense, bias, padding, stride, dilation)


def _contracted(x, weight, bias, padding, stride, dilation):
    groups = groups_of(x, weight)
    sizes = output_sizes(x, weight, padding, stride, dilation)
    filters = weight.unflatten(0, (groups, -1))
    x = F.pad(x, [side for pad in reversed(padding) for side in (pad, pad)])
    total = x.new_zeros(x.shape[0], weight.shape[0], *sizes)
    for tap in itertools.product(*(range(taps) for taps in weight.shape[2:])):
        met = _met_by(x, tap, sizes, stride, dilation).unflatten(1, (groups, -1)).flatten(3)
        product = torch.einsum("bgcn,goc->bgon", met, filters[(..., *tap)])
        total += product.flatten(1, 2).unflatten(2, sizes)
    return total if bias is None else total + bias.view(-1, *[1] * len(sizes))


# -- the least work ---------------------------------------------------------------------------------------------------


def products_of(size, taps, padding, stride, dilation):
    """Return how many products with data, not padding zeros, one dimension has, and how many outputs."""
    outputs = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    first = range(-padding, -padding + outputs * stride, stride)
    return sum(0 <= at + tap * dilation < size for at in first for tap in range(taps)), outputs
