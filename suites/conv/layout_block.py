"""A residual block of a video autoencoder in two layouts: where channels-last begins and ends, and what else it touches.

Twice a normalisation over channels, SiLU and a convolution, then the sum with what came in; time is padded in front with
zeros. Converting around each convolution moves every activation twice more; converting once serves all, but the normalisation,
too, then runs over channels that lie side by side, and the sum takes the layout of its first operand where the two differ,
which is how a network drops out of channels-last without a word. Forms that convert hand the result on in the layout that `x`
came in (`layout`).
"""

from __future__ import annotations

import kernels_conv3d_torch as forms
import torch
import torch.nn.functional as F
from conv_contraction import contracted, products_met

from pairbench import REASSOCIATED, Cost, Operator, Variant, grid

LAST = torch.channels_last_3d


def inputs(make, c, t, h, w, dtype, b=1, layout="contiguous"):
    scale = (27 * c) ** -0.5
    return {
        "x": _video(make, (b, c, t, h, w), layout, dtype),
        "gains": make.uniform(2, c, low=0.5, high=1.5, dtype=dtype),
        "weights": [make.normal(c, c, 3, 3, 3, dtype=dtype, scale=scale) for _ in range(2)],
        "biases": make.normal(2, c, dtype=dtype, scale=0.25),
    }


def _video(make, shape, layout, dtype):
    video = make.normal(*shape, dtype=dtype)
    if layout == "degenerate":  # of one frame, whose stride in time says nothing
        return video.transpose(1, 2).contiguous().transpose(1, 2)
    return video.contiguous(memory_format=LAST) if layout == "channels_last_3d" else video


def cost(c, t, h, w, dtype, b=1, **_):
    taps = products_met(t, 3, 1, 2, 0)[0] * products_met(h, 3, 1, 1, 1)[0] * products_met(w, 3, 1, 1, 1)[0]
    elements = 2 * b * c * t * h * w + 2 * 27 * c * c + 4 * c
    return Cost(flops=2.0 * 2 * b * c * c * taps, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def block(x, gains, weights, biases):
    """Convolve contiguous tensors with contiguous weights, padding time in a copy."""
    h = x
    for gain, weight, bias in zip(gains, weights, biases, strict=True):
        h = F.conv3d(F.pad(_activated(h, gain), (0, 0, 0, 0, 2, 0)), weight, bias, padding=(0, 1, 1))
    return x + h


def mixed_weights(x, gains, weights, biases):
    """The same with only the weights in channels-last, laid out beforehand."""
    return _handed_on(block(x, gains, weights, biases), x)


def _handed_on(y, x):
    return y.contiguous(memory_format=forms.layout_of(x))


def each_conv(x, gains, weights, biases):
    """Convert around each convolution: the rest of the block does not know."""
    h = x
    for gain, weight, bias in zip(gains, weights, biases, strict=True):
        frames = forms.filled(_activated(h, gain), None, 2, LAST)
        h = _handed_on(F.conv3d(frames, weight, bias, padding=(0, 1, 1)), x)
    return x + h


def throughout(x, gains, weights, biases):
    """Convert what comes in once, stay in channels-last, convert what goes out."""
    inside = x.contiguous(memory_format=LAST)
    return _handed_on(inside + _branch(inside, gains, weights, biases), x)


def summed_across(x, gains, weights, biases):
    """Convert for the convolutions only; the sum reads both layouts and writes that of what came in."""
    return x + _branch(x.contiguous(memory_format=LAST), gains, weights, biases)


def _branch(h, gains, weights, biases):
    for gain, weight, bias in zip(gains, weights, biases, strict=True):
        frames = forms.filled(_activated(h, gain), None, 2, LAST)
        h = F.conv3d(frames, weight, bias, padding=(0, 1, 1))
    return h


def weights_last(gains, weights, biases):
    return {"weights": [weight.contiguous(memory_format=LAST) for weight in weights]}


def _activated(h, gain):
    """Normalise each pixel's channels to their root mean square, scale them, SiLU."""
    return F.silu(F.normalize(h, dim=1) * h.shape[1] ** 0.5 * gain.view(-1, 1, 1, 1))


def contracted_block(x, gains, weights, biases):
    h = x
    for gain, weight, bias in zip(gains, weights, biases, strict=True):
        norm = h.square().mean(1, keepdim=True).sqrt()
        scaled = h / norm * gain.view(-1, 1, 1, 1)
        h = contracted(scaled * torch.sigmoid(scaled), weight, bias, (1, 1, 1), (1, 1), 2)
    return x + h


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def _as_it_lies(tensor):
    """Read the memory of a channels-last tensor as if it were contiguous."""
    return tensor.permute(0, 2, 3, 4, 1).reshape(tensor.shape)


def residual_of_first_norm(x, gains, weights, biases):
    """Add what the first activation made in place of what came in."""
    return block(x, gains, weights, biases) - x + _activated(x, gains[0])


def weights_as_they_lie(x, gains, weights, biases):
    return block(x, gains, [_as_it_lies(weight) for weight in weights], biases)


def norm_over_width(x, gains, weights, biases):
    """Normalise over the axis that lies last in memory, which is the channels' in the other layout only."""
    h = x
    for gain, weight, bias in zip(gains, weights, biases, strict=True):
        scaled = F.silu(F.normalize(h, dim=4) * h.shape[4] ** 0.5 * gain.view(-1, 1, 1, 1))
        h = F.conv3d(F.pad(scaled, (0, 0, 0, 0, 2, 0)), weight, bias, padding=(0, 1, 1))
    return x + h


# -- cases -------------------------------------------------------------------------------------------------------------

TINY = dict(c=6, t=2, h=4, w=5, dtype="float32")
LAYOUTS = ("contiguous", "channels_last_3d")

conv3d_block = Operator(
    "conv3d_block",
    baseline=block,
    variants={
        "mixed_weights": Variant(mixed_weights, prepare=weights_last),
        "each_conv": Variant(each_conv, prepare=weights_last),
        "throughout": Variant(throughout, prepare=weights_last),
        "summed_across": Variant(summed_across, prepare=weights_last),
    },
    inputs=inputs,
    cases={
        "edge": [
            dict(TINY, dtype="float64"),
            dict(TINY, b=2),
            dict(TINY, b=2, layout="channels_last_3d"),
            dict(TINY, t=1),
            dict(TINY, t=1, layout="degenerate"),
            dict(TINY, layout="channels_last_3d", dtype="bfloat16"),
            dict(TINY, dtype="float16"),
        ],
        "smoke": grid(c=[16], t=[2], h=[8], w=[8], dtype=["float32", "bfloat16"]),
        "real": [
            *(
                dict(c=c, t=t, h=h, w=w, layout=layout, dtype="bfloat16")
                for c, t, h, w in ((384, 1, 60, 104), (384, 2, 120, 208), (192, 4, 240, 416), (96, 4, 480, 832))
                for layout in LAYOUTS
            ),
            dict(c=192, t=4, h=240, w=416, dtype="float32"),
        ],
        "headline": [dict(c=96, t=4, h=720, w=1280, layout=layout, dtype="bfloat16") for layout in LAYOUTS],
    },
    impostors={
        "residual_of_first_norm": residual_of_first_norm,
        "weights_as_they_lie": weights_as_they_lie,
        "norm_over_width": norm_over_width,
    },
    oracle=contracted_block,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["gains", "weights", "biases"],
    source="sglang #26214",
)
