"""Where the counters of a key-value cache live: on the device, asked for by every layer in every pass, or on the host.

The published layers keep two int64 tensors each, the end of the video so far and the end of the filled slots, and read them
three to six times a pass with `.item()`. Each read waits for all that the device has been given, so that it runs dry before
the next kernel is launched. All layers count alike, and where a block begins the caller knows: none of it has to be asked.

One call is a stretch of decoding through all layers, several denoise passes and a clean one a block, as in `ring.py`.
What is measured is the caches alone; in a model the launches of a whole layer wait behind each read. The result is what each
layer's cache holds at the end of each video, by absolute position and equal to the bit. Blocks fit into the window beside
the sink.

The keys and values of a pass are those of another pass in the next layer, so that layers differ and inputs stay small.
"""

import torch
from kv_counters import (
    COUNTED,
    HOST,
    HOST_RING,
    POSITIONED,
    SHARED,
    advance,
    move_left,
    nothing_more,
    slots_of_block,
    stretch,
    the_start,
)
from kv_stream import roll_write

from pairbench import EXACT, Claim, Cost, Operator, Variant


def inputs(
    make,
    window,
    block,
    tokens,
    blocks,
    layers=30,
    passes=4,
    heads=12,
    size=128,
    sink=0,
    videos=1,
    batch=1,
    dtype="bfloat16",
):
    """Window, block and sink are in frames of so many tokens; there are so many blocks in each video."""
    shape = (videos * blocks, passes, batch, block * tokens, heads, size)
    return {
        "k": make.normal(*shape, dtype=dtype),
        "v": make.normal(*shape, dtype=dtype),
        "window": window * tokens,
        "sink": sink * tokens,
        "layers": layers,
        "videos": videos,
    }


def cost(
    window, block, tokens, blocks, layers=30, passes=4, heads=12, size=128, videos=1, batch=1, dtype="bfloat16", **_
):
    row = 2 * batch * heads * size * getattr(torch, dtype).itemsize
    held = layers * min(window, blocks * block) * tokens
    return Cost(flops=0.0, bytes=float(row * videos * (blocks * passes * block * tokens + held)))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def device_counters(k, v, window, sink, layers, videos):
    """Keep two counters a layer on the device, and read them several times in each layer and pass."""
    return stretch(k, v, window, sink, layers, videos, COUNTED)


def one_read(k, v, window, sink, layers, videos):
    """Read them once a pass, for all layers."""
    return stretch(k, v, window, sink, layers, videos, SHARED)


def host_ints(k, v, window, sink, layers, videos):
    """Count on the host, once a pass for all layers."""
    return stretch(k, v, window, sink, layers, videos, HOST)


def host_ring(k, v, window, sink, layers, videos):
    """And roll nothing."""
    return stretch(k, v, window, sink, layers, videos, HOST_RING)


def device_position(k, v, window, sink, layers, videos):
    """Leave the position on the device and write a ring through slots computed there: nothing is read, nothing waits."""
    return stretch(k, v, window, sink, layers, videos, POSITIONED)


def by_position(k, v, window, sink, layers, videos):
    """Put each layer's last turns side by side, and pick positions: no cache takes part."""
    blocks, passes, count = len(k) // videos, k.shape[1], k.shape[3]
    total = blocks * count
    at = [*range(min(sink, total)), *range(max(sink, total - window + sink), total)]
    chosen = torch.tensor(at, device=k.device)

    def pick(x, video, layer):
        last = x[video * blocks : (video + 1) * blocks, (passes - 1 + layer) % passes]
        return torch.cat([*last], dim=1).index_select(1, chosen)

    return [[tuple(pick(x, video, layer) for x in (k, v)) for layer in range(layers)] for video in range(videos)]


# -- deliberately wrong -----------------------------------------------------------------------------------------------

EACH_LAYER = HOST._replace(begin=the_start, write=roll_write)
"""Right: every layer counts for itself."""


def first_and_start(caches, start, count):
    return start, caches[0]


def write_by_first(cache, k, v, pass_):
    start, first = pass_
    cache["end"] = first["end"]
    roll_write(cache, k, v, start)


def one_counter_for_all(k, v, window, sink, layers, videos):
    """Share one count of what was seen, so that the first layer makes a block known to all others."""
    way = EACH_LAYER._replace(begin=first_and_start, write=write_by_first)
    return stretch(k, v, window, sink, layers, videos, way)


def write_as_new(cache, k, v, start):
    if cache["window"] < cache["end"] == start + k.shape[1]:
        move_left(cache, k.shape[1], cache["window"] - cache["sink"] - k.shape[1])
    roll_write(cache, k, v, start)


def evicts_every_pass(k, v, window, sink, layers, videos):
    """Roll in every pass, as the replay of a graph does that was captured while a new block came in."""
    return stretch(k, v, window, sink, layers, videos, EACH_LAYER._replace(write=write_as_new))


