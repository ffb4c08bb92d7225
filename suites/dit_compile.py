"""The third step: what is left of chains of small kernels goes through torch.compile, piece by piece.

Not in the mode `reduce-overhead` that the guide names: it captures graphs of its own, which no later step could capture. And not
the ffn: its GELU is in the epilogue of a product, where a compiler does not put it.
"""

import math

import dit_layers
import dit_wan
import torch
import torch.nn.functional as F
from dit_fusion import FUSION, FusedNorm, PackedSelfAttention
from dit_layers import EPS

_compiled = {}


def call_compiled(function, *args):
    """Call a function compiled, once for all layers; a CPU runs it as traced, for its compiler takes seconds a piece."""
    if torch.compiler.is_compiling():
        return function(*args)
    key = function, "inductor" if args[0].is_cuda else "eager"
    if key not in _compiled:
        _compiled[key] = torch.compile(function, dynamic=False, backend=key[1])
    return _compiled[key](*args)


def modulated(x, shift, scale):
    """Normalise, scale and shift; `scale` has its 1."""
    y = F.layer_norm(x, x.shape[-1:], eps=EPS).unflatten(1, (shift.shape[1], -1))
    return (y * scale + shift).flatten(1, 2)


def normed_and_rotated(q, k, q_weight, k_weight, angles, heads):
    """Norm queries and keys over all heads, and rotate them by angles given as cosine and sine."""
    return tuple(_rotated(F.rms_norm(x, w.shape, w, EPS), angles, heads) for x, w in ((q, q_weight), (k, k_weight)))


def _rotated(x, angles, heads):
    x = dit_layers.wide(x).unflatten(2, (heads, -1, 2)), x.dtype
    even, odd = x[0].unbind(-1)
    cos, sin = angles.unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(3).to(x[1])


def time_features(t, frequencies, dtype):
    """Return cosines and sines of time steps, [steps, frequencies]."""
    half = frequencies // 2
    places = torch.arange(half, dtype=torch.float64, device=t.device)
    angles = t.flatten().to(torch.float64)[:, None] * torch.exp(places * (-math.log(10000.0) / half))
    return torch.cat([angles.cos(), angles.sin()], dim=1).to(dtype)


def embedded_time(t, dtype, frequencies, first, first_bias, second, second_bias, third, third_bias):
    """Return the embedding of time steps, and its projection."""
    features = time_features(t, frequencies, dtype)
    e = F.linear(F.silu(F.linear(features, first, first_bias)), second, second_bias)
    return e, F.linear(F.silu(e), third, third_bias)


class CompiledNorm(FusedNorm):
    """One kernel."""

    def forward(self, x, shift, scale):
        """Normalise [b, s, dim], then scale and shift by [b, frames, 1, dim]."""
        return call_compiled(modulated, x, shift, scale)


class CompiledSelfAttention(PackedSelfAttention):
    """Norms and rotations of queries and keys in one or two kernels, by real numbers."""

    def rotated(self, x, grid, positions, first):
        """Return queries, keys and values [b, s, heads, d]."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = call_compiled(
            normed_and_rotated, q, k, self.norm_q.weight, self.norm_k.weight, torch.view_as_real(positions), self.heads
        )
        return q, k, v.unflatten(2, (self.heads, -1))


class CompiledWan(dit_wan.CausalWan):
    """The embedding of time in one piece."""

    def embed_time(self, t, x):
        """Return a time step's embedding [b, frames, dim], and its six modulations [b, frames, 6, dim]."""
        linears = self.time_embedding[0], self.time_embedding[2], self.time_projection[1]
        weights = [value for linear in linears for value in (linear.weight, linear.bias)]
        e, e0 = call_compiled(embedded_time, t, x.dtype, self.widths.frequencies, *weights)
        return e.unflatten(0, t.shape), e0.unflatten(1, (6, -1)).unflatten(0, t.shape)


COMPILE = FUSION | {
    dit_layers.ModulatedNorm: CompiledNorm,
    dit_layers.SelfAttention: CompiledSelfAttention,
    dit_wan.CausalWan: CompiledWan,
}
