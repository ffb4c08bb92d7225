"""Causal 3-D convolution of video autoencoders: time is padded at the front only, from a cache of earlier frames or zeros.

The plain form pads all three dimensions by copying. The variants differ in what they copy, in which layout the
convolution runs, and in whether there is a padded copy at all.
"""

import torch
import torch.nn.functional as F
from kernels_conv3d import gather_frames, implicit_gemm, pack_weight

from pairbench import REASSOCIATED, Cost, Operator, Variant


def inputs(
    make, c, t, h, w, out, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1), cache=0, bias=True,
    layout="contiguous", dtype="bfloat16",
):  # fmt: skip
    return {
        "x": _video(make, (b, c, t, h, w), layout, dtype),
        "cache": _video(make, (b, c, cache, h, w), layout, dtype) if cache else None,
        "weight": make.normal(out, c, *kernel, dtype=dtype, scale=(c * kernel[0] * kernel[1] * kernel[2]) ** -0.5),
        "bias": make.normal(out, dtype=dtype) if bias else None,
        "stride": stride,
        "padding": padding,
    }


def _video(make, shape, layout, dtype):
    b, c, t, h, w = shape
    if layout == "frames_first":  # a decoded video, [b, t, c, h, w] in memory
        return make.normal(b, t, c, h, w, dtype=dtype).transpose(1, 2)
    video = make.normal(*shape, dtype=dtype)
    return video.to(memory_format=torch.channels_last_3d) if layout == "channels_last_3d" else video


def cost(
    c, t, h, w, out, b=1, kernel=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1), cache=0, bias=True,
    layout="contiguous", dtype="bfloat16",
):  # fmt: skip
    cached = min(cache, 2 * padding[0])
    steps, taps_t = _taps(t, kernel[0], stride[0], before=2 * padding[0], known=cached)
    rows, taps_h = _taps(h, kernel[1], stride[1], before=padding[1], after=padding[1])
    cols, taps_w = _taps(w, kernel[2], stride[2], before=padding[2], after=padding[2])
    elements = b * c * (t + cached) * h * w + out * c * kernel[0] * kernel[1] * kernel[2] + out * bias
    elements += b * out * steps * rows * cols
    return Cost(flops=2 * b * c * out * taps_t * taps_h * taps_w, bytes=elements * getattr(torch, dtype).itemsize)


def _taps(size, kernel, stride, before=0, after=0, known=0):
    """Return how many outputs a dimension has, and how many taps of them all meet data instead of padding zeros."""
    outputs = (size + before + after - kernel) // stride + 1
    first = range(-before, -before + outputs * stride, stride)
    return outputs, sum(-known <= at + tap < size for at in first for tap in range(kernel))


# -- the plain form, and ways to pad ----------------------------------------------------------------------------------


def pad_all(x, cache, weight, bias, stride, padding):
    """Pad every dimension with F.pad, so that the convolution itself pads nothing."""
    front = 2 * padding[0]
    if cache is not None and front > 0:
        x = torch.cat([cache, x], dim=2)
        front -= cache.shape[2]  # negative for a cache longer than the padding: F.pad then crops
    x = F.pad(x, (padding[2], padding[2], padding[1], padding[1], front, 0))
    return F.conv3d(x, weight, bias, stride)


def pad_time(x, cache, weight, bias, stride, padding):
    """Pad time with one concatenation; the convolution pads height and width."""
    return F.conv3d(_concatenated(x, cache, 2 * padding[0]), weight, bias, stride, (0, *padding[1:]))


def preallocated(x, cache, weight, bias, stride, padding):
    """Copy the frames into a buffer allocated once at its final size."""
    return F.conv3d(_filled(x, cache, 2 * padding[0], _layout(x)), weight, bias, stride, (0, *padding[1:]))


def fused_pad(x, cache, weight, bias, stride, padding):
    """Put zeros, cache and x together in one kernel."""
    front = 2 * padding[0]
    if front > 0:
        x = gather_frames(x, cache, front, _layout(x))
    return F.conv3d(x, weight, bias, stride, (0, *padding[1:]))


