"""The first step of the guide for Matrix-Game-2: no casts beyond those that precision asks for.

What stays: squares of an RMS norm are summed up in float32, angles are made in float64. Norms and softmax compute in float32 by
themselves, whatever they are given. Each step's kinds of modules (see `dit_rebuild.py`) are those before it and its own.
"""

import dit_layers
import dit_wan
import torch
import torch.nn.functional as F
from torch import nn


class BareNorm(dit_layers.ModulatedNorm):
    """Normalise, scale and shift in the dtype of what comes in."""

    def forward(self, x, shift, scale):
        """Normalise [b, s, dim], then scale and shift by [b, frames, 1, dim]."""
        y = F.layer_norm(x, self.normalized_shape, eps=self.eps).unflatten(1, (shift.shape[1], -1))
        return (y * (1 + scale) + shift).flatten(1, 2)


class BareLayerNorm(dit_layers.LayerNorm):
    """The module of torch, as it is."""

    forward = nn.LayerNorm.forward


class BareGate(dit_layers.Gate):
    """Gate and add in the dtype of what comes in."""

    def forward(self, x, y, gate):
        """Return x + y * gate; gate is [b, frames, 1, dim]."""
        return x + (y.unflatten(1, (gate.shape[1], -1)) * gate).flatten(1, 2)


class SingleRope(dit_layers.Rope):
    """Rotate in complex64, by the same angles rounded."""

    def forward(self, x, grid, freqs, first):
        """Rotate [b, s, heads, d]."""
        angles = grid_angles(freqs, grid, first, x)
        pairs = torch.view_as_complex(dit_layers.wide(x).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * angles).flatten(3).type_as(x)


def grid_angles(freqs, grid, first, x):
    """Return the rotation of each token and pair of channels, [s, 1, d / 2], as precise as x needs it."""
    f, h, w = grid
    n = freqs.shape[1]
    by_frame, by_row, by_column = freqs.split([n - 2 * (n // 3), n // 3, n // 3], dim=1)
    parts = (
        by_frame[first : first + f].view(f, 1, 1, -1).expand(f, h, w, -1),
        by_row[:h].view(1, h, 1, -1).expand(f, h, w, -1),
        by_column[:w].view(1, 1, w, -1).expand(f, h, w, -1),
    )
    precise = freqs.dtype if x.dtype == torch.float64 else torch.complex64
    return torch.cat([part.to(precise) for part in parts], dim=-1).reshape(f * h * w, 1, -1)


class BareBlock(dit_layers.Block):
    """Modulations in the weights' dtype."""

    def modulations(self, e):
        """Return shift, scale and gate of the attention and of the ffn, each [b, frames, 1, dim]."""
        return (self.modulation.unsqueeze(1) + e).chunk(6, dim=2)


class BareHead(dit_wan.Head):
    """Modulations in the weights' dtype."""

    def modulations(self, e):
        """Return shift and scale, each [b, frames, 1, dim]."""
        return (self.modulation.unsqueeze(1) + e).chunk(2, dim=2)


class SingleScheduler(dit_wan.Scheduler):
    """From noise to latents in float32; sigma is still looked up."""

    def clean(self, x, flow, t):
        """Return the latents behind noisy ones."""
        wide = dit_layers.wide
        return (wide(x) - self.sigma(t).to(wide(x).dtype) * wide(flow)).to(x.dtype)


CASTS = {
    dit_layers.ModulatedNorm: BareNorm,
    dit_layers.LayerNorm: BareLayerNorm,
    dit_layers.Gate: BareGate,
    dit_layers.Rope: SingleRope,
    dit_layers.Block: BareBlock,
    dit_wan.Head: BareHead,
    dit_wan.Scheduler: SingleScheduler,
}
