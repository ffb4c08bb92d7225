"""Deliberately wrong grouped convolutions, each for the mistake it makes and with where that shows. For `conv_nd.py`."""

from __future__ import annotations

import kernels_grouped as forms
import torch
import torch.nn.functional as F

from pairbench import Variant


def tiled_multiplier(x, weight, **rest):
    """Repeat the channels as a whole; the filters of one channel lie side by side."""
    tiled = x.repeat(1, weight.shape[0] // x.shape[1], *[1] * (x.dim() - 2))
    return forms.per_group_loop(tiled, weight, **rest)


def flipped_taps(x, weight, **rest):
    """Convolve as in signal processing; neural networks correlate."""
    return forms.per_group_loop(x, weight.flip(*range(2, weight.dim())), **rest)


def swapped_axes(x, weight, **rest):
    """Take rows of taps for columns."""
    return forms.per_group_loop(x, weight.transpose(-1, -2), **rest)


def next_channel(x, weight, **rest):
    """Give each channel its neighbour's filter."""
    return forms.per_group_loop(x, weight.roll(1, 0), **rest)


def without_bias(x, weight, bias, **rest):
    return forms.per_group_loop(x, weight, None, **rest)


def dropped_tap(x, weight, **rest):
    """Stop one tap early."""
    shorter = weight.clone()
    shorter[..., -1] = 0
    return forms.per_group_loop(x, shorter, **rest)


def replicated_border(x, weight, bias, padding, stride, dilation):
    """Repeat the border where zeros belong."""
    sides = [side for pad in reversed(padding) for side in (pad, pad)]
    padded = F.pad(x, sides, mode="replicate")
    return forms.per_group_loop(padded, weight, bias, (0,) * len(padding), stride, dilation)


def half_accumulation(x, weight, bias, padding, stride, dilation):
    """Round every product and every sum to the half type."""
    total = None
    for at in range(weight.shape[2:].numel()):
        one = torch.zeros_like(weight).flatten(2)
        one[..., at] = weight.flatten(2)[..., at]
        term = forms.native_groups(x, one.view_as(weight), None, padding, stride, dilation)
        total = term if total is None else total + term
    return total if bias is None else total + bias.view(-1, *[1] * (x.dim() - 2))


def first_of_group(x, weight, bias, padding, stride, dilation):
    """Let a sum over taps in where a group has several channels: all but the first are left out."""
    size = weight.shape[1]
    first = x[:, ::size].repeat_interleave(weight.shape[0] * size // x.shape[1], 1)
    return forms.shifted_sum(first, weight[:, :1], bias, padding, stride, dilation)


def has_multiplier(x, weight, **_):
    return weight.shape[1] == 1 and weight.shape[0] > x.shape[1] > 1


def has_taps(x, weight, **_):
    return weight.shape[2:].numel() > 1 and x.shape[2:].numel() > 1  # a lone pixel meets the middle tap alone


def has_square_taps(x, weight, **_):
    return weight.shape[-1] == weight.shape[-2] > 1 and has_taps(x, weight)


def has_columns(x, weight, **_):
    return weight.shape[-1] > 1 and has_taps(x, weight)


def has_channels(weight, **_):
    return weight.shape[0] > 1


def has_bias(bias, **_):
    return bias is not None


def reaches_border(padding, dilation, weight, **_):
    return min(padding) > 0 and weight.shape[2:].numel() > 1


def has_groups_of_several(x, weight, **_):
    return weight.shape[1] > 1


def rounds_often(x, weight, **_):
    """With few taps the roundings stay below what a single one at the end may cost; nothing could tell them apart."""
    return x.dtype in forms.HALF and weight.shape[2:].numel() >= 128 and forms.is_depthwise(x, weight) is True


IMPOSTORS = {
    "tiled_multiplier": Variant(tiled_multiplier, valid=has_multiplier),
    "flipped_taps": Variant(flipped_taps, valid=has_taps),
    "swapped_axes": Variant(swapped_axes, valid=has_square_taps),
    "next_channel": Variant(next_channel, valid=has_channels),
    "without_bias": Variant(without_bias, valid=has_bias),
    "dropped_tap": Variant(dropped_tap, valid=has_columns),
    "replicated_border": Variant(replicated_border, valid=reaches_border),
    "half_accumulation": Variant(half_accumulation, valid=rounds_often),
    "first_of_group": Variant(first_of_group, valid=has_groups_of_several),
}
