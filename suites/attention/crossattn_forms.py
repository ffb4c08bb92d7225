"""Cross-attention of a video transformer over all steps of a prompt, and the ways to come by its keys and values.

They stand apart from the declaration in `cross_cache.py`, where queries, prompts and weights are explained.
"""

import torch
import torch.nn.functional as F

from ..common.kernels_opaque import compile_apart

EPS = 1e-6

# -- one layer --------------------------------------------------------------------------------------------------------


def project(x, layer):
    """Return keys and values [batch, tokens, width] of a context, as published: two products, one norm."""
    k = F.linear(x, layer["k"], layer["k_bias"])
    return rms_norm(k, layer["gamma"]), F.linear(x, layer["v"], layer["v_bias"])


def project_packed(x, layer):
    """Return the same by one product."""
    k, v = F.linear(x, layer["weight"], layer["bias"]).chunk(2, -1)
    return rms_norm(k, layer["gamma"]), v


def rms_norm(x, gamma):
    """Normalise the last dimension in float32, round, then multiply."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * gamma


def attend(q, k, v):
    """Attend; q is [batch, tokens, heads, size], keys and values are [batch, tokens, width]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k.unflatten(2, q.shape[2:]), v.unflatten(2, q.shape[2:])))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


# -- the steps --------------------------------------------------------------------------------------------------------


def denoise(queries, prompts, weights, look_up, begin=dict, layers=None):
    """Go through all steps of all prompts.

    Args:
        queries: Of each prompt.
        prompts: Each a list of branches, which are dicts of contexts.
        weights: Of each layer, by context, or as `look_up` wants them.
        look_up: `look_up(cache, contexts, weights, place)` returns keys and values of the place (branch, layer, context).
        begin: Returns an empty cache, at the begin of a prompt.
        layers: How many; as many as there are weights, unless given.
    """
    layers = len(weights) if layers is None else layers
    results = []
    for q, branches in zip(queries, prompts, strict=True):
        cache, result = begin(), torch.empty_like(q)
        for step in range(len(q)):
            compile_apart()
            for branch, contexts in enumerate(branches):
                result[step, branch] = _all_layers(q[step, branch], branch, contexts, weights, look_up, cache, layers)
        results.append(result)
    return results


def _all_layers(q, branch, contexts, weights, look_up, cache, layers):
    parts = (
        attend(q, *look_up(cache, contexts, weights, (branch, layer, name)))
        for layer in range(layers)
        for name in contexts
    )
    # In float32: rounded after each of some 40 layers, the sum would drown what they differ by.
    total = next(parts).to(torch.promote_types(q.dtype, torch.float32), copy=True)
    for part in parts:
        total += part
    return total


def from_context(cache, contexts, weights, place):
    _, layer, name = place
    return project(contexts[name], weights[layer][name])


def from_context_packed(cache, contexts, packed, place):
    _, layer, name = place
    return project_packed(contexts[name], packed[layer][name])


def kept(cache, contexts, weights, place):
    """Project in the first step, and keep what comes for the others."""
    if place not in cache:
        cache[place] = from_context(cache, contexts, weights, place)
    return cache[place]


def kept_packed(cache, contexts, packed, place):
    if place not in cache:
        cache[place] = from_context_packed(cache, contexts, packed, place)
    return cache[place]


def kept_together(cache, contexts, stacked, place):
    """Project for all layers at once when the first of them asks."""
    branch, layer, name = place
    if (branch, name) not in cache:
        # The negative prompt has the image of the positive one.
        known = name == "clip" and (1 - branch, name) in cache
        cache[branch, name] = cache[1 - branch, name] if known else _project_layers(contexts[name], stacked[name])
    k, v = cache[branch, name]
    return k[:, :, layer], v[:, :, layer]


def _project_layers(x, stack):
    both = F.linear(x, stack["weight"], stack["bias"]).unflatten(2, (len(stack["gamma"]), 2, -1))
    return rms_norm(both[:, :, :, 0], stack["gamma"]), both[:, :, :, 1]


def pack(weights):
    """Put each layer's two matrices one below the other."""
    return {
        "packed": [
            {
                name: {
                    "weight": torch.cat([one["k"], one["v"]]),
                    "bias": torch.cat([one["k_bias"], one["v_bias"]]),
                    "gamma": one["gamma"],
                }
                for name, one in layer.items()
            }
            for layer in weights
        ]
    }


def stack(weights):
    """Put the matrices of all layers one below the other."""
    return {
        "stacked": {
            name: {
                "weight": torch.cat([layer[name][part] for layer in weights for part in ("k", "v")]),
                "bias": torch.cat([layer[name][part] for layer in weights for part in ("k_bias", "v_bias")]),
                "gamma": torch.stack([layer[name]["gamma"] for layer in weights]),
            }
            for name in weights[0]
        }
    }
