"""Rotary position embedding over a video's frames, rows and columns: queries and keys turned in pairs.

The plain form works one sample at a time in complex128: to float64, times a table's numbers, joined with what follows the
video, stacked, rounded back. Six to eight kernels for each tensor, and some 68 bytes moved for each two-byte value where four
would do. Others compute in single precision, as complex or as real numbers, operator by operator; or in one kernel.

The contract: `q` and `k` are [batch, tokens, heads, dim], values 2i and 2i + 1 of a head are a pair. `sizes` holds frames, rows
and columns of each sample, whose tokens come in that order; the video begins at `start_frame`, and tokens behind it stay as
they are. `freqs` is the table of complex128 numbers that `rope_angles` describes, 1024 places of it as a rule. Angles are
computed in float64 by all, for in float32 the far ones lose what matters; what is rounded is their sines and cosines. The
results have q's dtype and lie packed. Sizes are numbers of the host: the published code reads them from the device, which
waits for it.
"""

from __future__ import annotations

import math

import torch
from kernels_rope import rotate
from rope_angles import from_places, furthest, published, reaching, single_precision, table, widths
from rope_forms import complex64, fits_single, real, real_halves

from pairbench import REASSOCIATED, Claim, Cost, Operator, Variant


def inputs(
    make,
    size,
    heads,
    dim,
    dtype,
    batch=1,
    tail=0,
    start_frame=0,
    positions=1024,
    layout="packed",
    table_layout="rows",
    data="normal",
):
    """`size` is (frames, rows, columns), for all samples or one after another; `tail`: tokens behind the longest video."""
    videos = [tuple(size[at : at + 3]) for at in range(0, len(size), 3)]
    sizes = tuple(videos * batch if len(videos) == 1 else videos)
    tokens = max(map(math.prod, sizes)) + tail
    freqs = table(positions, dim, make.device)
    q, k = _heads(make, len(sizes), tokens, heads, dim, dtype, layout)
    if data == "infinite_tail":
        k[:, tokens - tail :, :, ::2] = math.inf
    return {
        "q": q,
        "k": k,
        "freqs": freqs.T.contiguous().T if table_layout == "columns" else freqs,
        "sizes": sizes,
        "start_frame": start_frame,
    }


def _heads(make, batch, tokens, heads, dim, dtype, layout):
    if layout == "qkv":  # two of the three parts of one projection
        parts = make.normal(batch, tokens, 3, heads, dim, dtype=dtype)
        return parts[:, :, 0], parts[:, :, 1]
    if layout == "heads_first":
        return (make.normal(batch, heads, tokens, dim, dtype=dtype).transpose(1, 2) for _ in range(2))
    if layout == "every_other":
        return (make.normal(batch, tokens, heads, 2 * dim, dtype=dtype)[..., ::2] for _ in range(2))
    return (make.normal(batch, tokens, heads, dim, dtype=dtype) for _ in range(2))


def cost(size, heads, dim, dtype, batch=1, tail=0, **_):
    """Four multiplications and two additions a pair; of the table, only what is read of it in single precision."""
    videos = [math.prod(size[at : at + 3]) for at in range(0, len(size), 3)]
    videos = videos * batch if len(videos) == 1 else videos
    values = 2 * len(videos) * (max(videos) + tail) * heads * dim
    angles = 8 * sum(n * places for n, places in zip(widths(dim), size, strict=False))
    turned = 2 * sum(videos) * heads * dim
    return Cost(flops=3.0 * turned, bytes=float(2 * values * getattr(torch, dtype).itemsize + angles))


# -- implementations --------------------------------------------------------------------------------------------------


def complex128(q, k, freqs, sizes, start_frame):
    """The published function, for queries and for keys."""
    return published(q, freqs, sizes, start_frame), published(k, freqs, sizes, start_frame)


