"""What the pairs of `ring.py` and `ring_attention.py` have in common: their cases, and caches that are deliberately wrong."""

from kv_stream import RING, ring_write, stream

from pairbench import Variant, grid


def projections(make, amount, window, block, tokens, blocks, passes, heads, size, sink, videos, batch, layout, dtype):
    """Return queries, keys, values or some of them, for every pass; packed, they are views of what one product made."""
    rows = (videos * blocks, passes, batch, block * tokens)
    if layout == "packed":
        return make.normal(*rows, amount, heads, size, dtype=dtype).unbind(4)
    return tuple(make.normal(*rows, heads, size, dtype=dtype) for _ in range(amount))


def positions(end, window, sink):
    """Return the positions that a query sees when its block ends at `end`."""
    return [*range(min(sink, end)), *range(max(sink, end - window + sink), end)]


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def advancing_write(cache, k, v, start):
    """Advance with every call, so that the passes over a block take slots of their own."""
    ring_write(cache, k, v, cache["end"])


def cut_write(cache, k, v, start):
    """Write one slice at the head, without looking whether the end of the ring is in it; what does not fit is lost."""
    slot, count = start % cache["window"], k.shape[1]
    fits = min(count, cache["window"] - slot)
    cache["k"][:, slot : slot + fits] = k[:, :fits]
    cache["v"][:, slot : slot + fits] = v[:, :fits]
    cache["end"] = start + count


def first_pass_write(cache, k, v, start):
    """Take a block for known as soon as one pass has written it, so that the clean latents never get in."""
    if start + k.shape[1] > cache["end"]:
        ring_write(cache, k, v, start)


ADVANCING, CUT, FIRST_PASS = (RING._replace(write=write) for write in (advancing_write, cut_write, first_pass_write))


def advances_every_call(k, v, window, sink, videos, **attending):
    return stream(k, v, window, sink, videos, ADVANCING, **attending)


def writes_past_end(k, v, window, sink, videos, **attending):
    return stream(k, v, window, sink, videos, CUT, **attending)


def keeps_first_pass(k, v, window, sink, videos, **attending):
    return stream(k, v, window, sink, videos, FIRST_PASS, **attending)


def forgets_sink(k, v, window, sink, videos, **attending):
    """Let the ring go over the video's first tokens."""
    return stream(k, v, window, 0, videos, RING, **attending)


def several_passes(k, **_):
    return k.shape[1] > 1


def passes_displace(k, window, sink, **_):
    """Say whether a pass that has slots of its own drives others out: one that fills the ring does it anyway."""
    return k.shape[1] > 1 and (k.shape[3] < window or sink > 0)


def wraps(k, window, videos, **_):
    return _wraps(k, window, range(0, len(k) // videos * k.shape[3], k.shape[3]))


def ends_wrapped(k, window, videos, **_):
    """Say whether a block that is in the window at the end wrapped."""
    total = len(k) // videos * k.shape[3]
    return _wraps(k, window, [at for at in range(0, total, k.shape[3]) if at + k.shape[3] > total - window])


def _wraps(k, window, starts):
    return any(start % window + k.shape[3] > window for start in starts)


def overflows_with_sink(k, window, sink, videos, **_):
    return sink > 0 and len(k) // videos * k.shape[3] > window


SHARED_IMPOSTORS = {
    "advances_every_call": Variant(advances_every_call, valid=passes_displace),
    "keeps_first_pass": Variant(keeps_first_pass, valid=several_passes),
    "forgets_sink": Variant(forgets_sink, valid=overflows_with_sink),
}

# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(block=3, tokens=4, passes=2, heads=2, size=8, dtype="float32")
EDGE = [
    dict(TINY, window=6, blocks=1),  # not yet full
    dict(TINY, window=6, blocks=2),  # just full
    dict(TINY, window=7, blocks=3),  # the first block that wraps
    dict(TINY, window=7, blocks=6),  # more than twice round
    dict(TINY, window=7, blocks=4, passes=1),
    dict(TINY, window=3, blocks=3),  # the window is the block
    dict(TINY, window=2, blocks=3),  # and shorter than it
    dict(TINY, window=7, blocks=5, sink=1),
    dict(TINY, window=6, blocks=4, sink=3),
    dict(TINY, window=7, blocks=3, sink=4),  # the block just fits beside the sink
    dict(TINY, window=7, blocks=4, sink=5),  # it does not, and the sink fills over two blocks
    dict(TINY, window=2, blocks=3, sink=1),
    dict(TINY, window=7, blocks=1, videos=2),  # a new video before the window was full
    dict(TINY, window=7, blocks=2, videos=3, sink=1),
    dict(TINY, window=4, blocks=3, videos=2),
    dict(TINY, window=7, blocks=4, batch=2),
    dict(TINY, window=7, blocks=4, batch=2, sink=1, layout="packed"),
    dict(TINY, window=7, blocks=3, heads=3, size=5),
    dict(TINY, window=5, block=1, tokens=1, blocks=7),
    dict(TINY, window=7, blocks=4, dtype="float64"),
    dict(TINY, window=7, blocks=4, dtype="float16"),
]
SMOKE = [
    *grid(window=[6, 7], block=[3], tokens=[4], blocks=[5], heads=[2], size=[8], dtype=["float32"]),
    dict(window=7, block=3, tokens=4, blocks=4, passes=2, heads=2, size=8, sink=1, videos=2, dtype="bfloat16"),
]
# Matrix-Game-2 at 352 x 640, three denoise passes and the clean one; Self-Forcing at 480 x 832, four and the clean one.
MATRIX_GAME = dict(block=3, tokens=880, dtype="bfloat16")
SELF_FORCING = dict(block=3, tokens=1560, passes=5, dtype="bfloat16")
REAL = [
    dict(MATRIX_GAME, window=6, blocks=6),
    dict(MATRIX_GAME, window=7, blocks=6),
    dict(MATRIX_GAME, window=6, blocks=6, sink=1),
    dict(MATRIX_GAME, window=6, blocks=4, videos=2),
    dict(MATRIX_GAME, window=6, blocks=6, layout="packed"),
    dict(MATRIX_GAME, window=6, blocks=6, batch=2),
]
HEADLINE = [dict(MATRIX_GAME, window=15, blocks=10), dict(SELF_FORCING, window=21, blocks=10)]
