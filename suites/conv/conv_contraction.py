"""A 3-D convolution without a convolution: the taps contracted one after another. The oracle of several suites.

3-D convolutions have been silently wrong, in some releases for bfloat16 alone, so that what judges them should not be one.
"""

import itertools

import torch
import torch.nn.functional as F


def contracted(x, weight, bias, stride, padding, front):
    """Convolve x, [b, c, t, h, w], padded with zeros: `front` frames before it, `padding` (height, width) on both sides."""
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0], front, 0))
    sizes = [(size - taps) // step + 1 for size, taps, step in zip(x.shape[2:], weight.shape[2:], stride, strict=True)]
    total = x.new_zeros(x.shape[0], weight.shape[0], *sizes)
    for tap in itertools.product(*(range(taps) for taps in weight.shape[2:])):
        window = [
            slice(at, at + (size - 1) * step + 1, step) for at, size, step in zip(tap, sizes, stride, strict=True)
        ]
        met = x[(slice(None), slice(None), *window)]
        total += torch.einsum("bcthw,oc->bothw", met, weight[(slice(None), slice(None), *tap)])
    return total if bias is None else total + bias.view(-1, 1, 1, 1)


def products_met(size, taps, stride, before, after):
    """Return how many products with data, not padding zeros, one dimension has, and how many outputs."""
    outputs = (size + before + after - taps) // stride + 1
    first = range(-before, -before + outputs * stride, stride)
    return sum(0 <= at + tap < size for at in first for tap in range(taps)), outputs