def full_pad(x, cache, weight, bias, stride, padding):
    """Let the convolution pad both ends of time and drop what the far end adds: no copy, more arithmetic.

    What it hands on is a view into the longer result.
    """
    front = 2 * padding[0]
    y = F.conv3d(x, weight, bias, stride, (front, *padding[1:]))
    return y[:, :, : y.shape[2] - front]


def full_pad_valid(x, cache, stride, padding, **_):
    if cache is not None and padding[0] > 0:
        return "the cached frames would have to be padding"
    if padding[0] > 0 and stride[0] > 1:
        return "with a temporal stride the outputs to drop are not the last ones"
    return True


def _layout(x):
    if x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.contiguous_format
    return torch.channels_last_3d


def _newest(cache, front):
    """Return the cached frames that are within the padding: a cache may hold more."""
    return None if cache is None or front == 0 else cache[:, :, max(0, cache.shape[2] - front) :]


def _concatenated(x, cache, front):
    cache = _newest(cache, front)
    missing = front - (0 if cache is None else cache.shape[2])
    parts = [] if missing == 0 else [_new(x, missing, _layout(x)).zero_()]
    parts += [x] if cache is None else [cache, x]
    return x if len(parts) == 1 else torch.cat(parts, dim=2)


def _filled(x, cache, front, memory_format):
    if front == 0:
        return x.contiguous(memory_format=memory_format)
    cache = _newest(cache, front)
    cached = 0 if cache is None else cache.shape[2]
    frames = _new(x, front + x.shape[2], memory_format)
    frames[:, :, : front - cached].zero_()
    if cached:
        frames[:, :, front - cached : front].copy_(cache)
    frames[:, :, front:].copy_(x)
    return frames


def _new(x, frames, memory_format):
    shape = (*x.shape[:2], frames, *x.shape[3:])
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format)


# -- another layout, other convolutions -------------------------------------------------------------------------------


def channels_last(x, cache, weight, bias, stride, padding):
    """Convolve in channels-last layout, with weights laid out so beforehand; hand on the layout that came in."""
    frames = _filled(x, cache, 2 * padding[0], torch.channels_last_3d)
    return F.conv3d(frames, weight, bias, stride, (0, *padding[1:])).contiguous(memory_format=_layout(x))


def channels_last_weight(weight, bias):
    return {"weight": weight.contiguous(memory_format=torch.channels_last_3d)}


def sum_of_2d(x, cache, weight, bias, stride, padding, taps):
    """Add up one channels-last 2-D convolution for each temporal tap, of all frames at once."""
    b, _, _, h, w = x.shape
    frames = _filled(x, cache, 2 * padding[0], torch.channels_last_3d)
    steps = (frames.shape[2] - len(taps)) // stride[0] + 1
    y = None
    for i, tap in enumerate(taps):
        # A view for one video; for several, whose frames do not follow each other, reshape copies.
        at_tap = (
            frames[:, :, i : i + (steps - 1) * stride[0] + 1 : stride[0]].transpose(1, 2).reshape(b * steps, -1, h, w)
        )
        part = F.conv2d(at_tap, tap, bias if i == 0 else None, stride[1:], padding[1:])
        y = part if y is None else y.add_(part)
    return _as_video(y, b).contiguous(memory_format=_layout(x))


def weight_taps(weight, bias):
    """Return the weight as [kt, out, c, kh, kw], each tap in channels-last layout."""
    return {"taps": weight.permute(2, 0, 3, 4, 1).contiguous().permute(0, 1, 4, 2, 3)}


