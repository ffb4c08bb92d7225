"""The forms of `causal_conv3d` that PyTorch's own operators make up, beside the declaration in `causal.py`.

All take the same inputs, and hand on the layout that came in: contiguous or channels-last.
"""

import torch
import torch.nn.functional as F
from kernels_conv3d import gather_frames

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
    return F.conv3d(filled(x, cache, 2 * padding[0], layout_of(x)), weight, bias, stride, (0, *padding[1:]))


def fused_pad(x, cache, weight, bias, stride, padding):
    """Put zeros, cache and x together in one kernel."""
    front = 2 * padding[0]
    if front > 0:
        x = gather_frames(x, cache, front, layout_of(x))
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


def layout_of(x):
    if x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.contiguous_format
    return torch.channels_last_3d


def _newest(cache, front):
    """Return the cached frames that are within the padding: a cache may hold more."""
    return None if cache is None or front == 0 else cache[:, :, max(0, cache.shape[2] - front) :]


def _concatenated(x, cache, front):
    cache = _newest(cache, front)
    missing = front - (0 if cache is None else cache.shape[2])
    parts = [] if missing == 0 else [_new(x, missing, layout_of(x)).zero_()]
    parts += [x] if cache is None else [cache, x]
    return x if len(parts) == 1 else torch.cat(parts, dim=2)


def filled(x, cache, front, memory_format):
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
    frames = filled(x, cache, 2 * padding[0], torch.channels_last_3d)
    return F.conv3d(frames, weight, bias, stride, (0, *padding[1:])).contiguous(memory_format=layout_of(x))


def channels_last_weight(weight, bias):
    return {"weight": weight.contiguous(memory_format=torch.channels_last_3d)}


def sum_of_2d(x, cache, weight, bias, stride, padding, taps):
    """Add up one channels-last 2-D convolution for each temporal tap, of all frames at once."""
    b, _, _, h, w = x.shape
    frames = filled(x, cache, 2 * padding[0], torch.channels_last_3d)
    steps = (frames.shape[2] - len(taps)) // stride[0] + 1
    y = None
    for i, tap in enumerate(taps):
        # A view for one video; for several, whose frames do not follow each other, reshape copies.
        at_tap = (
            frames[:, :, i : i + (steps - 1) * stride[0] + 1 : stride[0]].transpose(1, 2).reshape(b * steps, -1, h, w)
        )
        part = F.conv2d(at_tap, tap, bias if i == 0 else None, stride[1:], padding[1:])
        y = part if y is None else y.add_(part)
    return _as_video(y, b).contiguous(memory_format=layout_of(x))


def sum_of_2d_valid(x, weight, **_):
    if x.element_size() < 4 and weight.shape[2] > 1:
        return f"it rounds a partial sum for each temporal tap, which is more than {x.dtype} leaves room for"
    return True


def weight_taps(weight, bias):
    """Return the weight as [kt, out, c, kh, kw], each tap in channels-last layout."""
    return {"taps": weight.permute(2, 0, 3, 4, 1).contiguous().permute(0, 1, 4, 2, 3)}


def time_in_channels(x, cache, weight, bias, stride, padding, taps_in_channels):
    """Stack the frames that one output needs along channels, for one channels-last 2-D convolution."""
    b, c, _, h, w = x.shape
    kt = weight.shape[2]
    frames = filled(x, cache, 2 * padding[0], torch.channels_last_3d)
    stacked = frames.permute(0, 2, 3, 4, 1).unfold(1, kt, stride[0])  # [b, t, h, w, c, kt], overlapping views
    stacked = stacked.transpose(4, 5).reshape(-1, h, w, kt * c).permute(0, 3, 1, 2)
    y = F.conv2d(stacked, taps_in_channels, bias, stride[1:], padding[1:])
    return _as_video(y, b).contiguous(memory_format=layout_of(x))


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
