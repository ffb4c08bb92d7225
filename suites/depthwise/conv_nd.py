"""Depthwise convolutions over pictures and videos, and grouped ones: what `conv1d.py` has for sequences.

Splitting a convolution into its groups launches one to three kernels for each. With one channel a group there are forms
that launch a fixed number: PyTorch's own grouped convolution, a sum over the taps, one kernel. With taps in two or three
dimensions that sum grows long (9 terms for 3 x 3, 49 for 7 x 7, 27 for 3 x 3 x 3, each through memory), so that it is not for
every shape. With several channels a group it is wrong, and a dispatch has to fall back.

The contract: `x` is [batch, channels, (depth,) height, width], `weight` [channels_out, channels/groups, taps...], zeros lie
outside `x`, `padding` is that of both sides, and the number of groups follows from the shapes. The layout of the result is
that of `x`. Every implementation but the Triton one is built of differentiable operations; gradients are not judged here.
"""

from __future__ import annotations

import kernels_grouped as forms
import torch
from grouped_impostors import IMPOSTORS
from kernels_depthwise_nd import fused_kernel

from pairbench import REASSOCIATED, Cost, Operator, Variant, grid


def inputs(
    make, batch, channels, size, taps, dtype, padding=None, stride=None, dilation=None, multiplier=1, group_size=1,
    bias=False, layout="contiguous", data="normal",
):  # fmt: skip
    filters = (channels // group_size * multiplier, group_size, *taps)
    ones = (1,) * len(size)
    scale = (group_size * torch.Size(taps).numel()) ** -0.5
    if data == "positive":
        weight = make.uniform(*filters, high=scale, dtype=dtype)
    elif layout == "strided_weight":
        weight = make.normal(*filters, 2, dtype=dtype, scale=scale)[..., 0]
    else:
        weight = make.normal(*filters, dtype=dtype, scale=scale)
    return {
        "x": _picture(make, (batch, channels, *size), dtype, layout, data),
        "weight": weight,
        "bias": make.normal(filters[0], dtype=dtype) if bias else None,
        "padding": padding or (0,) * len(size),
        "stride": stride or ones,
        "dilation": dilation or ones,
    }


def _picture(make, shape, dtype, layout, data):
    draw = make.uniform if data == "positive" else make.normal
    if layout == "channels_last":
        return draw(shape[0], *shape[2:], shape[1], dtype=dtype).movedim(-1, 1)
    if layout == "sliced":  # some channels of a wider picture, and every other column
        return draw(shape[0], shape[1] + 3, *shape[2:-1], 2 * shape[-1], dtype=dtype)[:, 1 : shape[1] + 1, ..., ::2]
    return draw(*shape, dtype=dtype)


def cost(batch, channels, size, taps, dtype, padding=None, stride=None, dilation=None, multiplier=1, group_size=1, bias=False,
         **_):  # fmt: skip
    ones = (1,) * len(size)
    geometry = zip(size, taps, padding or (0,) * len(size), stride or ones, dilation or ones, strict=True)
    channels_out = channels // group_size * multiplier
    products, outputs, filters = batch * channels_out * group_size, batch * channels_out, channels_out * group_size
    for one_size, one_taps, *rest in geometry:
        met, placed = forms.products_of(one_size, one_taps, *rest)
        products, outputs, filters = products * met, outputs * placed, filters * one_taps
    elements = batch * channels * torch.Size(size).numel() + filters + channels_out * bias + outputs
    return Cost(flops=2.0 * products, bytes=float(elements * getattr(torch, dtype).itemsize))


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(batch=1, channels=6, size=(4, 5), taps=(3, 3), dtype="float32")
VIDEO = dict(batch=1, channels=4, size=(2, 4, 5), taps=(3, 3, 3), dtype="float32")  # few planes: Triton is interpreted
SAME = dict(padding=(1, 1))

EDGE_2D = [
    dict(TINY, batch=2, dtype="float64", **SAME),
    dict(TINY, batch=2, **SAME),
    dict(TINY, taps=(1, 1)),
    dict(TINY, size=(2, 3), taps=(5, 5), padding=(2, 2)),  # more taps than rows
    dict(TINY, size=(2, 2), padding=(3, 4)),  # padding wider than the taps: some outputs are bias alone
    dict(TINY, size=(1, 1), bias=True, **SAME),
    dict(TINY, taps=(1, 5), padding=(0, 2)),
    dict(TINY, taps=(5, 1), padding=(1, 0)),
    dict(TINY, channels=1, **SAME),
    dict(TINY, group_size=6, multiplier=6, **SAME),  # dense: one group
    dict(TINY, group_size=2, multiplier=4, **SAME),
    dict(TINY, batch=2, channels=4, multiplier=2, bias=True, **SAME),
    dict(TINY, size=(9, 11), stride=(2, 2), **SAME),
    dict(TINY, size=(9, 11), stride=(1, 3), padding=(0, 1)),
    dict(TINY, size=(9, 11), dilation=(2, 2), padding=(2, 2)),
    dict(TINY, size=(13, 9), stride=(3, 2), dilation=(2, 3), bias=True, **SAME),
    dict(TINY, layout="channels_last", bias=True, **SAME),
    dict(TINY, batch=2, layout="sliced", **SAME),
    dict(TINY, layout="strided_weight", **SAME),
    dict(TINY, dtype="float16", bias=True, **SAME),
    dict(TINY, batch=2, layout="channels_last", dtype="float16", **SAME),
    dict(TINY, channels=3, size=(5, 66), dtype="bfloat16", **SAME),  # more columns than a tile has
    dict(TINY, channels=40, size=(2, 3), taps=(1, 3), padding=(0, 1), dtype="float16"),  # more channels
    dict(TINY, channels=70, size=(2, 3), taps=(1, 3), padding=(0, 1), layout="channels_last", dtype="float16"),
    dict(
        batch=1, channels=2, size=(8, 8), taps=(7, 7), padding=(3, 3), dtype="float32"
    ),  # too few channels to sum taps
    dict(batch=1, channels=4, size=(12, 12), taps=(12, 11), padding=(1, 1), data="positive", dtype="float16"),
]

EDGE_3D = [
    dict(VIDEO, dtype="float64", padding=(1, 1, 1)),
    dict(VIDEO, bias=True, padding=(1, 1, 1)),
    dict(VIDEO, taps=(1, 1, 1)),
    dict(VIDEO, size=(5, 3, 4), taps=(5, 1, 1), padding=(1, 0, 0)),
    dict(VIDEO, batch=2, taps=(1, 3, 3), padding=(0, 1, 1)),
    dict(VIDEO, size=(1, 4, 4), padding=(1, 1, 1)),
    dict(VIDEO, stride=(1, 2, 2), padding=(1, 1, 1)),
    dict(VIDEO, size=(5, 4, 5), stride=(2, 1, 3), dilation=(2, 2, 1), padding=(1, 2, 1)),
    dict(VIDEO, multiplier=2, padding=(1, 1, 1)),
    dict(VIDEO, group_size=2, multiplier=2, padding=(1, 1, 1)),
    dict(VIDEO, layout="channels_last", dtype="float16", padding=(1, 1, 1)),
    dict(VIDEO, layout="sliced", dtype="float16", padding=(1, 1, 1)),
    dict(batch=1, channels=3, size=(2, 22, 3), taps=(2, 22, 3), padding=(0, 1, 1), data="positive", dtype="float16"),
]

EDGE_GROUPED = [
    dict(TINY, batch=2, channels=8, group_size=2, multiplier=2, dtype="float64", **SAME),
    dict(TINY, batch=2, channels=8, group_size=4, multiplier=4, bias=True, **SAME),
    dict(TINY, channels=8, group_size=2, multiplier=1, **SAME),  # fewer channels out than in
    dict(TINY, channels=8, group_size=8, multiplier=8, **SAME),  # one group
    dict(TINY, channels=8, group_size=1, **SAME),  # depthwise: the dispatch may sum taps
    dict(TINY, channels=8, group_size=1, multiplier=2, **SAME),
    dict(TINY, channels=8, group_size=2, multiplier=2, taps=(1, 1)),
    dict(TINY, channels=8, group_size=4, multiplier=4, size=(9, 8), stride=(2, 2), **SAME),
    dict(TINY, channels=8, group_size=4, multiplier=4, size=(9, 8), dilation=(2, 1), padding=(2, 1)),
    dict(TINY, channels=8, group_size=4, multiplier=4, layout="channels_last", **SAME),
    dict(TINY, batch=2, channels=8, group_size=4, multiplier=4, layout="sliced", dtype="bfloat16", **SAME),
    dict(TINY, channels=8, group_size=4, multiplier=4, layout="strided_weight", dtype="float16", bias=True, **SAME),
]

# What models have.
SANA = dict(channels=11200, taps=(3, 3), bias=True, **SAME)  # SANA: twice 2.5 times 2240 channels
CONVNEXT = dict(taps=(7, 7), padding=(3, 3), bias=True)
MOBILENET = dict(taps=(3, 3), **SAME)
X3D = dict(channels=54, size=(16, 56, 56), taps=(3, 3, 3), padding=(1, 1, 1))
RESNEXT = dict(taps=(3, 3), **SAME)  # 32 groups of 4, 8, 16 and 32 channels

REAL_2D = [
    dict(SANA, batch=1, size=(32, 32), dtype="bfloat16"),
    dict(SANA, batch=1, size=(32, 32), layout="channels_last", dtype="bfloat16"),
    dict(CONVNEXT, batch=8, channels=96, size=(56, 56), dtype="float32"),
    dict(CONVNEXT, batch=8, channels=96, size=(56, 56), dtype="bfloat16"),
    dict(CONVNEXT, batch=8, channels=768, size=(7, 7), dtype="bfloat16"),
    dict(CONVNEXT, batch=8, channels=96, size=(56, 56), layout="channels_last", dtype="bfloat16"),
    dict(MOBILENET, batch=32, channels=64, size=(112, 112), stride=(2, 2), dtype="bfloat16"),
    dict(MOBILENET, batch=1, channels=960, size=(7, 7), dtype="bfloat16"),
]

REAL_3D = [
    dict(X3D, batch=8, dtype="float32"),
    dict(X3D, batch=8, dtype="bfloat16"),
    dict(X3D, batch=8, layout="channels_last", dtype="bfloat16"),
    dict(batch=8, channels=24, size=(16, 112, 112), taps=(5, 1, 1), padding=(2, 0, 0), dtype="bfloat16"),  # X3D's stem
]

REAL_GROUPED = [
    *(
        dict(RESNEXT, batch=8, channels=128, group_size=4, multiplier=4, size=(56, 56), dtype=d)
        for d in ("float32", "bfloat16")
    ),
    dict(
        RESNEXT,
        batch=8,
        channels=128,
        group_size=4,
        multiplier=4,
        size=(56, 56),
        layout="channels_last",
        dtype="bfloat16",
    ),
    dict(RESNEXT, batch=8, channels=256, group_size=8, multiplier=8, size=(56, 56), stride=(2, 2), dtype="bfloat16"),
    dict(RESNEXT, batch=8, channels=1024, group_size=32, multiplier=32, size=(7, 7), dtype="bfloat16"),
]

# -- declarations -----------------------------------------------------------------------------------------------------

DEPTHWISE = {
    "shifted_sum": Variant(forms.shifted_sum, valid=forms.is_depthwise),
    "native_groups": forms.native_groups,
    "channels_last": Variant(forms.channels_last, prepare=forms.channels_last_weight),
    "gated": forms.gated,
    "triton": Variant(fused_kernel, valid=forms.one_channel_a_group, needs="triton"),
}

depthwise_conv2d = Operator(
    "depthwise_conv2d",
    baseline=forms.per_group_loop,
    variants=DEPTHWISE,
    inputs=inputs,
    cases={
        "edge": EDGE_2D,
        "smoke": [
            *grid(
                batch=[1], channels=[16], size=[(4, 9)], taps=[(3, 3)], padding=[(1, 1)], dtype=["float32", "bfloat16"]
            ),
            dict(batch=1, channels=8, size=(4, 8), taps=(7, 7), padding=(3, 3), bias=True, dtype="float32"),
        ],
        "real": REAL_2D,
        "headline": [
            dict(SANA, batch=8, size=(32, 32), layout=layout, dtype="bfloat16")
            for layout in ("contiguous", "channels_last")
        ],
    },
    impostors=IMPOSTORS,
    oracle=forms.block_diagonal,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="candle #3531",
)

depthwise_conv3d = Operator(
    "depthwise_conv3d",
    baseline=forms.per_group_loop,
    variants=DEPTHWISE,
    inputs=inputs,
    cases={
        "edge": EDGE_3D,
        "smoke": [
            dict(VIDEO, channels=8, padding=(1, 1, 1)),
            dict(VIDEO, channels=8, size=(1, 4, 5), padding=(1, 1, 1), dtype="bfloat16"),
        ],
        "real": REAL_3D,
        "headline": [dict(X3D, batch=64, dtype="bfloat16")],
    },
    impostors=IMPOSTORS,
    oracle=forms.block_diagonal,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="candle #3531",
)

grouped_conv2d = Operator(
    "grouped_conv2d",
    baseline=forms.per_group_loop,
    variants={
        "shifted_sum": Variant(forms.shifted_sum, valid=forms.is_depthwise),
        "native_groups": forms.native_groups,
        "channels_last": Variant(forms.channels_last, prepare=forms.channels_last_weight),
        "batched_gemm": forms.batched_gemm,
        "gated": forms.gated,
    },
    inputs=inputs,
    cases={
        "edge": EDGE_GROUPED,
        "smoke": [
            *grid(
                batch=[2],
                channels=[16],
                group_size=[4],
                multiplier=[4],
                size=[(6, 6)],
                taps=[(3, 3)],
                padding=[(1, 1)],
                dtype=["float32", "bfloat16"],
            ),
        ],
        "real": REAL_GROUPED,
        "headline": [
            dict(RESNEXT, batch=32, channels=256, group_size=8, multiplier=8, size=(56, 56), dtype="bfloat16")
        ],
    },
    # Rounding each product shows only where the other products of a group do not hide it.
    impostors={name: one for name, one in IMPOSTORS.items() if name != "half_accumulation"},
    oracle=forms.block_diagonal,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weight", "bias"],
    source="candle #3531",
)