def time_in_channels(x, cache, weight, bias, stride, padding, taps_in_channels):
    """Stack the frames that one output needs along channels, for one channels-last 2-D convolution."""
    b, c, _, h, w = x.shape
    kt = weight.shape[2]
    frames = _filled(x, cache, 2 * padding[0], torch.channels_last_3d)
    stacked = frames.permute(0, 2, 3, 4, 1).unfold(1, kt, stride[0])  # [b, t, h, w, c, kt], overlapping views
    stacked = stacked.transpose(4, 5).reshape(-1, h, w, kt * c).permute(0, 3, 1, 2)
    y = F.conv2d(stacked, taps_in_channels, bias, stride[1:], padding[1:])
    return _as_video(y, b).contiguous(memory_format=_layout(x))


def weight_taps_in_channels(weight, bias):
    taps = weight.transpose(1, 2).flatten(1, 2)
    return {"taps_in_channels": taps.contiguous(memory_format=torch.channels_last)}


def conv2d(x, cache, weight, bias, stride, padding):
    """Convolve a lone first frame in 2-D: all other temporal taps meet zeros."""
    return F.conv2d(x[:, :, 0], weight[:, :, -1], bias, stride[1:], padding[1:]).unsqueeze(2)


def conv2d_valid(x, cache, weight, padding, **_):
    if x.shape[2] != 1 or weight.shape[2] != 2 * padding[0] + 1:
        return "there is more than one frame, or the last temporal tap does not meet it"
    if cache is not None and padding[0] > 0:
        return "earlier frames reach the output"
    return True


def _as_video(y, b):
    """Return [b * t, c, h, w] as [b, c, t, h, w] without copying."""
    return y.unflatten(0, (b, -1)).transpose(1, 2)


def implicit(x, cache, weight, bias, stride, padding, packed):
    """Convolve as an implicit GEMM in Triton."""
    return implicit_gemm(x, cache, packed, bias, weight.shape[2:], weight.shape[0], stride, padding, _layout(x))


def queued(x, cache, weight, bias, stride, padding, packed):
    """Convolve as the same implicit GEMM in Gluon."""
    import kernels_conv3d_gluon

    kernel, cout = weight.shape[2:], weight.shape[0]
    return implicit_gemm(
        x, cache, packed, bias, kernel, cout, stride, padding, _layout(x), convolve=kernels_conv3d_gluon.convolve
    )


def queued_valid(x, stride, **_):
    if x.dtype == torch.float32:
        return "sums that the tensor core rounds towards zero are no float32 sums"
    return implicit_valid(x, stride)


def implicit_valid(x, stride, **_):
    if stride[1:] != (1, 1):
        return "it has no spatial stride"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return "tensor cores have no exact float64 products here"
    return True


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def uncropped(x, cache, weight, bias, stride, padding):
    """Concatenate a cache longer than the padding and forget to crop it: there are more frames."""
    return F.conv3d(torch.cat([cache, x], dim=2), weight, bias, stride, (0, *padding[1:]))


def cache_ignored(x, cache, weight, bias, stride, padding):
    return pad_all(x, None, weight, bias, stride, padding)


def cache_behind(x, cache, weight, bias, stride, padding):
    """Append the cache to x instead of putting it before."""
    front = 2 * padding[0]
    x = F.pad(torch.cat([x, cache], dim=2), (*padding[2:] * 2, *padding[1:2] * 2, front - cache.shape[2], 0))
    return F.conv3d(x, weight, bias, stride)


def symmetric_time(x, cache, weight, bias, stride, padding):
    """Look as far ahead as back, as an ordinary convolution does."""
    return F.conv3d(x, weight, bias, stride, padding)


def time_reversed(x, cache, weight, bias, stride, padding):
    return pad_all(x, cache, weight.flip(2), bias, stride, padding)


def frame_late(x, cache, weight, bias, stride, padding):
    late = torch.cat([torch.zeros_like(x[:, :, :1]), x[:, :, :-1]], dim=2)
    return pad_all(late, cache, weight, bias, stride, padding)


def replicated_border(x, cache, weight, bias, stride, padding):
    """Repeat the border pixels where zeros belong."""
    frames = _filled(x, cache, 2 * padding[0], torch.contiguous_format)
    return F.conv3d(F.pad(frames, (*padding[2:] * 2, *padding[1:2] * 2, 0, 0), mode="replicate"), weight, bias, stride)