def fused(q, k, freqs, sizes, start_frame, cos, sin):
    """One kernel for queries and keys."""
    return rotate(q, k, cos, sin, sizes, start_frame)


# -- what is valid ----------------------------------------------------------------------------------------------------


def fits_kernel(q, k, freqs, sizes, start_frame):
    if (fits := fits_single(q, k, freqs, sizes, start_frame)) is not True:
        return fits
    if q.stride(3) != 1 or k.stride(3) != 1:
        return "the values of a head do not lie side by side"
    return True


def angles_anew(q, k, freqs, sizes, start_frame):
    return from_places(q, sizes, start_frame), from_places(k, sizes, start_frame)


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def rotate_half(q, k, freqs, sizes, start_frame):
    """Pair value i of a head with value i + dim / 2, as other models do."""

    def halves_apart(x):
        return x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)

    turned = complex128(halves_apart(q), halves_apart(k), freqs, sizes, start_frame)
    return tuple(x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) for x in turned)


def from_the_first_frame(q, k, freqs, sizes, start_frame):
    """Forget where in the stream the frames belong."""
    return complex128(q, k, freqs, sizes, 0)


def turned_back(q, k, freqs, sizes, start_frame):
    """Turn the other way round, which attention between rotated queries and keys alone would never show."""
    return complex128(q, k, reaching(freqs, sizes, start_frame).conj().resolve_conj(), sizes, start_frame)


def queries_alone(q, k, freqs, sizes, start_frame):
    return published(q, freqs, sizes, start_frame), k.clone()


def columns_before_rows(q, k, freqs, sizes, start_frame):
    """Take tokens to run down the columns."""
    frames, rows, columns = sizes[0]

    def other_way(x):
        return x[:, : frames * rows * columns].unflatten(1, (frames, rows, columns)).transpose(2, 3).flatten(1, 3)

    turned = complex128(other_way(q), other_way(k), freqs, [(frames, columns, rows)] * len(sizes), start_frame)
    return tuple(x.unflatten(1, (frames, columns, rows)).transpose(2, 3).flatten(1, 3) for x in turned)


def flat_places(q, k, freqs, sizes, start_frame):
    """Take the tokens for a text: one place after another, the same for all pairs."""
    tokens = [math.prod(size) for size in sizes]
    line = reaching(freqs, [(count, 1, 1) for count in tokens], start_frame * tokens[0])

    def turn(x):
        out = x.clone()
        for sample, count in enumerate(tokens):
            pairs = torch.view_as_complex(x[sample, :count].double().unflatten(-1, (-1, 2)).contiguous())
            out[sample, :count] = torch.view_as_real(pairs * line[:count, None]).flatten(-2).type_as(x)
        return out

    return turn(q), turn(k)


