"""The third step: what is left of chains of small kernels goes through torch.compile, piece by piece.

Not in the mode `reduce-overhead` that the guide names: it captures graphs of its own, which no later step could capture. And not
the ffn: its GELU is in the epilogue of a product, where a compiler does not put it.
"""

import dit_layers
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


COMPILE = FUSION | {
    dit_layers.ModulatedNorm: CompiledNorm,
    dit_layers.SelfAttention: CompiledSelfAttention,
}
