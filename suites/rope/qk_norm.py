"""Queries and keys of a packed projection: normed over all heads, then rotated by their places in the video.

What stands between a projection and attention in Wan: an RMS norm of the whole width (not of each head), rounded to the
projection's type and then multiplied with a weight, the view as heads, and the rotation of `rope3d`. Written as published it is
some 22 kernels, most of them in float32 or float64; one can do it, with a token's row in registers between the two.

The contract: `qkv` is [batch, tokens, 3 * heads * dim], queries, keys and values of a token side by side; the results are
[batch, tokens, heads, dim] of qkv's type, queries and keys packed, values as they are (a view). `sizes`, `start_frame` and
`freqs` are those of `rope3d`.

Where to round is judged, not laid down. The plain form rounds three times: the normed value, its product with the weight, the
rotated value; `triton` does the same and differs from it in some fifteen elements of a million. `torch.nn.RMSNorm` multiplies before it
rounds, `triton_float` rounds at the very end alone: both are nearer to the exact value than the plain form, and apart from it by
what its roundings cost. A rotation mixes two numbers, so that this is relative to the pair and not to the element: three to
thirty elements of a million are beyond class R's limit, which is relative to the element but for a hundredth of the RMS. Here
the absolute part is one spacing of a pair of five times the RMS, as one in some 300,000 pairs is.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from kernels_rope import norm_and_rotate, rotate
from rope_angles import from_places, published, single_precision, table
from rope_forms import complex64, fits_single

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant

from ..norm.kernels_norm_rms import rms_norm

EPS = 1e-6


def inputs(
    make,
    size,
    heads,
    dim,
    dtype,
    batch=1,
    tail=0,
    start_frame=0,
    positions=1024,
    eps=EPS,
    layout="packed",
    data="normal",
):
    """`size` is (frames, rows, columns), for all samples or one after another; `tail`: tokens behind the longest video."""
    videos = [tuple(size[at : at + 3]) for at in range(0, len(size), 3)]
    sizes = tuple(videos * batch if len(videos) == 1 else videos)
    tokens, width = max(map(math.prod, sizes)) + tail, 3 * heads * dim
    scale = eps**0.5 if data == "tiny" else 1.0
    wider = 8 if layout == "sliced" else 0  # a gate computed in the same projection
    step = 2 if layout == "every_other" else 1
    qkv = make.normal(len(sizes), tokens, step * width + wider, dtype=dtype, scale=scale)[..., : step * width : step]
    qkv[..., heads * dim : 2 * heads * dim] *= 2  # keys and queries are not of one length
    if data == "zero_rows":
        qkv[:, ::2] = 0
    return {
        "qkv": qkv,
        "q_weight": make.normal(heads * dim, dtype=dtype, mean=1.0, scale=0.2),
        "k_weight": make.normal(heads * dim, dtype=dtype, mean=1.0, scale=0.2),
        "freqs": table(positions, dim, make.device),
        "heads": heads,
        "sizes": sizes,
        "start_frame": start_frame,
        "eps": eps,
    }


def cost(size, heads, dim, dtype, batch=1, tail=0, **_):
    """Norm and rotation of queries and keys; values need not be touched."""
    videos = [math.prod(size[at : at + 3]) for at in range(0, len(size), 3)]
    videos = videos * batch if len(videos) == 1 else videos
    values = 2 * len(videos) * (max(videos) + tail) * heads * dim
    weights = 2 * heads * dim
    turned = 2 * sum(videos) * heads * dim
    return Cost(flops=4.0 * values + 3.0 * turned, bytes=float((2 * values + weights) * getattr(torch, dtype).itemsize))


# -- implementations --------------------------------------------------------------------------------------------------


def plain(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """As published: norms by hand, rotation in complex128."""
    q, k, v = qkv.chunk(3, -1)
    q, k = _normed(q, q_weight, eps), _normed(k, k_weight, eps)
    q, k, v = (x.unflatten(-1, (heads, -1)) for x in (q, k, v))
    return published(q, freqs, sizes, start_frame), published(k, freqs, sizes, start_frame), v


def _normed(x, weight, eps):
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).type_as(x) * weight


def builtin_complex64(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps, cos, sin, **_):
    """PyTorch's norm, whose weight comes before the rounding, and the rotation in complex64."""
    q, k, v = qkv.chunk(3, -1)
    q, k = F.rms_norm(q, q_weight.shape, q_weight, eps), F.rms_norm(k, k_weight.shape, k_weight, eps)
    q, k, v = (x.unflatten(-1, (heads, -1)) for x in (q, k, v))
    return *complex64(q, k, freqs, sizes, start_frame, cos, sin), v


def three_kernels(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps, cos, sin, **_):
    """A kernel for each norm and one for the rotation: the normed rows go through memory once more."""
    q, k, v = qkv.chunk(3, -1)
    q, k = rms_norm(q, q_weight, eps), rms_norm(k, k_weight, eps)
    q, k, v = (x.unflatten(-1, (heads, -1)) for x in (q, k, v))
    return *rotate(q, k, cos, sin, sizes, start_frame), v


