"""Keys and values of a prompt: projected anew for each step and layer, or once a prompt.

A video transformer attends to its prompt, and to the image that it starts from, in every layer of every denoise step. Their
keys and values follow from the prompt and the weights alone, so all steps but the first compute what is known. A prompt is an
input like any other and no constant: what is kept belongs to one prompt, and to one branch of it where classifier-free
guidance runs a negative prompt beside the positive one. So one call is all steps of one prompt, or of several in turn.

For each prompt there are `queries` [steps, branches, batch, tokens, heads, size], and for each of its branches a dict of
contexts: `text` and `clip`, [batch, tokens, width], or one of them. A branch's result of a step is the sum, in float32, over
the layers of what they attend to, in each of its contexts, so that every one shows in it; the projection of queries is the
same for all implementations and left out. Keys are normalised over all heads, in float32.
"""

import math

import torch
import torch.nn.functional as F
from crossattn_forms import (
    EPS,
    denoise,
    from_context,
    from_context_packed,
    kept,
    kept_packed,
    kept_together,
    pack,
    stack,
)

from pairbench import REASSOCIATED, Cost, Operator, Variant


def inputs(
    make,
    tokens,
    width,
    heads,
    layers,
    steps,
    text=512,
    clip=0,
    prompts=1,
    guided=False,
    batch=1,
    growth=0,
    dtype="bfloat16",
):
    """Each prompt has `growth` samples more than the one before; the negative prompt has the same image."""
    lengths = {name: length for name, length in (("text", text), ("clip", clip)) if length}

    def branches(samples):
        image = make.normal(samples, clip, width, dtype=dtype)
        for _ in range(1 + guided):
            context = {"text": make.normal(samples, text, width, dtype=dtype), "clip": image}
            yield {name: context[name] for name in lengths}

    def projection():
        scale = width**-0.5
        # Keys are twice as large before their norm as after it. Values have a mean: where those of hundreds of tokens and of all
        # layers cancel, what is left is no more than what each of them was rounded by.
        return {
            "k": make.normal(width, width, dtype=dtype, scale=2 * scale),
            "k_bias": make.normal(width, dtype=dtype, scale=0.1),
            "v": make.normal(width, width, dtype=dtype, scale=scale),
            "v_bias": make.normal(width, dtype=dtype, mean=0.3, scale=0.1),
            "gamma": make.normal(width, dtype=dtype, mean=1.0, scale=0.1),
        }

    sizes = [batch + growth * i for i in range(prompts)]
    rows = (tokens, heads, width // heads)
    return {
        "queries": [make.normal(steps, 1 + guided, samples, *rows, dtype=dtype) for samples in sizes],
        "prompts": [list(branches(samples)) for samples in sizes],
        "weights": [{name: projection() for name in lengths} for _ in range(layers)],
    }


def cost(
    tokens,
    width,
    heads,
    layers,
    steps,
    text=512,
    clip=0,
    prompts=1,
    guided=False,
    batch=1,
    growth=0,
    dtype="bfloat16",
):
    """Project once a prompt, and the image once for both branches."""
    samples, branches = sum(batch + growth * i for i in range(prompts)), 1 + guided
    projected = samples * (text * branches + clip)
    attended = samples * steps * branches * tokens * (text + clip)
    moved = 2 * samples * steps * branches * tokens * width + projected * width
    moved += layers * bool(text) * (2 * width**2 + 3 * width) + layers * bool(clip) * (2 * width**2 + 3 * width)
    flops = layers * (4.0 * projected * width**2 + 4.0 * attended * width)
    return Cost(flops=flops, bytes=float(moved * getattr(torch, dtype).itemsize))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def each_step(queries, prompts, weights):
    """Project keys and values in every step and layer."""
    return denoise(queries, prompts, weights, from_context)


def each_step_packed(queries, prompts, weights, packed):
    """And do so by one product for both."""
    return denoise(queries, prompts, packed, from_context_packed)


def cached(queries, prompts, weights):
    return denoise(queries, prompts, weights, kept)


def cached_packed(queries, prompts, weights, packed):
    return denoise(queries, prompts, packed, kept_packed)


def cached_together(queries, prompts, weights, stacked):
    """Fill the cache by one product for all layers."""
    return denoise(queries, prompts, stacked, kept_together, layers=len(weights))


# -- an oracle by another path ----------------------------------------------------------------------------------------


def by_formula(queries, prompts, weights):
    """Project once, and attend by the formula, head by head."""
    results = [torch.zeros_like(q) for q in queries]
    for q, branches, result in zip(queries, prompts, results, strict=True):
        for branch, contexts in enumerate(branches):
            for name, x in contexts.items():
                for layer in weights:
                    _add_attended(result[:, branch], q[:, branch], x, layer[name])
    return results


def _add_attended(result, q, x, layer):
    k = torch.einsum("bti,oi->bto", x, layer["k"]) + layer["k_bias"]
    k = layer["gamma"] * k / (torch.linalg.vector_norm(k, dim=-1, keepdim=True) ** 2 / k.shape[-1] + EPS).sqrt()
    v = torch.einsum("bti,oi->bto", x, layer["v"]) + layer["v_bias"]
    heads, size = q.shape[-2:]
    for head in range(heads):
        at = slice(head * size, (head + 1) * size)
        scores = torch.einsum("sbnd,btd->sbnt", q[..., head, :], k[..., at]) / math.sqrt(size)
        result[..., head, :] += torch.einsum("sbnt,btd->sbnd", scores.softmax(-1), v[..., at])


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def stale_prompt(queries, prompts, weights):
    """Keep the first prompt's keys and values for all that follow."""
    cache = {}
    return denoise(queries, prompts, weights, kept, lambda: cache)


_left_behind = {}


def stale_call(queries, prompts, weights):
    """Keep them from call to call, as long as the shapes are the same: right the first time."""
    shapes = tuple(tuple(q.shape) for q in queries)
    if _left_behind.get("shapes") != shapes:
        _left_behind.clear()
        _left_behind.update(shapes=shapes, caches=[{} for _ in queries])
    caches = iter(_left_behind["caches"])
    return denoise(queries, prompts, weights, kept, lambda: next(caches))


def one_for_both(queries, prompts, weights):
    """Give the negative prompt what the positive one left."""
    return denoise(queries, prompts, weights, lambda c, x, w, place: kept(c, x, w, (0, *place[1:])))


def one_for_all_layers(queries, prompts, weights):
    return denoise(queries, prompts, weights, lambda c, x, w, place: kept(c, x, w, (place[0], 0, place[2])))


def one_for_all_samples(queries, prompts, weights):
    """Keep what a batch of one needed."""

    def first_sample(cache, contexts, weights, place):
        alone = {name: x[:1] for name, x in contexts.items()}
        batch = next(iter(contexts.values())).shape[0]
        return [x.expand(batch, -1, -1) for x in kept(cache, alone, weights, place)]

    return denoise(queries, prompts, weights, first_sample)


def raw_keys(queries, prompts, weights):
    """Keep keys as they were before the norm."""

    def raw(cache, contexts, weights, place):
        _, layer, name = place
        one = weights[layer][name]
        return F.linear(contexts[name], one["k"], one["k_bias"]), kept(cache, contexts, weights, place)[1]

    return denoise(queries, prompts, weights, raw)


def text_only(queries, prompts, weights):
    """Forget the image."""
    return denoise(queries, [[{"text": x["text"]} for x in branches] for branches in prompts], weights, kept)


def several_prompts(prompts, **_):
    return len(prompts) > 1


def guided_by_text(prompts, **_):
    return len(prompts[0]) > 1 and "text" in prompts[0][0]


def several_layers(weights, **_):
    return len(weights) > 1


def several_samples(prompts, **_):
    return any(x.shape[0] > 1 for branches in prompts for x in branches[0].values())


def text_and_image(prompts, **_):
    return len(prompts[0][0]) == 2


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(tokens=6, width=16, heads=2, layers=2, steps=2, text=8, dtype="float32")
IMAGE = dict(tokens=2640, width=1536, heads=12, layers=30, steps=4, text=0, clip=257, dtype="bfloat16")  # Matrix-Game-2
SMALL = dict(tokens=4680, width=1536, heads=12, layers=30, steps=5, dtype="bfloat16")  # Self-Forcing
LARGE = dict(tokens=4680, width=5120, heads=40, layers=40, steps=4, dtype="bfloat16")

crossattn_cache = Operator(
    "crossattn_cache",
    baseline=each_step,
    variants={
        "each_step_packed": Variant(each_step_packed, prepare=pack),
        "cached": cached,
        "cached_packed": Variant(cached_packed, prepare=pack),
        "cached_together": Variant(cached_together, prepare=stack),
    },
    inputs=inputs,
    cases={
        "edge": [
            dict(TINY, steps=1),
            dict(TINY, prompts=3),
            dict(TINY, guided=True),
            dict(TINY, guided=True, prompts=2, clip=5),
            dict(TINY, clip=5),
            dict(TINY, text=0, clip=5),
            dict(TINY, batch=2, prompts=2),
            dict(TINY, prompts=2, growth=1),
            dict(TINY, prompts=2, growth=1, guided=True, clip=5),
            dict(TINY, layers=1, tokens=1, steps=3),
            dict(TINY, heads=1),
            dict(TINY, clip=5, dtype="float64"),
            dict(TINY, dtype="float16"),
        ],
        "smoke": [
            dict(TINY, tokens=16, width=32, layers=3, steps=3, guided=True),
            dict(TINY, tokens=16, width=32, layers=3, steps=3, text=64, clip=33, prompts=2, dtype="bfloat16"),
        ],
        "real": [
            IMAGE,
            SMALL,
            dict(SMALL, guided=True, steps=4),
            dict(SMALL, prompts=2, steps=4, clip=257),
            dict(SMALL, batch=2, steps=4),
        ],
        "headline": [LARGE, dict(LARGE, clip=257)],
    },
    impostors={
        "stale_prompt": Variant(stale_prompt, valid=several_prompts),
        "stale_call": stale_call,
        "one_for_both": Variant(one_for_both, valid=guided_by_text),
        "one_for_all_layers": Variant(one_for_all_layers, valid=several_layers),
        "one_for_all_samples": Variant(one_for_all_samples, valid=several_samples),
        "raw_keys": raw_keys,
        "text_only": Variant(text_only, valid=text_and_image),
    },
    oracle=by_formula,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["weights"],
    source="maxdiffusion #400; Self-Forcing crossattn_cache",
)
