"""One chunk of a streamed causal 3-D convolution: the frames kept from the last chunk go in, those for the next come out.

Video autoencoders decode a latent at a time, and every convolution keeps the last two frames of what it was given. The
plain form copies each chunk twice before it convolves. How little can be copied depends on who writes the frames: a
producer that writes them behind the kept ones, into `frames`, leaves nothing to put together.
"""

import kernels_conv3d_torch as forms
import torch
import torch.nn.functional as F
from kernels_conv3d import gather_frames
from kernels_conv3d_gemm import gluon_valid, implicit, implicit_gluon, implicit_valid, implicit_weight

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant

STRIDE, PADDING = (1, 1, 1), (1, 1, 1)
KEPT = 2


def inputs(make, c, t, h, w, out, b=1, cache=2, layout="contiguous", dtype="bfloat16"):
    def video(frames):
        values = make.normal(b, c, frames, h, w, dtype=dtype)
        return values.to(memory_format=torch.channels_last_3d) if layout == "channels_last_3d" else values

    kept, x = video(cache), video(t)
    missing = torch.zeros_like(kept[:, :, : KEPT - cache])
    frames = torch.cat([missing, kept, x], dim=2)
    return {
        "x": x,
        "cache": kept,
        "frames": frames.contiguous(memory_format=forms.layout_of(x)),
        "weight": make.normal(out, c, 3, 3, 3, dtype=dtype, scale=(27 * c) ** -0.5),
        "bias": make.normal(out, dtype=dtype, scale=0.25),
    }


def cost(c, t, h, w, out, b=1, cache=2, layout="contiguous", dtype="bfloat16"):
    taps = (3 * t - (KEPT - cache)) * (3 * h - 2) * (3 * w - 2)
    elements = b * h * w * (c * (t + cache + KEPT) + out * t) + 27 * c * out + out
    return Cost(flops=2 * b * c * out * taps, bytes=elements * getattr(torch, dtype).itemsize)


# -- the plain form, and the others -----------------------------------------------------------------------------------


def pad_all(x, cache, frames, weight, bias):
    """Keep the last frames, put cache and chunk together, pad every dimension, convolve."""
    return forms.pad_all(x, cache, weight, bias, STRIDE, PADDING), _kept(x, cache)


def _kept(x, cache):
    """Copy the last two frames; a chunk of one frame needs the newest of the old ones too."""
    kept = x[:, :, -KEPT:].clone()
    return kept if kept.shape[2] == KEPT else torch.cat([cache[:, :, -1:], kept], dim=2)


def pad_time(x, cache, frames, weight, bias):
    """Put everything together in one concatenation; the convolution pads height and width."""
    return forms.pad_time(x, cache, weight, bias, STRIDE, PADDING), _kept(x, cache)


def fused_pad(x, cache, frames, weight, bias):
    """Put zeros, cache and chunk together in one kernel."""
    together = gather_frames(x, cache, KEPT, forms.layout_of(x))
    return F.conv3d(together, weight, bias, STRIDE, (0, 1, 1)), together[:, :, -KEPT:].clone()


def in_place(x, cache, frames, weight, bias):
    """Convolve the buffer that the producer has written into: nothing is put together."""
    return F.conv3d(frames, weight, bias, STRIDE, (0, 1, 1)), frames[:, :, -KEPT:].clone()


def triton(x, cache, frames, weight, bias, packed):
    """Convolve as an implicit GEMM that reads cache and chunk where they lie."""
    return implicit(x, cache, weight, bias, STRIDE, PADDING, packed), _kept(x, cache)


def gluon(x, cache, frames, weight, bias, packed):
    """Convolve as the same implicit GEMM in Gluon, for Hopper."""
    return implicit_gluon(x, cache, weight, bias, STRIDE, PADDING, packed), _kept(x, cache)


def triton_valid(x, **_):
    return implicit_valid(x, STRIDE)


def gluon_here(x, **_):
    return gluon_valid(x, STRIDE)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def stale_cache(x, cache, frames, weight, bias):
    """Hand the old frames on: what follows an aborted run."""
    return pad_all(x, cache, frames, weight, bias)[0], frames[:, :, :KEPT].clone()


def short_cache(x, cache, frames, weight, bias):
    """Forget that a chunk of one frame needs the newest old one."""
    return pad_all(x, cache, frames, weight, bias)[0], x[:, :, -KEPT:].clone()


def swapped_cache(x, cache, frames, weight, bias):
    y, kept = pad_all(x, cache, frames, weight, bias)
    return y, kept.flip(2)


def fresh_start(x, cache, frames, weight, bias):
    """Begin every chunk with zeros."""
    return forms.pad_all(x, None, weight, bias, STRIDE, PADDING), _kept(x, cache)


TINY = {"c": 4, "h": 4, "w": 5, "out": 5, "dtype": "float16"}

causal_conv3d_chunk = Operator(
    "causal_conv3d_chunk",
    baseline=pad_all,
    variants={
        "pad_time": pad_time,
        "fused_pad": Variant(fused_pad, needs="triton"),
        "in_place": in_place,
        "triton": Variant(triton, prepare=implicit_weight, valid=triton_valid, needs="triton"),
        "gluon": Variant(gluon, prepare=implicit_weight, valid=gluon_here, needs="sm_90"),
    },
    impostors={
        "stale_cache": stale_cache,
        "short_cache": Variant(short_cache, valid=lambda x, **_: x.shape[2] < KEPT),
        "swapped_cache": swapped_cache,
        "fresh_start": fresh_start,
    },
    inputs=inputs,
    cases={
        "edge": [
            dict(TINY, t=1),
            dict(TINY, t=1, cache=1),  # the second chunk of a stream
            dict(TINY, t=3, cache=1),
            dict(TINY, t=2, b=2, layout="channels_last_3d"),
            dict(TINY, t=2, dtype="float64"),
        ],
        "smoke": [
            dict(c=8, t=1, h=4, w=8, out=8, dtype="float32"),
            dict(c=8, t=2, h=4, w=8, out=8, dtype="bfloat16"),
        ],
        # The Wan VAE decoder at 480 x 832, one latent a chunk.
        "real": [
            dict(c=384, t=1, h=60, w=104, out=384),
            dict(c=384, t=2, h=120, w=208, out=384),
            dict(c=192, t=4, h=240, w=416, out=192),
            dict(c=96, t=4, h=480, w=832, out=96),
            dict(c=96, t=4, h=480, w=832, out=96, layout="channels_last_3d"),
        ],
        "headline": [dict(c=96, t=4, h=720, w=1280, out=96)],
    },
    constants=["weight", "bias"],
    tolerance=REASSOCIATED,
    cost=cost,
    source="diffusers WanCausalConv3d feat_cache; sglang #27263",
    claims=[
        Claim(
            latency_ms=(1.40, 0.47),
            device="NVIDIA H200",
            source="sglang #34125",
            cases=[dict(c=96, t=4, h=480, w=832, out=96, layout="channels_last_3d")],
            shape="C = 160 at 352 x 640, channels-last",
        ),
    ],
)