def write_behind(cache, k, v, start):
    roll_write(cache, k, v, cache["end"])


def counts_every_pass(k, v, window, sink, layers, videos):
    """Take each pass for a block of its own."""
    return stretch(k, v, window, sink, layers, videos, EACH_LAYER._replace(write=write_behind))


def slots_and_advance(caches, start, count):
    slots = slots_of_block(caches, start, count)
    advance(caches, count)
    return slots


def advances_by_pass(k, v, window, sink, layers, videos):
    """Advance the position on the device with every pass instead of every block."""
    way = POSITIONED._replace(begin=slots_and_advance, commit=nothing_more)
    return stretch(k, v, window, sink, layers, videos, way)


def counters_not_reset(k, v, window, sink, layers, videos):
    """Begin a video with the counters of the one before."""
    return stretch(k, v, window, sink, layers, videos, COUNTED._replace(reset=lambda caches: None))


def overflows(k, window, videos, **_):
    return len(k) // videos * k.shape[3] > window


def rolls(k, window, sink, videos, **_):
    """Say whether anything older than a block ever moves."""
    return overflows(k, window, videos) and k.shape[3] < window - sink


def passes_differ(k, window, sink, **_):
    """Say whether more than a block is kept, and more than one pass made it."""
    return k.shape[1] > 1 and k.shape[3] < window - sink


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(block=3, tokens=2, layers=3, passes=2, heads=2, size=4, dtype="float32")

# 352 x 640 with three denoise passes, and 480 x 832 with four.
MATRIX_GAME = dict(block=3, tokens=880, dtype="bfloat16")
SELF_FORCING = dict(block=3, tokens=1560, passes=5, dtype="bfloat16")

kv_index_host = Operator(
    "kv_index_host",
    baseline=device_counters,
    variants={
        "one_read": one_read,
        "host_ints": host_ints,
        "host_ring": host_ring,
        "device_position": device_position,
    },
    inputs=inputs,
    cases={
        "edge": [
            dict(TINY, window=6, blocks=1),
            dict(TINY, window=6, blocks=4),
            dict(TINY, window=7, blocks=5),
            dict(TINY, window=7, blocks=5, passes=1),
            dict(TINY, window=3, blocks=3),
            dict(TINY, window=7, blocks=4, sink=1),
            dict(TINY, window=7, blocks=4, sink=4),
            dict(TINY, window=7, blocks=2, videos=2),
            dict(TINY, window=7, blocks=4, videos=2, sink=1),
            dict(TINY, window=7, blocks=4, batch=2),
            dict(TINY, window=7, blocks=4, layers=1),
            dict(TINY, window=7, blocks=4, dtype="float64"),
            dict(TINY, window=7, blocks=4, dtype="float16"),
        ],
        "smoke": [
            dict(window=7, block=3, tokens=4, blocks=5, layers=4, heads=2, size=8, dtype="float32"),
            dict(window=6, block=3, tokens=4, blocks=4, layers=4, heads=2, size=8, sink=1, dtype="bfloat16"),
        ],
        "real": [
            dict(MATRIX_GAME, window=6, blocks=10),
            dict(MATRIX_GAME, window=6, blocks=10, sink=1),
            dict(MATRIX_GAME, window=7, blocks=10, layers=4),
            dict(SELF_FORCING, window=9, blocks=7, layers=4),
        ],
        "headline": [dict(MATRIX_GAME, window=15, blocks=10)],
    },
    impostors={
        "one_counter_for_all": Variant(one_counter_for_all, valid=lambda layers, **rest: layers > 1 and rolls(**rest)),
        "evicts_every_pass": Variant(evicts_every_pass, valid=lambda k, **rest: k.shape[1] > 1 and rolls(k, **rest)),
        "counts_every_pass": Variant(counts_every_pass, valid=passes_differ),
        "advances_by_pass": Variant(
            advances_by_pass, valid=lambda k, videos, **rest: len(k) > videos and passes_differ(k, **rest)
        ),
        "counters_not_reset": Variant(
            counters_not_reset, valid=lambda videos, **rest: videos > 1 and overflows(videos=videos, **rest)
        ),
    },
    oracle=by_position,
    tolerance=EXACT,
    cost=cost,
    source="Self-Forcing, Matrix-Game-2: CausalWanSelfAttention; lingbot-world #51; FastVideo #1660, #1687",
    claims=[
        Claim(
            syncs=(6044, 434),
            device="8 GPUs of the Hopper generation",
            source="lingbot-world #51",
            cases=[dict(block=3, blocks=10, tokens=880, window=15, dtype="bfloat16")],
            shape="a whole generation with its model; reads by .item()",
        ),
    ],
)
