"""Videos as decoders leave them, for the suites of what follows: a little out of range, in several layouts, with odd values."""

import torch


def video(make, batch, channels, frames, height, width, dtype, data, layout):
    """Return [batch, channels, frames, height, width] in [-1.1, 1.1], as a decoder leaves it, in one of the layouts it comes in."""
    shape, order = (batch, channels, frames, height, width), (0, 1, 2, 3, 4)
    if layout == "frames_first":
        shape, order = (batch, frames, channels, height, width), (0, 2, 1, 3, 4)
    elif layout == "channels_last_3d":
        shape, order = (batch, frames, height, width, channels), (0, 4, 1, 2, 3)
    elif layout == "cropped":  # a window of a larger picture, so rows do not follow one another
        shape = (*shape[:3], height + 1, width + 2)
    values = _values(make, shape, dtype, data).permute(order)
    return values[..., :height, 1 : width + 1] if layout == "cropped" else values


def _values(make, shape, dtype, data):
    if data == "ties":  # every value half-way between two levels, as nearly as the dtype has it
        return make.integers(*shape, high=255).add(0.5).mul(2 / 255).sub(1).to(getattr(torch, dtype))
    values = make.uniform(*shape, low=-1.1, high=1.1, dtype=dtype)
    if data == "special":
        odd = [float("nan"), float("inf"), -float("inf"), 1.0, -1.0, -0.0, 0.0, 0.9961, 0.998, 1.0001, 3e38, 1e-30]
        values.view(-1)[: 2 * len(odd)] = torch.tensor(odd * 2, device=make.device).to(values.dtype)
    return values