def fused(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps, cos, sin, weights):
    """One kernel, which rounds where the plain form does."""
    return _one_kernel(qkv, weights, cos, sin, heads, sizes, start_frame, eps, rounds=True)


def fused_float(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps, cos, sin, weights):
    """One kernel, in float32 until it writes."""
    return _one_kernel(qkv, weights, cos, sin, heads, sizes, start_frame, eps, rounds=False)


def _one_kernel(qkv, weights, cos, sin, heads, sizes, start_frame, eps, *, rounds):
    q, k = norm_and_rotate(qkv, weights, cos, sin, heads, sizes, start_frame, eps, rounds)
    return q, k, qkv.chunk(3, -1)[2].unflatten(-1, (heads, -1))


def lay_out(q_weight, k_weight, freqs):
    """Round the table, and put the weights side by side."""
    return {**single_precision(freqs), "weights": torch.stack([q_weight, k_weight])}


# -- what is valid ----------------------------------------------------------------------------------------------------


def fits_tables(qkv, freqs, sizes, start_frame, **_):
    return fits_single(qkv, qkv, freqs, sizes, start_frame)


def fits_kernel(qkv, freqs, sizes, start_frame, **_):
    if fits_tables(qkv, freqs, sizes, start_frame) is not True:
        return fits_tables(qkv, freqs, sizes, start_frame)
    if qkv.stride(-1) != 1:
        return "the values of a row do not lie side by side"
    return True


