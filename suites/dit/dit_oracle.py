"""The causal transformer by its formulas, in float64: no module runs, nothing is rolled, and every angle is computed for itself.

Frames stay in a list that grows, and a block attends to the last ones of it.
"""

import math

import torch
from dit_inputs import STEPS, warped
from dit_layers import EPS


def denoise(model, noise, fresh, condition, context, cache, block, steps, first):
    """Decode as `dit_rollout.denoise` does, and leave the newest frames in the cache in their order."""
    weights, widths = dict(model.named_parameters()), model.widths
    rows, columns = noise.shape[3] // 2, noise.shape[4] // 2
    size = cache["k"].shape[2]
    past = min(first * rows * columns, size)
    history = [(k[:, :past].clone(), v[:, :past].clone()) for k, v in zip(cache["k"], cache["v"], strict=True)]
    prompt = linear(gelu(linear(context, weights, "context_embedding.0")), weights, "context_embedding.2")
    latents = []
    for begin in range(0, noise.shape[2], block):
        frames = slice(begin, begin + block)

        def flow(x, t, frames=frames, begin=begin):
            x = torch.cat([x, condition[:, :, frames]], dim=1)
            turns = angles((block, rows, columns), first + begin, widths.dim // widths.heads, x.device)
            return _forward(x, t, prompt, weights, widths, history, turns, size)

        x = noise[:, :, frames]
        sigmas = [warped(step) for step in STEPS[steps]]
        for i, sigma in enumerate(sigmas):
            clean = x - sigma * flow(x, 1000 * sigma)[0]
            if i + 1 < len(sigmas):
                x = (1 - sigmas[i + 1]) * clean + sigmas[i + 1] * fresh[i][:, :, frames]
        for layer, new in enumerate(flow(clean, 0.0)[1]):
            history[layer] = extended(history[layer], new, size)
        latents.append(clean)
    for layer, (k, v) in enumerate(history):
        cache["k"][layer, :, : k.shape[1]], cache["v"][layer, :, : v.shape[1]] = k, v
    return torch.cat(latents, dim=2)


def one_layer(layer, freqs, x, e, prompt, cache, grid, first):
    """Pass tokens through one layer as `dit_rollout.one_layer` does."""
    weights = dict(layer.named_parameters())
    past = min(first * grid[1] * grid[2], cache["k"].shape[2] - x.shape[1])
    history = cache["k"][0, :, :past], cache["v"][0, :, :past]
    heads = cache["k"].shape[3]
    turns = angles(grid, first, cache["k"].shape[4], x.device)
    size = past + x.shape[1]
    y, k, v = _layer(x, e, (prompt["k"], prompt["v"]), weights, "", heads, history, turns, size)
    cache["k"][0, :, past:size], cache["v"][0, :, past:size] = k, v
    return y


def _forward(x, t, prompt, weights, widths, history, turns, size):
    """Return the flow, and each layer's keys and values of this block."""
    b, _, f, h, w = x.shape
    patches = x.reshape(b, -1, f, h // 2, 2, w // 2, 2).permute(0, 2, 3, 5, 1, 4, 6).flatten(4).flatten(1, 3)
    x = patches @ weights["patch_embedding.weight"].flatten(1).T + weights["patch_embedding.bias"]
    half = widths.frequencies // 2
    theta = t * 10000.0 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    e = silu(linear(torch.cat([theta.cos(), theta.sin()]), weights, "time_embedding.0"))
    e = linear(e, weights, "time_embedding.2").expand(b, f, -1)
    e0 = linear(silu(e), weights, "time_projection.1").unflatten(2, (6, -1))
    made = []
    for i, held in enumerate(history):
        at = f"blocks.{i}."
        keys = linear(prompt, weights, at + "cross_attn.k"), linear(prompt, weights, at + "cross_attn.v")
        keys = rms(keys[0], weights[at + "cross_attn.norm_k.weight"]), keys[1]
        keys = [value.unflatten(2, (widths.heads, -1)) for value in keys]
        x, *kv = _layer(x, e0, keys, weights, at, widths.heads, held, turns, size)
        made.append(kv)
    shift, scale = (weights["head.modulation"][:, None] + e[:, :, None]).unbind(2)
    y = linear(spread(scale + 1, x) * normal(x) + spread(shift, x), weights, "head.head")
    y = y.reshape(b, f, h // 2, w // 2, 2, 2, widths.latent).permute(0, 6, 1, 2, 4, 3, 5)
    return y.reshape(b, widths.latent, f, h, w), made


def _layer(x, e, prompt, weights, at, heads, history, turns, size):
    shift1, scale1, gate1, shift2, scale2, gate2 = (weights[at + "modulation"][:, None] + e).unbind(2)
    y = normal(x) * spread(1 + scale1, x) + spread(shift1, x)
    q, k, v = (linear(y, weights, f"{at}self_attn.{name}") for name in "qkv")
    q, k = (rms(value, weights[f"{at}self_attn.norm_{name}.weight"]) for name, value in (("q", q), ("k", k)))
    q, k, v = (value.unflatten(2, (heads, -1)) for value in (q, k, v))
    k = turned(k, turns)
    y = attended(turned(q, turns), *extended(history, (k, v), size))
    x = x + linear(y, weights, at + "self_attn.o") * spread(gate1, x)
    y = normal(x) * weights[at + "norm3.weight"] + weights[at + "norm3.bias"]
    q = rms(linear(y, weights, at + "cross_attn.q"), weights[at + "cross_attn.norm_q.weight"]).unflatten(2, (heads, -1))
    x = x + linear(attended(q, *prompt), weights, at + "cross_attn.o")
    y = normal(x) * spread(1 + scale2, x) + spread(shift2, x)
    y = linear(gelu(linear(y, weights, at + "ffn.0")), weights, at + "ffn.2")
    return x + y * spread(gate2, x), k, v


def extended(history, new, size):
    """Return keys and values with newer ones behind them, as many as a window holds."""
    return tuple(torch.cat(pair, dim=1)[:, -size:] for pair in zip(history, new, strict=True))


# -- formulas ---------------------------------------------------------------------------------------------------------


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def gelu(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x * torch.sigmoid(x)


def normal(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt()


def rms(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def spread(per_frame, x):
    """Repeat [b, frames, dim] for the tokens of each frame."""
    return per_frame.repeat_interleave(x.shape[1] // per_frame.shape[1], dim=1)


def angles(grid, first, d, device):
    """Return the angle of each token and pair of channels, [tokens, d / 2]."""
    pairs = d // 2
    parts = (pairs - 2 * (pairs // 3), pairs // 3, pairs // 3)
    f, h, w = (torch.arange(n, dtype=torch.float64, device=device) for n in grid)
    places = torch.meshgrid(f + first, h, w, indexing="ij")
    powers = [10000.0 ** -(torch.arange(n, dtype=torch.float64, device=device) / n) for n in parts]
    return torch.cat([place.reshape(-1, 1) * power for place, power in zip(places, powers, strict=True)], dim=1)


def turned(x, theta):
    """Rotate each pair of neighbouring channels of [b, s, heads, d]."""
    cos, sin = theta.cos()[:, None], theta.sin()[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(3)


def attended(q, k, v):
    """Attend by the formula, one head at a time: the scores of all would not fit. Return [b, s, dim]."""
    heads = []
    for i in range(q.shape[2]):
        scores = q[:, :, i] @ k[:, :, i].mT / math.sqrt(q.shape[3])
        heads.append(scores.softmax(-1) @ v[:, :, i])
    return torch.cat(heads, dim=-1)