def tail_turned(q, k, freqs, sizes, start_frame):
    """Go on behind the video as if there were more frames of it."""
    longer = [(-(-q.shape[1] // (rows * columns)), rows, columns) for _, rows, columns in sizes]
    missing = max(map(math.prod, longer)) - q.shape[1]
    padded = (torch.cat([x, x[:, :missing]], 1) for x in (q, k))
    return tuple(x[:, : q.shape[1]] for x in complex128(*padded, freqs, longer, start_frame))


def tail_dropped(q, k, freqs, sizes, start_frame):
    """Leave zeros behind the video."""
    turned = complex128(q, k, freqs, sizes, start_frame)
    return tuple(
        torch.stack(
            [
                torch.cat([one[: math.prod(size)], one[math.prod(size) :] * 0])
                for one, size in zip(x, sizes, strict=True)
            ]
        )
        for x in turned
    )


def last_place_held(q, k, freqs, sizes, start_frame):
    """Hold places beyond the table at its end."""
    missing = furthest(sizes, start_frame) + 1 - freqs.shape[0]
    return complex128(q, k, torch.cat([freqs, freqs[-1:].expand(missing, -1)]), sizes, start_frame)


def half_angles(q, k, freqs, sizes, start_frame):
    """Keep sines and cosines in bfloat16, as a model's cast to it does with a table that is no exception."""
    coarse = torch.view_as_complex(torch.view_as_real(reaching(freqs, sizes, start_frame)).bfloat16().double())
    return complex128(q, k, coarse, sizes, start_frame)


def some_turned(sizes, start_frame, **_):
    return furthest(sizes, start_frame) > 0


def some_paired(q, sizes, start_frame, **_):
    return q.shape[3] > 2 and some_turned(sizes, start_frame)


def later(start_frame, **_):
    return start_frame > 0


def one_kind_of_oblong(q, sizes, **_):
    return len(set(sizes)) == 1 and sizes[0][1] != sizes[0][2] and q.shape[1] == math.prod(sizes[0]) and q.shape[3] >= 6


def several_rows(q, sizes, **_):
    return min(size[1] for size in sizes) > 1 and q.shape[3] >= 6


def has_tail(q, k, sizes, **_):
    return bool(k.isfinite().all()) and q.shape[1] - min(map(math.prod, sizes)) > 0


def beyond_table(freqs, sizes, start_frame, **_):
    return furthest(sizes, start_frame) >= freqs.shape[0]


def fine_enough(q, sizes, start_frame, **_):
    return q.dtype in (torch.float32, torch.float64) and some_turned(sizes, start_frame)


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(size=(1, 2, 3), heads=2, dim=32)
VIDEO = dict(size=(2, 2, 3), heads=2, dim=16)

EDGE = [
    dict(TINY, dtype="float64"),
    dict(TINY, dtype="float16"),
    dict(VIDEO, start_frame=5, dtype="float32"),
    dict(TINY, tail=7, dtype="float32"),
    dict(VIDEO, tail=7, start_frame=3, dtype="bfloat16"),
    dict(TINY, tail=3, data="infinite_tail", dtype="float32"),
    dict(TINY, table_layout="columns", start_frame=2, dtype="float32"),
    dict(TINY, layout="qkv", tail=2, dtype="bfloat16"),
    dict(TINY, layout="heads_first", batch=2, dtype="float32"),
    dict(TINY, layout="every_other", dtype="float32"),
    dict(VIDEO, positions=8, start_frame=6, dtype="float32"),  # the table's last place
    dict(VIDEO, positions=8, start_frame=7, dtype="float32"),
    dict(VIDEO, start_frame=1023, dtype="float32"),
    dict(size=(1, 1, 9), heads=1, dim=12, positions=8, dtype="bfloat16"),
    dict(TINY, batch=2, tail=1, dtype="float32"),
    dict(size=(1, 2, 3, 1, 2, 3, 3, 2, 1, 1, 2, 4), heads=2, dim=16, dtype="float32"),  # four videos, three sizes
    dict(size=(2, 1, 3), heads=3, dim=12, dtype="float32"),  # neither heads nor pairs are a power of two
    dict(size=(1, 2, 3), heads=7, dim=20, start_frame=1, dtype="float16"),
    dict(size=(1, 2, 2), heads=1, dim=2, start_frame=3, dtype="float32"),  # one pair, which turns with the frame
    dict(size=(1, 1, 1), heads=12, dim=128, start_frame=17, dtype="bfloat16"),
    dict(size=(1, 2, 2), heads=40, dim=128, start_frame=900, dtype="bfloat16"),
    dict(size=(1, 1, 1), heads=1, dim=16, dtype="float32"),  # at the origin nothing turns
]

SMOKE = [
    dict(size=(2, 3, 4), heads=2, dim=16, dtype="float32"),
    dict(size=(2, 3, 4), heads=2, dim=16, start_frame=3, dtype="bfloat16"),
]

# Tokens of a 14B model's video have 40 heads, of a 1.3B model's 12, of TI2V-5B's 24; all of 128.
MATRIX_GAME = (3, 22, 40)  # three frames of 352 x 640 are a block of 2640 tokens
SELF_FORCING = (3, 30, 52)  # three of 480 x 832: 4680
LONG_480P, LONG_720P = (21, 30, 52), (21, 45, 80)  # 81 frames before the VAE: 32760 and 75600

REAL = [
    dict(size=MATRIX_GAME, heads=12, dim=128, dtype="bfloat16"),
    dict(size=MATRIX_GAME, heads=12, dim=128, start_frame=12, layout="qkv", dtype="bfloat16"),
    dict(size=SELF_FORCING, heads=12, dim=128, start_frame=18, dtype="bfloat16"),
    dict(size=(31, 22, 40), heads=24, dim=128, dtype="bfloat16"),
    dict(size=LONG_480P, heads=40, dim=128, dtype="bfloat16"),
    dict(size=LONG_480P, heads=12, dim=128, dtype="float32"),
    dict(size=LONG_480P, heads=12, dim=128, batch=2, tail=8, dtype="bfloat16"),  # 65536 tokens in all
]

HEADLINE = [
    dict(size=LONG_480P, heads=12, dim=128, dtype="bfloat16"),
    dict(size=LONG_720P, heads=40, dim=128, dtype="bfloat16"),
    dict(size=(21, 60, 104), heads=12, dim=128, dtype="bfloat16"),
]

rope3d = Operator(
    "rope3d",
    baseline=complex128,
    variants={
        "complex64": Variant(complex64, prepare=single_precision, valid=fits_single),
        "real": Variant(real, prepare=single_precision, valid=fits_single),
        "real_halves": Variant(real_halves, prepare=single_precision, valid=fits_single),
        "triton": Variant(fused, prepare=single_precision, valid=fits_kernel, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "rotate_half": Variant(rotate_half, valid=some_paired),
        "from_the_first_frame": Variant(from_the_first_frame, valid=later),
        "turned_back": Variant(turned_back, valid=some_turned),
        "queries_alone": Variant(queries_alone, valid=some_turned),
        "columns_before_rows": Variant(columns_before_rows, valid=one_kind_of_oblong),
        "flat_places": Variant(flat_places, valid=several_rows),
        "tail_turned": Variant(tail_turned, valid=has_tail),
        "tail_dropped": Variant(tail_dropped, valid=has_tail),
        "last_place_held": Variant(last_place_held, valid=beyond_table),
        "half_angles": Variant(half_angles, valid=fine_enough),
    },
    oracle=angles_anew,
    tolerance=REASSOCIATED,
    cost=cost,
    constants=["freqs"],
    source="Wan 2.1 rope_apply; Self-Forcing causal_rope_apply; FastVideo #1245",
    claims=[
        Claim(
            latency_ms=(11.752, 1.396),
            device="NVIDIA A100",
            source="FastVideo #1245",
            cases=[dict(heads=12, dim=128, size=(21, 60, 104), dtype="bfloat16")],
            shape="131,040 tokens of 12 heads",
        ),
        Claim(
            peak_gib=(3.4375, 0.8125),
            device="NVIDIA A100",
            source="FastVideo #1245",
            cases=[dict(heads=12, dim=128, size=(21, 60, 104), dtype="bfloat16")],
            shape="131,040 tokens of 12 heads; 3520 and 832 MB",
        ),
        Claim(
            latency_ms=(16.0, 0.97),
            device="NVIDIA L4",
            source="FastVideo #1245",
            cases=[dict(heads=12, dim=128, size=(21, 30, 52), dtype="bfloat16")],
            shape="32,760 tokens",
        ),
        Claim(
            speedup=0.25,
            implementation="real",
            device="a GPU that is not named",
            source="vllm-omni #5808",
            cases=[dict(heads=12, dim=128, size=(21, 30, 52), dtype="bfloat16")],
            shape="eager real numbers beside eager complex64 ones, sizes not said",
        ),
    ],
)
