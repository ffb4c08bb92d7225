"""Wrong networks: the mistakes that the guide for Matrix-Game-2 invites, and those that were made in the wild."""

import dit_layers
import dit_ring
import torch
import torch.nn.functional as F
from dit_casts import SingleRope
from dit_layers import EPS


class TokenCausal(dit_layers.Attention):
    """Hide the later tokens of a block from the earlier ones, as `flash_attn_func(causal=True)` of the guide does."""

    def forward(self, q, k, v):
        """Attend under a mask whose last row sees all keys."""
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)


class CausalSelfAttention(dit_layers.SelfAttention):
    """Only attention to frames is hidden."""

    def adopt(self):
        """Replace the attention."""
        self.attention = TokenCausal()


class Advancing(dit_layers.Cache):
    """Go on in the ring with every pass, though passes over a block repeat it: the guide's `RingBufferKVCache`."""

    def forward(self, held, k, v, start):
        """Write behind what the last pass wrote."""
        size = held.k.shape[1]
        head = held.global_end["head"]
        slots = (torch.arange(k.shape[1], device=k.device) + head) % size
        held.k[:, slots], held.v[:, slots] = k, v
        held.global_end["head"] = (head + k.shape[1]) % size
        return held.k, held.v


class AdvancingBlock(dit_layers.Block):
    """Has the place where to go on on the host."""

    def open(self, k, v, written):
        """Begin where the next block belongs, or one pass too far where a block is repeated."""
        return dit_layers.KeyValues(k, v, {"head": written % k.shape[1]}, None)


class Unmasked(dit_ring.Ring):
    """Attend to slots that nobody has written yet."""

    def forward(self, held, k, v, start):
        """Write as a ring does, and return all of it."""
        super().forward(held, k, v, start)
        return held.k, held.v


class HeadNorm(dit_layers.RMSNorm):
    """Normalise each head for itself, as most other models do."""

    heads = 0

    def forward(self, x):
        """Normalise [b, s, dim]."""
        y = dit_layers.wide(x).unflatten(-1, (self.heads, -1))
        y = y * torch.rsqrt(y.pow(2).mean(dim=-1, keepdim=True) + EPS)
        return y.flatten(-2).type_as(x) * self.weight


class HeadNormSelfAttention(dit_layers.SelfAttention):
    """Tells its norms how many heads there are."""

    def adopt(self):
        """Set them."""
        self.norm_q.heads = self.norm_k.heads = self.heads


class HeadNormCrossAttention(dit_layers.CrossAttention):
    """Tells its norms how many heads there are."""

    adopt = HeadNormSelfAttention.adopt


class WithoutOne(dit_layers.ModulatedNorm):
    """Scale by what should have been added to 1."""

    def forward(self, x, shift, scale):
        """Normalise [b, s, dim], then scale and shift by [b, frames, 1, dim]."""
        return super().forward(x, shift, scale - 1)


class HalvesRope(SingleRope):
    """Take the two halves of a head for pairs, where neighbours are."""

    def forward(self, x, grid, freqs, first):
        """Rotate [b, s, heads, d]."""
        woven = x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
        return super().forward(woven, grid, freqs, first).unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


class NoStartRope(dit_layers.Rope):
    """Number the frames of every block from 0."""

    def forward(self, x, grid, freqs, first):
        """Rotate [b, s, heads, d]."""
        return super().forward(x, grid, freqs, 0)


TOKEN_CAUSAL = {dit_layers.SelfAttention: CausalSelfAttention}
ADVANCING = {dit_layers.Cache: Advancing, dit_layers.Block: AdvancingBlock}
UNMASKED = {dit_layers.Cache: Unmasked}
PER_HEAD_NORM = {
    dit_layers.RMSNorm: HeadNorm,
    dit_layers.SelfAttention: HeadNormSelfAttention,
    dit_layers.CrossAttention: HeadNormCrossAttention,
}
WITHOUT_ONE = {dit_layers.ModulatedNorm: WithoutOne}
HALVES = {dit_layers.Rope: HalvesRope}
NO_START = {dit_layers.Rope: NoStartRope}
