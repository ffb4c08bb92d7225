"""The second step: fewer kernels, as far as eager torch has fused ones, and one product for what reads the same tensor."""

import dit_layers
import dit_wan
import torch
import torch.nn.functional as F
from dit_casts import CASTS, BareBlock, BareGate, BareHead, BareNorm, SingleRope, grid_angles
from dit_layers import EPS
from torch import nn


class FusedNorm(BareNorm):
    """One kernel normalises, one scales and shifts; `scale` comes with its 1."""

    def forward(self, x, shift, scale):
        """Normalise [b, s, dim], then scale and shift by [b, frames, 1, dim]."""
        y = F.layer_norm(x, self.normalized_shape, eps=self.eps).unflatten(1, (shift.shape[1], -1))
        return torch.addcmul(shift, y, scale).flatten(1, 2)


class FusedGate(BareGate):
    """One kernel."""

    def forward(self, x, y, gate):
        """Return x + y * gate; gate is [b, frames, 1, dim]."""
        frames = (gate.shape[1], -1)
        return torch.addcmul(x.unflatten(1, frames), y.unflatten(1, frames), gate).flatten(1, 2)


class FusedRMSNorm(dit_layers.RMSNorm):
    """The function of torch, which multiplies with the weight in float32."""

    def forward(self, x):
        """Normalise [b, s, dim]."""
        return F.rms_norm(x, self.weight.shape, self.weight, EPS)


class SharedRope(SingleRope):
    """Angles are made once a pass, for all layers."""

    @staticmethod
    def positions(freqs, grid, first, x):
        """Return the rotation of each token and pair of channels, [s, 1, d / 2]."""
        return grid_angles(freqs, grid, first, x)

    def forward(self, x, grid, positions, first):
        """Rotate [b, s, heads, d]."""
        pairs = torch.view_as_complex(dit_layers.wide(x).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * positions).flatten(3).type_as(x)


class FusedFeedForward(dit_layers.FeedForward):
    """GELU in the epilogue of the first product: on a GPU it is the tanh formula, on a CPU the other one."""

    def forward(self, x):
        """Pass [b, s, dim] through."""
        up = self[0]
        if not x.is_cuda or x.dtype not in (torch.float16, torch.bfloat16):
            return super().forward(x)
        hidden = torch._addmm_activation(up.bias, x.flatten(0, 1), up.weight.T, use_gelu=True)  # noqa: SLF001
        return self[2](hidden).view_as(x)


class PackedSelfAttention(dit_layers.SelfAttention):
    """One product for queries, keys and values."""

    def adopt(self):
        """Put the three weights into one."""
        self.qkv = packed(self.q, self.k, self.v)
        del self.q, self.k, self.v

    def rotated(self, x, grid, positions, first):
        """Return queries, keys and values [b, s, heads, d]."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        heads = (self.heads, -1)
        q, k = self.norm_q(q).unflatten(2, heads), self.norm_k(k).unflatten(2, heads)
        return self.rope(q, grid, positions, first), self.rope(k, grid, positions, first), v.unflatten(2, heads)


class PackedCrossAttention(dit_layers.CrossAttention):
    """One product for keys and values."""

    def adopt(self):
        """Put the two weights into one."""
        self.kv = packed(self.k, self.v)
        del self.k, self.v

    def keys(self, context):
        """Return keys and values [b, tokens, heads, d]."""
        k, v = self.kv(context).chunk(2, dim=-1)
        return self.norm_k(k).unflatten(2, (self.heads, -1)), v.unflatten(2, (self.heads, -1))


def packed(*linears):
    """Return one linear module that computes several side by side."""
    with torch.device("meta"):
        one = nn.Linear(linears[0].in_features, sum(linear.out_features for linear in linears))
    one.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    one.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]), requires_grad=False)
    return one


class FusedBlock(BareBlock):
    """The 1 of both scales is added at once."""

    def modulations(self, e):
        """Return shift, 1 + scale and gate of the attention and of the ffn, each [b, frames, 1, dim]."""
        e = self.modulation.unsqueeze(1) + e
        e[:, :, 1::3] += 1
        return e.chunk(6, dim=2)


class FusedHead(BareHead):
    """The scale has its 1."""

    def modulations(self, e):
        """Return shift and 1 + scale, each [b, frames, 1, dim]."""
        shift, scale = super().modulations(e)
        return shift, 1 + scale


FUSION = CASTS | {
    dit_layers.ModulatedNorm: FusedNorm,
    dit_layers.Gate: FusedGate,
    dit_layers.RMSNorm: FusedRMSNorm,
    dit_layers.Rope: SharedRope,
    dit_layers.FeedForward: FusedFeedForward,
    dit_layers.SelfAttention: PackedSelfAttention,
    dit_layers.CrossAttention: PackedCrossAttention,
    dit_layers.Block: FusedBlock,
    dit_wan.Head: FusedHead,
}