def bias_each_tap(x, cache, weight, bias, stride, padding):
    """Add the bias once for each temporal tap, as a sum of 2-D convolutions easily does."""
    return pad_all(x, cache, weight, bias * weight.shape[2], stride, padding)


def half_precision(x, cache, weight, bias, stride, padding):
    half = (None if value is None else value.bfloat16() for value in (x, cache, weight, bias))
    return pad_all(*half, stride, padding).to(x.dtype)


def _has_cache(cache, padding, **_):
    return cache is not None and padding[0] > 0


def _longer_cache(cache, padding, **_):
    return cache is not None and cache.shape[2] > 2 * padding[0] > 0


def _padded_time(cache, padding, **_):
    return cache is None and padding[0] > 0


def _several_taps(weight, **_):
    return weight.shape[2] > 1


# -- cases ------------------------------------------------------------------------------------------------------------

# Half precision where frames and borders are the point: a float32 case takes Triton's interpreter six times as long.
_TINY = {"c": 4, "h": 4, "w": 5, "out": 5, "dtype": "float16"}
_EXACT = _TINY | {"dtype": "float32"}

EDGE = [
    dict(_EXACT, t=1),
    dict(_EXACT, t=1, cache=2),
    dict(_TINY, t=3, h=5, w=18),
    dict(_TINY, t=2, cache=1),  # the second chunk of a stream: padding is two frames, one is there
    dict(_TINY, t=2, cache=3),  # longer than the padding: its oldest frame must not count
    dict(_TINY, t=3, kernel=(1, 1, 1), padding=(0, 0, 0)),
    dict(_TINY, t=2, kernel=(1, 1, 1), padding=(0, 0, 0), cache=2),  # no padding: the cache must be ignored
    dict(_TINY, t=2, kernel=(3, 1, 1), padding=(1, 0, 0), cache=2),
    dict(_TINY, t=5, kernel=(3, 1, 1), padding=(0, 0, 0), stride=(2, 1, 1)),
    dict(_TINY, t=4, stride=(2, 1, 1), cache=2),
    dict(_TINY, t=2, stride=(1, 2, 2)),
    dict(_TINY, t=2, padding=(1, 0, 2)),
    dict(_TINY, t=4, kernel=(5, 3, 1), padding=(2, 1, 0), cache=1),
    dict(_TINY, t=2, b=2, cache=2),
    dict(_TINY, t=2, bias=False),
    dict(_TINY, t=3, layout="frames_first"),
    dict(_TINY, t=1, layout="channels_last_3d"),
    dict(_TINY, t=2, b=2, cache=2, layout="channels_last_3d"),
    dict(_TINY, t=2, cache=2, c=8, out=96, dtype="bfloat16", layout="channels_last_3d"),
    dict(_TINY, t=2, c=3, out=20),
    dict(_EXACT, t=2, c=1, out=1),
]

SMOKE = [
    {"c": 4, "t": 3, "h": 4, "w": 8, "out": 8, "dtype": "float32"},
    {"c": 16, "t": 1, "h": 4, "w": 16, "out": 16, "cache": 2, "dtype": "float32"},
    {"c": 40, "t": 2, "h": 5, "w": 8, "out": 24, "cache": 2, "dtype": "bfloat16", "layout": "channels_last_3d"},
]

