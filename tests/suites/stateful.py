"""A key cache that a whole decode loop fills: one variant keeps it right, one forgets it, one rewrites the past."""

import torch

from pairbench import Operator, grid


def inputs(make, steps, capacity, width, dtype):
    return {
        "cache": make.normal(capacity, width, dtype=dtype),
        "queries": make.normal(steps, width, dtype=dtype),
        "keys": make.normal(steps, width, dtype=dtype),
    }


def attend(query, cache):
    return torch.softmax(cache @ query, dim=0) @ cache


def concatenate(cache, queries, keys):
    out = []
    for query, key in zip(queries, keys, strict=True):
        cache.copy_(torch.cat([cache[1:], key[None]]))
        out.append(attend(query, cache))
    return torch.stack(out)


def roll(cache, queries, keys):
    out = torch.empty_like(queries)
    for step in range(len(queries)):
        cache[:-1] = cache[1:].clone()
        cache[-1] = keys[step]
        out[step] = attend(queries[step], cache)
    return out


def forgets(cache, queries, keys):
    return concatenate(cache.clone(), queries, keys)


def rewrites(cache, queries, keys):
    out = concatenate(cache, queries, keys)
    cache[0] = 0
    return out


stateful = Operator(
    "stateful",
    baseline=concatenate,
    variants={"forgets": forgets, "rewrites": rewrites, "good": roll},
    inputs=inputs,
    cases=grid(steps=[3], capacity=[8], width=[16], dtype=["float32"]),
    state=["cache"],
)
