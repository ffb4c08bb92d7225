"""A cache that each call appends to at a position: without `reset` the third call has no room left."""

from pairbench import Operator, grid

ROOM = 8


def inputs(make, width, dtype):
    return {
        "x": make.normal(1, width, dtype=dtype),
        "cache": make.zeros(ROOM, width, dtype=dtype),
        "position": make.zeros(1, dtype="int64"),
    }


def by_index(x, cache, position):
    cache.index_copy_(0, position, x)
    position += 1
    return cache.sum(0)


def by_slice(x, cache, position):
    at = int(position)
    if at >= ROOM:
        raise IndexError(f"the cache is full: {at} of {ROOM}")
    cache[at : at + 1] = x
    position.add_(1)
    return cache.sum(0)


def start(cache, position):
    cache.zero_()
    position.zero_()


def _appends(name, **changes):
    return Operator(
        name,
        baseline=by_index,
        variants={"by_slice": by_slice},
        inputs=inputs,
        cases=grid(width=[64], dtype=["float32"]),
        state=["cache", "position"],
        **changes,
    )


restored = _appends("restored", reset=True)
by_function = _appends("by_function", reset=start)
not_reset = _appends("not_reset")