def by_length(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """Divide rows by their lengths, and rotate by angles computed anew."""
    *parts, v = qkv.chunk(3, -1)
    results = []
    for x, weight in zip(parts, (q_weight, k_weight), strict=True):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        unit = x / torch.hypot(length, torch.full_like(length, (eps * x.shape[-1]) ** 0.5))
        normed = unit.mul_(x.shape[-1] ** 0.5 * weight).unflatten(-1, (heads, -1))
        results.append(from_places(normed, sizes, start_frame))
    return *results, v.unflatten(-1, (heads, -1))


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def per_head_norm(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """Norm each head by itself, as most other models do."""

    def norm(x, weight):
        split = x.unflatten(-1, (heads, -1)).double()
        normed = split * torch.rsqrt(split.pow(2).mean(-1, keepdim=True) + eps)
        return (normed * weight.view(heads, -1)).type_as(x)

    q, k, v = qkv.chunk(3, -1)
    turned = (published(norm(*part), freqs, sizes, start_frame) for part in ((q, q_weight), (k, k_weight)))
    return *turned, v.unflatten(-1, (heads, -1))


def joint_norm(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """Norm queries and keys as one row of twice the width."""
    width = qkv.shape[-1] // 3
    normed = _normed(qkv[..., : 2 * width], torch.cat([q_weight, k_weight]), eps)
    q, k, v = torch.cat([normed, qkv[..., 2 * width :]], -1).unflatten(-1, (3, heads, -1)).unbind(-3)
    return published(q, freqs, sizes, start_frame), published(k, freqs, sizes, start_frame), v


def norm_after(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """Rotate first. A rotation leaves the row's length alone, but the weight then meets other values."""
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(-3)
    q, k = published(q, freqs, sizes, start_frame), published(k, freqs, sizes, start_frame)
    q, k = _normed(q.flatten(2), q_weight, eps), _normed(k.flatten(2), k_weight, eps)
    return q.unflatten(-1, (heads, -1)), k.unflatten(-1, (heads, -1)), v


def swapped_weights(qkv, q_weight, k_weight, **rest):
    return plain(qkv, k_weight, q_weight, **rest)


def values_too(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """Rotate all three parts."""
    q, k, v = plain(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps)
    return q, k, published(v, freqs, sizes, start_frame)


def rotate_half(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    """Pair value i of a head with value i + dim / 2."""
    q, k, v = qkv.chunk(3, -1)
    q, k = (_normed(*part, eps).unflatten(-1, (heads, 2, -1)) for part in ((q, q_weight), (k, k_weight)))
    turned = (published(x.transpose(-1, -2).flatten(-2), freqs, sizes, start_frame) for x in (q, k))
    q, k = (x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) for x in turned)
    return q, k, v.unflatten(-1, (heads, -1))


def unrotated(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    q, k, v = qkv.chunk(3, -1)
    parts = (_normed(q, q_weight, eps), _normed(k, k_weight, eps), v)
    return tuple(x.unflatten(-1, (heads, -1)) for x in parts)


def without_eps(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, eps):
    return plain(qkv, q_weight, k_weight, freqs, heads, sizes, start_frame, 0.0)


def several_heads(qkv, heads, eps, **_):
    return heads > 1 and ordinary(qkv=qkv)


def ordinary(qkv, **_):
    return qkv.numel() >= 256 and bool(qkv.abs().amax() > 0.1)


def some_turned(sizes, start_frame, **_):
    return max(max(start_frame + frames, *size) - 1 for frames, *size in sizes) > 0


def small_or_zero(qkv, eps, **_):
    return bool(qkv.abs().amax() < 100 * eps**0.5) or bool((qkv == 0).all(-1).any())


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(size=(1, 2, 2), heads=4, dim=32)

EDGE = [
    dict(TINY, dtype="float64"),
    dict(TINY, start_frame=5, tail=1, eps=0.01, dtype="float32"),
    dict(TINY, start_frame=5, tail=1, dtype="bfloat16"),
    dict(TINY, layout="sliced", dtype="float32"),
    dict(TINY, layout="every_other", dtype="float32"),
    dict(TINY, positions=8, start_frame=7, dtype="float32"),
    dict(TINY, data="tiny", dtype="float32"),
    dict(TINY, data="zero_rows", dtype="float32"),
    dict(TINY, size=(1, 1, 2), batch=2, tail=1, dtype="float32"),
    dict(size=(1, 1, 2, 1, 2, 1, 1, 2, 1), heads=4, dim=16, dtype="float32"),  # three videos, two sizes
    dict(size=(1, 1, 2), heads=1, dim=64, start_frame=1, dtype="float32"),
    dict(size=(1, 1, 3), heads=3, dim=12, start_frame=1, dtype="float32"),
    dict(size=(1, 1, 3), heads=7, dim=20, start_frame=2, dtype="float16"),
    dict(size=(1, 1, 1), heads=12, dim=128, start_frame=17, dtype="bfloat16"),
    dict(size=(1, 1, 2), heads=40, dim=128, start_frame=900, dtype="bfloat16"),
]

SMOKE = [
    dict(size=(2, 1, 2), heads=4, dim=32, start_frame=1, dtype="float32"),
    dict(size=(1, 2, 2), heads=4, dim=32, start_frame=3, dtype="bfloat16"),
]

WAN_1B, WAN_14B = dict(heads=12, dim=128), dict(heads=40, dim=128)

REAL = [
    dict(WAN_1B, size=(3, 22, 40), start_frame=12, dtype="bfloat16"),  # Matrix-Game 2, a block of 352 x 640
    dict(WAN_1B, size=(3, 30, 52), start_frame=18, dtype="bfloat16"),  # Self-Forcing, a block of 480 x 832
    dict(WAN_1B, size=(21, 30, 52), dtype="bfloat16"),
    dict(WAN_1B, size=(3, 30, 52), dtype="float32"),
    dict(WAN_14B, size=(21, 30, 52), tail=8, dtype="bfloat16"),
]

HEADLINE = [
    *(dict(WAN_1B, size=size, dtype="bfloat16") for size in ((1, 16, 16), (4, 32, 32))),  # 256 and 4096 tokens
    *(dict(WAN_14B, size=size, dtype="bfloat16") for size in ((4, 32, 32), (16, 32, 32), (21, 45, 80))),
]

qk_norm_rope = Operator(
    "qk_norm_rope",
    baseline=plain,
    variants={
        "builtin_complex64": Variant(builtin_complex64, prepare=lay_out, valid=fits_tables),
        "three_kernels": Variant(three_kernels, prepare=lay_out, valid=fits_kernel, needs="triton"),
        "triton": Variant(fused, prepare=lay_out, valid=fits_kernel, needs="triton"),
        "triton_float": Variant(fused_float, prepare=lay_out, valid=fits_kernel, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "per_head_norm": Variant(per_head_norm, valid=several_heads),
        "joint_norm": Variant(joint_norm, valid=ordinary),
        "norm_after": Variant(norm_after, valid=some_turned),
        "swapped_weights": Variant(swapped_weights, valid=ordinary),
        "values_too": Variant(values_too, valid=some_turned),
        "rotate_half": Variant(rotate_half, valid=some_turned),
        "unrotated": Variant(unrotated, valid=some_turned),
        "without_eps": Variant(without_eps, valid=small_or_zero),
    },
    oracle=by_length,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["q_weight", "k_weight", "freqs"],
    source="Wan 2.1 WanSelfAttention; TensorRT-LLM #13052",
    claims=[
        Claim(
            latency_ms=latency_ms,
            device="NVIDIA B200",
            source="TensorRT-LLM #13052",
            cases=[dict(heads=heads, dim=128, size=size, dtype="bfloat16")],
            shape="as many tokens; in place, on the packed values",
            unmet=unmet,
        )
        for heads, size, latency_ms, unmet in (
            (
                12,
                (1, 16, 16),
                (0.1824, 0.0082),
                "the device takes 6.0 us, and 8.2 were published; the other 23 us of a call are the host's",
            ),
            (12, (4, 32, 32), (0.3617, 0.0737), ""),
            (40, (4, 32, 32), (1.118, 0.1254), ""),
            (40, (16, 32, 32), (4.1947, 0.541), ""),
        )
    ],
)
