"""Denoising block after block with a causal transformer: some passes over a block, then one that leaves its result in the cache.

All networks, the published and the faster ones, go through here; what differs lies in their modules.
"""

import torch
from dit_inputs import STEPS, warped
from dit_wan import PATCH


def denoise(model, noise, fresh, condition, context, cache, block, steps, first):
    """Denoise blocks of frames; the cache holds the newest of the `first` frames before them.

    Args:
        model: The transformer.
        noise: Where each block begins, [b, c, frames, h, w].
        fresh: The noise that goes in between two passes, [steps - 1, b, c, frames, h, w].
        condition: Goes beside the latents, [b, c', frames, h, w].
        context: The prompt's tokens, [b, n, c''].
        cache: Keys and values of all layers, [layers, b, tokens, heads, d]; they are written to.
        block: Frames of a block.
        steps: Denoising passes.
        first: Frames before these ones.

    Returns:
        Latents, [b, c, frames, h, w].
    """
    per_frame = noise.shape[3] * noise.shape[4] // (PATCH[1] * PATCH[2])
    layers = zip(model.blocks, cache["k"], cache["v"], strict=True)
    held, prompts = [layer.open(k, v, first * per_frame) for layer, k, v in layers], [{} for _ in model.blocks]
    context = model.open_prompt(context)
    latents = torch.empty_like(noise)
    for begin in range(0, noise.shape[2], block):
        frames = slice(begin, begin + block)
        start = (first + begin) * per_frame

        def flow(x, t, frames=frames, start=start):
            x = torch.cat([x, condition[:, :, frames]], dim=1)
            # Made on the device, for a copy to it cannot be captured.
            at = torch.full((x.shape[0], block), t, dtype=torch.float64, device=x.device)
            return model(x, at, context, held, prompts, start)

        times = [1000 * warped(step) for step in STEPS[steps]]
        x = noise[:, :, frames]
        for i, t in enumerate(times):
            clean = model.scheduler.clean(x, flow(x, t), t)
            if i + 1 < len(times):
                x = model.scheduler.noisy(clean, fresh[i][:, :, frames], times[i + 1])
        latents[:, :, frames] = clean
        flow(clean, 0.0)  # for the keys and values that it leaves
    return latents


def one_layer(layer, freqs, x, e, prompt, cache, grid, first):
    """Pass [b, s, dim] through one layer, writing its keys and values over those that an earlier pass left."""
    start = first * grid[1] * grid[2]
    held = layer.open(cache["k"][0], cache["v"][0], start + x.shape[1])
    positions = layer.self_attn.rope.positions(freqs, grid, first, x)
    return layer(x, e, grid, positions, None, held, prompt, start)
