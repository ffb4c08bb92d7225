"""The causal Wan transformer as published: one forward pass over a block of frames, with its caches.

It knows nothing of denoising blocks one after another, but for the step from a flow to latents.
"""

import math

import torch
from dit_layers import EPS, Block, ModulatedNorm, wide
from torch import nn

from ..common.kernels_opaque import compile_apart

PATCH = (1, 2, 2)


class Head(nn.Module):
    """From tokens to patches."""

    def __init__(self, dim, channels):
        super().__init__()
        self.modulation = nn.Parameter(torch.empty(1, 2, dim))
        self.norm = ModulatedNorm(dim, EPS, elementwise_affine=False)
        self.head = nn.Linear(dim, math.prod(PATCH) * channels)

    def modulations(self, e):
        """Return shift and scale, each [b, frames, 1, dim]."""
        return (wide(self.modulation).unsqueeze(1) + wide(e)).chunk(2, dim=2)

    def forward(self, x, e):
        """Turn [b, s, dim] into patches; e is [b, frames, 1, dim]."""
        return self.head(self.norm(x, *self.modulations(e)))


class Scheduler(nn.Module):
    """From noise to latents and back: at time t, t / 1000 of what is noisy is noise, and the flow is noise less latents.

    That part is looked up in a table on the device, as published.
    """

    def clean(self, x, flow, t):
        """Return the latents [b, c, f, h, w] behind noisy ones, in float64 as published."""
        return (x.double() - self.sigma(t) * flow.double()).to(x.dtype)

    def noisy(self, x, noise, t):
        """Return latents made noisy."""
        sigma = self.sigma(t).to(wide(x).dtype)
        return ((1 - sigma) * wide(x) + sigma * wide(noise)).to(x.dtype)

    def sigma(self, t):
        """Return the part of noise at the time of the table that is nearest."""
        return self.sigmas[(1000 * self.sigmas - t).abs().argmin()]


class CausalWan(nn.Module):
    """The transformer: the flow of a block of noisy latents, given the frames before it."""

    def __init__(self, widths):
        super().__init__()
        dim = widths.dim
        self.widths = widths
        self.patch_embedding = nn.Conv3d(widths.latent + widths.condition, dim, PATCH, PATCH)
        self.context_embedding = nn.Sequential(
            nn.Linear(widths.context, dim), nn.GELU(approximate="tanh"), nn.Linear(dim, dim)
        )
        self.time_embedding = nn.Sequential(nn.Linear(widths.frequencies, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.blocks = nn.ModuleList(Block(widths) for _ in range(widths.layers))
        self.head = Head(dim, widths.latent)
        self.scheduler = Scheduler()

    def open_prompt(self, context):
        """Return what is done once a prompt: nothing, as published; it is embedded with every pass."""
        return context

    def embed_context(self, context):
        """Embed a prompt's tokens."""
        return self.context_embedding(context)

    def embed_time(self, t, x):
        """Return a time step's embedding [b, frames, dim], and its six modulations [b, frames, 6, dim]."""
        half = self.widths.frequencies // 2
        places = torch.arange(half, dtype=torch.float64, device=x.device)
        angles = torch.outer(t.flatten().to(torch.float64), torch.pow(10000, -places / half))
        e = self.time_embedding(torch.cat([angles.cos(), angles.sin()], dim=1).type_as(x))
        return e.unflatten(0, t.shape), self.time_projection(e).unflatten(1, (6, -1)).unflatten(0, t.shape)

    def forward(self, x, t, context, held, prompts, start):
        """Return the flow of latents [b, latent, f, h, w].

        Args:
            x: Latents, with the condition behind them.
            t: The time step of each frame, [b, f].
            context: What `open_prompt` returned.
            held: What each layer's `open` returned.
            prompts: What each layer keeps of the prompt.
            start: Tokens before these ones.
        """
        x = self.patch_embedding(x)
        grid = tuple(x.shape[2:])
        x = x.flatten(2).transpose(1, 2)
        e, e0 = self.embed_time(t, x)
        context = self.embed_context(context)
        positions = self.blocks[0].self_attn.rope.positions(self.freqs, grid, start // (grid[1] * grid[2]), x)
        for block, cache, prompt in zip(self.blocks, held, prompts, strict=True):
            compile_apart()
            x = block(x, e0, grid, positions, context, cache, prompt, start)
        return unpatchify(self.head(x, e.unsqueeze(2)), grid, self.widths.latent)


def unpatchify(x, grid, channels):
    """Turn patches [b, s, channels of a patch] into [b, channels, f, h, w]."""
    x = x.view(x.shape[0], *grid, *PATCH, channels).permute(0, 7, 1, 4, 2, 5, 3, 6)
    return x.reshape(x.shape[0], channels, *(n * size for n, size in zip(grid, PATCH, strict=True)))
