"""The step that puts the Triton kernels of the smaller pairs into the ring network: adaptive norms, norms and rotations, the ring.

A residual sum and the norm behind it are one kernel wherever both lie within a layer.
"""

import dit_layers
import dit_ring
import dit_wan
import torch
from dit_casts import BareHead
from dit_fusion import FusedGate, PackedSelfAttention
from dit_layers import EPS

from ..kv.kernels_kv import write_ring
from ..norm.kernels_adaln import gated_and_modulated, modulated
from ..norm.kernels_norm_rms import rms_norm
from ..rope.kernels_rope import norm_and_rotate


class TritonNorm(dit_layers.ModulatedNorm):
    """One kernel; it adds the scale's 1 itself."""

    def forward(self, x, shift, scale):
        """Normalise [b, s, dim], then scale and shift by [b, frames, 1, dim]."""
        return modulated(x, shift, scale, EPS)


class TritonRMSNorm(dit_layers.RMSNorm):
    """One kernel, that of prompts; keys and queries of frames have one that rotates them too."""

    def forward(self, x):
        """Normalise [b, s, dim]."""
        return rms_norm(x, self.weight, EPS)


class GateNorm(FusedGate):
    """The residual sum, and the norm behind it, in one kernel."""

    def forward(self, x, y, gate, shift, scale):
        """Return x + y * gate and its modulated norm; gate, shift and scale are [b, frames, 1, dim]."""
        return gated_and_modulated(x, y, gate, shift, scale, EPS)


class TableRope(dit_layers.Rope):
    """Takes cosines and sines from tables, by position."""

    @staticmethod
    def positions(freqs, grid, first, x):
        """Return the tables."""
        return freqs


class TritonSelfAttention(PackedSelfAttention):
    """Queries and keys are normed and rotated in one kernel, out of the packed product."""

    def adopt(self):
        """Put the norms' weights side by side, too."""
        super().adopt()
        self.register_buffer("norms", torch.stack([self.norm_q.weight, self.norm_k.weight]))

    def rotated(self, x, grid, positions, first):
        """Return queries, keys and values [b, s, heads, d]."""
        qkv = self.qkv(x)
        q, k = norm_and_rotate(qkv, self.norms, *positions, self.heads, [grid] * len(x), first, EPS, rounds=False)
        return q, k, qkv.chunk(3, dim=-1)[2].unflatten(2, (self.heads, -1))


class TritonRing(dit_ring.Ring):
    """Keys and values go to their slots in one kernel."""

    def forward(self, held, k, v, start):
        """Write a block whose first token is `start`, and return the keys and values to attend to."""
        size = held.k.shape[1]
        write_ring(k, v, held.k, held.v, size, 0, start)
        seen = min(start + k.shape[1], size)
        return held.k[:, :seen], held.v[:, :seen]


class TritonBlock(dit_ring.RingBlock):
    """Both inner residual sums take the norm behind them along."""

    def adopt(self):
        """Turn the affine norm into a modulated one, the same for every frame, and the plain sum into a gated one."""
        self.gate1 = GateNorm()
        self.gate3 = GateNorm()
        weight = dit_layers.wide(self.norm3.weight) - 1  # exact, and so is what the kernel adds
        self.register_buffer("norm3_scale", weight.view(1, 1, 1, -1))
        self.register_buffer("norm3_shift", self.norm3.bias.view(1, 1, 1, -1))
        self.register_buffer("open_gate", torch.ones_like(self.norm3_shift))

    def modulations(self, e):
        """Return shift, scale and gate of the attention and of the ffn, each [b, frames, 1, dim]."""
        return (self.modulation.unsqueeze(1) + e).chunk(6, dim=2)

    def forward(self, x, e, grid, positions, context, held, prompt, start):
        """Pass [b, s, dim] on; e is [b, frames, 6, dim]."""
        e = self.modulations(e)
        shift, scale, gate = (t.expand_as(e[0]) for t in (self.norm3_shift, self.norm3_scale, self.open_gate))
        y = self.self_attn(self.norm1(x, e[0], e[1]), grid, positions, held, start)
        x, y = self.gate1(x, y, e[2], shift, scale)
        x, y = self.gate3(x, self.cross_attn(y, context, prompt), gate, e[3], e[4])
        return self.gate2(x, self.ffn(y), e[5])


class TableWan(dit_ring.PromptOnce):
    """Has tables of cosines and sines."""

    def adopt(self):
        """Make the tables."""
        self.freqs = tables(self.freqs)


def tables(freqs):
    """Return cosines and sines of all positions in float32, [1024, d / 2] each."""
    return freqs.real.float().contiguous(), freqs.imag.float().contiguous()


TRITON = dit_ring.RING | {
    dit_layers.ModulatedNorm: TritonNorm,
    dit_layers.RMSNorm: TritonRMSNorm,
    dit_layers.Rope: TableRope,
    dit_layers.SelfAttention: TritonSelfAttention,
    dit_layers.Cache: TritonRing,
    dit_layers.Block: TritonBlock,
    dit_wan.Head: BareHead,
    dit_wan.CausalWan: TableWan,
}
