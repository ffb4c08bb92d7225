"""What the suites of adaptive layer norm share: modulations in the three forms that models use, applied step by step.

A block of a diffusion transformer makes shift, scale and gate from the time step, six at once, and cuts them apart:

- one for a whole sample, [batch, 1, features] (Wan 2.1),
- one for each frame, [batch, frames, 1, features], where frames are denoised at different steps (Self-Forcing,
  Matrix-Game-2): token t belongs to frame t // ceil(tokens / frames), so that the last frame may be shorter,
- one for each token, [batch, tokens, features] (Wan 2.2 TI2V).

They stay in float32 where the stream is of 16-bit values.
"""

from __future__ import annotations

import torch
from kernels_adaln import LONGEST_ROW

HALF = (torch.float16, torch.bfloat16)


def make_rows(make, batch, tokens, features, dtype, data, layout):
    """Return activations, [batch, tokens, features].

    `data` is normal; constant, each row one number; or offset, with a mean 30 times the standard deviation.
    `layout` sliced takes them out of wider rows, transposed leaves them as a convolution would, features first.
    """
    width = 2 * features if layout == "sliced" else features
    shape = (batch, width, tokens) if layout == "transposed" else (batch, tokens, width)
    if data == "constant":  # small integers, whose sums are exact: any noise in them would be blown up by 1 / sqrt(eps)
        level = make.integers(batch, tokens, 1, low=-8, high=9).to(getattr(torch, dtype))
        rows = level.expand(batch, tokens, width).contiguous()
        rows = rows.transpose(1, 2).contiguous() if layout == "transposed" else rows
    else:
        rows = make.normal(*shape, dtype=dtype, mean=30.0 if data == "offset" else 0.0)
    return rows.transpose(1, 2) if layout == "transposed" else rows[..., :features]


def make_modulations(make, batch, tokens, features, per, frames, dtype, layout, count):
    """Return `count` modulations of a standard deviation of 1/4, the first ones of six.

    `layout` chunked leaves them as views of all six, which is how they come out of a block's chunk.
    """
    groups = {"sample": 1, "frame": frames, "token": tokens}[per]
    six = make.normal(batch, groups, 6 * features, dtype=dtype, scale=0.25)
    found = six.unsqueeze(2).chunk(6, -1) if per == "frame" else six.chunk(6, -1)
    return [part if layout == "chunked" else part.contiguous() for part in found[:count]]


def modulation_bytes(batch, tokens, features, per, frames, dtype):
    """Return the bytes of one modulation."""
    groups = {"sample": 1, "frame": frames, "token": tokens}[per]
    return batch * groups * features * getattr(torch, dtype).itemsize


def wide(x):
    """Return x in float32, or as it is if it has that many bits already."""
    return x.float() if x.dtype in HALF else x


def over_frames(x, modulation):
    """Return a view of x, [batch, tokens, features], that the modulation broadcasts over."""
    if modulation.dim() == 3:
        return x
    frames = modulation.shape[1]
    return x.unflatten(1, (frames, x.shape[1] // frames))


def over_tokens(modulation, tokens):
    """Return a modulation that broadcasts over tokens: for frames that do not divide them, one for each token."""
    if modulation.dim() == 3 or tokens % modulation.shape[1] == 0:
        return modulation
    length = -(-tokens // modulation.shape[1])
    return modulation.squeeze(2).repeat_interleave(length, 1)[:, :tokens]


def modulate(normed, shift, scale):
    """Return normed * (1 + scale) + shift, in the shape of normed."""
    shift, scale = over_tokens(shift, normed.shape[1]), over_tokens(scale, normed.shape[1])
    return (over_frames(normed, scale) * (1 + scale) + shift).reshape(normed.shape)


def fused_modulation(normed, shift, scale, dtype):
    """Do the same in one kernel, which also rounds: addcmul writes into a result of another dtype."""
    out = torch.empty(normed.shape, dtype=dtype, device=normed.device)
    torch.addcmul(shift, over_frames(normed, scale), 1 + scale, out=over_frames(out, scale))
    return out


def of_each_token(modulation, tokens):
    """Return a modulation as [batch, tokens, features], looked up."""
    rows = modulation.flatten(1, -2)
    length = max(1, -(-tokens // max(1, rows.shape[1])))
    return rows[:, torch.arange(tokens, device=rows.device) // length]


# What is valid


def divides(x, modulation):
    """Return True where frames divide the tokens evenly, or a sentence."""
    tokens = x.shape[1]
    if modulation.dim() == 4 and tokens % modulation.shape[1]:
        return (
            f"{tokens} tokens are no multiple of {modulation.shape[1]} frames; a view cannot show them frame by frame"
        )
    return True


def fits_registers(x, **_):
    """Return True where the Triton kernels can take a row, or a sentence."""
    if x.dtype == torch.float64:
        return "float64; the kernel computes in float32"
    if x.shape[2] > LONGEST_ROW:
        return f"{x.shape[2]} features; the kernel holds rows of at most {LONGEST_ROW} in registers"
    return True


def has_offset(x):
    """Return whether the rows' mean is far from zero, which an impostor may need to be found out."""
    return x.numel() > 0 and abs(float(x.float().mean())) > 8