# Steady state of the Wan 2.1 decoder at 480 x 832: what each stage convolves for one latent frame, two frames cached.
REAL = [
    {"c": 384, "t": 1, "h": 60, "w": 104, "out": 384, "cache": 2, "dtype": "bfloat16"},
    {"c": 384, "t": 2, "h": 120, "w": 208, "out": 384, "cache": 2, "dtype": "bfloat16"},
    {"c": 192, "t": 4, "h": 240, "w": 416, "out": 192, "cache": 2, "dtype": "bfloat16"},
    # Between the stages: twice the frames on the way up, half of them on the way down.
    {
        "c": 384,
        "t": 1,
        "h": 60,
        "w": 104,
        "out": 768,
        "kernel": (3, 1, 1),
        "padding": (1, 0, 0),
        "cache": 2,
        "dtype": "bfloat16",
    },
    {
        "c": 192,
        "t": 5,
        "h": 120,
        "w": 208,
        "out": 192,
        "kernel": (3, 1, 1),
        "padding": (0, 0, 0),
        "stride": (2, 1, 1),
        "dtype": "bfloat16",
    },
    # The first chunk of every video: one frame and no cache.
    {"c": 384, "t": 1, "h": 60, "w": 104, "out": 384, "dtype": "bfloat16"},
    {"c": 96, "t": 1, "h": 480, "w": 832, "out": 96, "dtype": "bfloat16"},
    # The last convolution, to RGB.
    {"c": 96, "t": 4, "h": 480, "w": 832, "out": 3, "cache": 2, "dtype": "bfloat16"},
    # Does it help as the resolution grows?
    *(
        {"c": 96, "t": 4, "h": h, "w": w, "out": 96, "cache": 2, "dtype": "bfloat16"}
        for h, w in ((240, 416), (720, 1280))
    ),
    {"b": 2, "c": 32, "t": 16, "h": 64, "w": 64, "out": 64, "dtype": "float32"},
]

HEADLINE = [
    {"b": 4, "c": 64, "t": 32, "h": 128, "w": 128, "out": 64, "dtype": "float32"},
    {"b": 4, "c": 64, "t": 32, "h": 128, "w": 128, "out": 64, "dtype": "bfloat16"},
    {"b": 4, "c": 64, "t": 32, "h": 128, "w": 128, "out": 64, "dtype": "bfloat16", "layout": "channels_last_3d"},
    {"c": 96, "t": 4, "h": 480, "w": 832, "out": 96, "cache": 2, "dtype": "bfloat16"},
    {"c": 96, "t": 4, "h": 480, "w": 832, "out": 96, "cache": 2, "dtype": "bfloat16", "layout": "channels_last_3d"},
]

causal_conv3d = Operator(
    "causal_conv3d",
    baseline=pad_all,
    variants={
        "pad_time": pad_time,
        "preallocated": preallocated,
        "fused_pad": Variant(fused_pad, needs="triton"),
        "full_pad": Variant(full_pad, valid=full_pad_valid),
        "channels_last": Variant(channels_last, prepare=channels_last_weight),
        "sum_of_2d": Variant(sum_of_2d, prepare=weight_taps),
        "time_in_channels": Variant(time_in_channels, prepare=weight_taps_in_channels),
        "conv2d": Variant(conv2d, valid=conv2d_valid),
        "triton": Variant(
            implicit, prepare=lambda weight, bias: {"packed": pack_weight(weight)}, valid=implicit_valid, needs="triton"
        ),
        "gluon": Variant(
            queued, prepare=lambda weight, bias: {"packed": pack_weight(weight)}, valid=queued_valid, needs="sm_90"
        ),
    },
    impostors={
        "uncropped": Variant(uncropped, valid=_longer_cache),
        "cache_ignored": Variant(cache_ignored, valid=_has_cache),
        "cache_behind": Variant(cache_behind, valid=_has_cache),
        "symmetric_time": Variant(symmetric_time, valid=_padded_time),
        "time_reversed": Variant(time_reversed, valid=_several_taps),
        "frame_late": frame_late,
        "replicated_border": Variant(replicated_border, valid=lambda padding, **_: max(padding[1:]) > 0),
        "bias_each_tap": Variant(
            bias_each_tap, valid=lambda weight, bias, **_: bias is not None and weight.shape[2] > 1
        ),
        "half_precision": Variant(half_precision, valid=lambda x, **_: x.dtype == torch.float32),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    constants=["weight", "bias"],
    tolerance=REASSOCIATED,
    cost=cost,
    source="diffusers #12800",
)
