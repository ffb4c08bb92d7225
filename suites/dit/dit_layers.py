"""A layer of the causal Wan transformer as published, and the pieces that it is made of.

Every piece that can be made faster is a module of its own, parameterless ones included, so that a faster layer has the same names for
the same pieces. The casts are those of diffusers' port: modulation, norms and gates in float32, rotations in complex128, activations
in the weights' dtype.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-6
POSITIONS = 1024


class Widths(NamedTuple):
    """What the network's layers are made from."""

    dim: int
    heads: int
    ffn: int
    layers: int
    context: int = 1280
    """Channels of what is attended to: 1280 of CLIP's image tokens, 4096 of text."""
    condition: int = 20
    """Channels of the first frame's latents and mask, put beside the noisy ones."""
    latent: int = 16
    frequencies: int = 256


def wide(x):
    """Cast to float32; float64 stays what it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class KeyValues(NamedTuple):
    """One layer's cache: keys and values [b, tokens, heads, d] by slot, and what has been written, in tokens, on the device."""

    k: torch.Tensor
    v: torch.Tensor
    global_end: torch.Tensor
    local_end: torch.Tensor


class RMSNorm(nn.Module):
    """Over all heads at once; the weight is multiplied behind the cast back."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x):
        """Normalise [b, s, dim]."""
        y = wide(x)
        return (y * torch.rsqrt(y.pow(2).mean(dim=-1, keepdim=True) + EPS)).type_as(x) * self.weight


class LayerNorm(nn.LayerNorm):
    """With weight and bias, in float32."""

    def forward(self, x):
        """Normalise [b, s, dim]."""
        return F.layer_norm(wide(x), self.normalized_shape, wide(self.weight), wide(self.bias), self.eps).type_as(x)


class ModulatedNorm(nn.LayerNorm):
    """Without weight and bias; what a time step makes of every frame takes their place."""

    def forward(self, x, shift, scale):
        """Normalise [b, s, dim], then scale and shift by [b, frames, 1, dim]."""
        frames = shift.shape[1]
        y = super().forward(wide(x)).unflatten(1, (frames, -1))
        return (y * (1 + scale) + shift).flatten(1, 2).type_as(x)


class Gate(nn.Module):
    """The residual sum whose branch is gated frame by frame."""

    def forward(self, x, y, gate):
        """Return x + y * gate; gate is [b, frames, 1, dim]."""
        gated = (wide(y).unflatten(1, (gate.shape[1], -1)) * gate).flatten(1, 2)
        return (wide(x) + gated).type_as(x)


class Rope(nn.Module):
    """Rotary positions of frame, row and column, on interleaved pairs of channels."""

    @staticmethod
    def positions(freqs, grid, first, x):
        """Return what all layers of a pass are given of its positions: nothing but the table, as published."""
        return freqs

    def forward(self, x, grid, freqs, first):
        """Rotate [b, s, heads, d] by the positions of a grid (frames, rows, columns) whose first frame is `first`."""
        f, h, w = grid
        pairs = x.shape[3] // 2
        by_frame, by_row, by_column = freqs.split([pairs - 2 * (pairs // 3), pairs // 3, pairs // 3], dim=1)
        rotated = []
        for sample in x:
            angles = torch.cat(
                [
                    by_frame[first : first + f].view(f, 1, 1, -1).expand(f, h, w, -1),
                    by_row[:h].view(1, h, 1, -1).expand(f, h, w, -1),
                    by_column[:w].view(1, 1, w, -1).expand(f, h, w, -1),
                ],
                dim=-1,
            ).reshape(f * h * w, 1, -1)
            pairs_of = torch.view_as_complex(sample[: f * h * w].to(torch.float64).unflatten(-1, (-1, 2)))
            turned = torch.view_as_real(pairs_of * angles).flatten(2)
            rotated.append(torch.cat([turned, sample[f * h * w :]]))
        return torch.stack(rotated).type_as(x)


class Cache(nn.Module):
    """The rolling window: when a new block does not fit, everything moves to the front and the oldest frames are lost."""

    def forward(self, held, k, v, start):
        """Write a block whose first token is `start`, and return the keys and values to attend to.

        Where it goes is read from the device, again and again: each reading waits for all that was launched.
        """
        new, size = k.shape[1], held.k.shape[1]
        end = start + new
        if end > held.global_end.item() and new + held.local_end.item() > size:
            evicted = new + held.local_end.item() - size
            kept = held.local_end.item() - evicted
            for buffer in (held.k, held.v):
                buffer[:, :kept] = buffer[:, evicted : evicted + kept].clone()
            local_end = held.local_end.item() + end - held.global_end.item() - evicted
        else:
            local_end = held.local_end.item() + end - held.global_end.item()
        held.k[:, local_end - new : local_end] = k
        held.v[:, local_end - new : local_end] = v
        held.global_end.fill_(end)
        held.local_end.fill_(local_end)
        return held.k[:, :local_end], held.v[:, :local_end]


class Attention(nn.Module):
    """Every token of a block sees the whole window, its own block included."""

    def forward(self, q, k, v):
        """Attend with [b, s, heads, d]."""
        return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


class FeedForward(nn.Sequential):
    """For each token alone: up, GELU by its tanh formula, down."""

    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, dim))


class SelfAttention(nn.Module):
    """Attention to the window of frames that the cache holds."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.norm_q, self.norm_k = RMSNorm(dim), RMSNorm(dim)
        self.rope, self.cache, self.attention = Rope(), Cache(), Attention()

    def forward(self, x, grid, positions, held, start):
        """Attend from [b, s, dim], tokens `start` and on, and put their keys and values into the cache."""
        q, k, v = self.rotated(x, grid, positions, start // (grid[1] * grid[2]))
        k, v = self.cache(held, k, v, start)
        return self.o(self.attention(q, k, v).flatten(2))

    def rotated(self, x, grid, positions, first):
        """Return queries, keys and values [b, s, heads, d]; queries and keys are normalised and know where they are."""
        q = self.norm_q(self.q(x)).unflatten(2, (self.heads, -1))
        k = self.norm_k(self.k(x)).unflatten(2, (self.heads, -1))
        v = self.v(x).unflatten(2, (self.heads, -1))
        return self.rope(q, grid, positions, first), self.rope(k, grid, positions, first), v


class CrossAttention(nn.Module):
    """Attention to an image's or a prompt's tokens, whose keys and values are made once a prompt."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.norm_q, self.norm_k = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention()

    def forward(self, x, context, prompt):
        """Attend from [b, s, dim] to [b, tokens, dim]; `prompt` holds its keys and values, and is empty at first."""
        q = self.norm_q(self.q(x)).unflatten(2, (self.heads, -1))
        if not prompt:
            prompt["k"], prompt["v"] = self.keys(context)
        return self.o(self.attention(q, prompt["k"], prompt["v"]).flatten(2))

    def keys(self, context):
        """Return keys and values [b, tokens, heads, d]."""
        heads = (self.heads, -1)
        return self.norm_k(self.k(context)).unflatten(2, heads), self.v(context).unflatten(2, heads)


class Block(nn.Module):
    """One layer: attention to the frames, attention to the prompt, and a network for each token."""

    def __init__(self, widths):
        super().__init__()
        dim = widths.dim
        self.modulation = nn.Parameter(torch.empty(1, 6, dim))
        self.norm1 = ModulatedNorm(dim, EPS, elementwise_affine=False)
        self.self_attn = SelfAttention(dim, widths.heads)
        self.gate1 = Gate()
        self.norm3 = LayerNorm(dim, EPS)
        self.cross_attn = CrossAttention(dim, widths.heads)
        self.norm2 = ModulatedNorm(dim, EPS, elementwise_affine=False)
        self.ffn = FeedForward(dim, widths.ffn)
        self.gate2 = Gate()

    def open(self, k, v, written):
        """Return the cache, of which so many tokens have been written; the oldest may be lost already."""
        ends = (torch.full((), end, device=k.device) for end in (written, min(written, k.shape[1])))
        return KeyValues(k, v, *ends)

    def modulations(self, e):
        """Return shift, scale and gate of the attention and of the ffn, each [b, frames, 1, dim]."""
        return (wide(self.modulation).unsqueeze(1) + wide(e)).chunk(6, dim=2)

    def forward(self, x, e, grid, positions, context, held, prompt, start):
        """Pass [b, s, dim] on; e is [b, frames, 6, dim]."""
        e = self.modulations(e)
        x = self.gate1(x, self.self_attn(self.norm1(x, e[0], e[1]), grid, positions, held, start), e[2])
        x = x + self.cross_attn(self.norm3(x), context, prompt)
        return self.gate2(x, self.ffn(self.norm2(x, e[3], e[4])), e[5])
