"""Triton kernels of adaptive layer norm: a row is read once, held in registers, and written once, modulated.

Plain PyTorch passes such a row through memory for every step: cast, normalise, scale, shift, cast. What these kernels
demand of memory is the row and its result alone, if the modulation, which many rows share, stays in the caches:

- A row is cut into pieces of as many values as the program's threads load in 16 bytes each. A model's 1536 or 5120 is
  six or five of them, where the next power of two would leave a quarter or more of the threads without work.
- A warp alone holds up to 2048 values, 64 a thread, and needs no shared memory for its sums; longer rows get more warps.
- Its factors in float32 are four times the bytes of a row of 16-bit values, so that they have to come from the first
  cache: they are marked to stay there and rows to leave early. Where it does not cost too many registers, two rows share them.
- Pieces are tensors of one dimension, all of one length, so that 16-bit rows and their float32 factors lie in the same
  threads; otherwise each piece would be exchanged through shared memory.
- All that is loaded is loaded before anything is stored, for behind a store the compiler cannot move a load forward.

The statistics are those of the row in registers, the mean first and then the squares around it: E[x^2] - E[x]^2 would
save one pass over registers and lose all digits where the mean is large.
"""

from __future__ import annotations

import torch
from kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

LONGEST_ROW = 32768


def modulated(x, shift, scale, eps):
    """Return layer_norm(x) * (1 + scale) + shift of x, [batch, tokens, features], in one launch."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    programs, tile = _tiles(x, scale, rows=2)
    _modulated[(programs,)](
        x, shift, scale, out, *x.stride(), *_steps(shift), *_steps(scale),
        x.shape[1], eps, WIDTH=x.shape[2], BY_HAND=INTERPRETED, **tile,
    )  # fmt: skip
    return out


def gated_and_modulated(x, y, gate, shift, scale, eps):
    """Return the residual x + y * gate and its modulated layer norm, in one launch."""
    residual = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out = torch.empty_like(residual)
    if out.numel() == 0:
        return residual, out
    programs, tile = _tiles(x, scale, rows=1)  # two would take over 190 registers a thread
    _gated_and_modulated[(programs,)](
        x, y, gate, shift, scale, residual, out,
        *x.stride(), *y.stride(), *_steps(gate), *_steps(shift), *_steps(scale),
        x.shape[1], eps, WIDTH=x.shape[2], BY_HAND=INTERPRETED, **tile,
    )  # fmt: skip
    return residual, out


def _steps(modulation):
    """Return the strides from sample to sample, from group to group of tokens, and from feature to feature."""
    return modulation.stride(0), modulation.stride(1), modulation.stride(-1)


def _tiles(x, scale, rows):
    """Return how many programs there are, and what each of them takes: `rows` rows, if there are enough of them."""
    batch, tokens, width = x.shape
    groups = scale.shape[1]
    span = triton.cdiv(tokens, groups)  # tokens of one modulation; the last group may have fewer
    if span == 1 or x.numel() < 2**19:  # nothing to share, or too few rows to fill the device two by two
        rows = 1
    blocks = triton.cdiv(span, rows)
    warps = 1 if width <= 2048 else 2 if width <= 4096 else 4 if width <= 8192 else 8 if width <= 16384 else 16
    piece = min(warps * 32 * 16 // x.element_size(), triton.next_power_of_2(width))
    tile = dict(
        groups=groups, span=span, blocks=blocks, ROWS=rows, BLOCK=piece, PIECES=triton.cdiv(width, piece),
        SHARED=span > 1, num_warps=warps,
    )  # fmt: skip
    return batch * groups * blocks, tile


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _modulated(
    x, shift, scale, out, x_batch, x_token, x_column, shift_batch, shift_group, shift_column,
    scale_batch, scale_group, scale_column, tokens, eps, groups, span, blocks,
    WIDTH: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Normalise and modulate the rows of one program."""
    sample, group, first, end = _place(tokens, groups, span, blocks, ROWS)
    rows = _load_rows(x + sample * x_batch, x_token, x_column, first, end, WIDTH, ROWS, BLOCK, PIECES)
    results = _normed_and_modulated(
        rows, shift + sample * shift_batch + group * shift_group, shift_column,
        scale + sample * scale_batch + group * scale_group, scale_column, eps,
        x.dtype.element_ty, WIDTH, BY_HAND, ROWS, BLOCK, PIECES, SHARED,
    )  # fmt: skip
    _store_rows(out + sample * tokens * WIDTH, results, first, end, WIDTH, ROWS, BLOCK, PIECES)


@_jit
def _gated_and_modulated(
    x, y, gate, shift, scale, residual, out, x_batch, x_token, x_column, y_batch, y_token, y_column,
    gate_batch, gate_group, gate_column, shift_batch, shift_group, shift_column, scale_batch, scale_group, scale_column,
    tokens, eps, groups, span, blocks,
    WIDTH: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Add gated rows to the residual stream, then normalise and modulate it as it is stored, rounded."""
    sample, group, first, end = _place(tokens, groups, span, blocks, ROWS)
    before = _load_rows(x + sample * x_batch, x_token, x_column, first, end, WIDTH, ROWS, BLOCK, PIECES)
    added = _load_rows(y + sample * y_batch, y_token, y_column, first, end, WIDTH, ROWS, BLOCK, PIECES)
    gate += sample * gate_batch + group * gate_group
    sums = ()
    for piece in tl.static_range(PIECES):
        opened = _load_piece(gate, gate_column, piece, WIDTH, BLOCK, SHARED)
        for row in tl.static_range(ROWS):
            product = added[piece * ROWS + row].to(tl.float32) * opened
            total = before[piece * ROWS + row].to(tl.float32) + product
            sums = sums + (rounded(total, x.dtype.element_ty, BY_HAND),)
    results = _normed_and_modulated(
        sums, shift + sample * shift_batch + group * shift_group, shift_column,
        scale + sample * scale_batch + group * scale_group, scale_column, eps,
        x.dtype.element_ty, WIDTH, BY_HAND, ROWS, BLOCK, PIECES, SHARED,
    )  # fmt: skip
    _store_rows(residual + sample * tokens * WIDTH, sums, first, end, WIDTH, ROWS, BLOCK, PIECES)
    _store_rows(out + sample * tokens * WIDTH, results, first, end, WIDTH, ROWS, BLOCK, PIECES)


@_jit
def _place(tokens, groups, span, blocks, ROWS: tl.constexpr):
    """Return the program's sample, group, first token and the end of its tokens; 64-bit, as offsets have to be."""
    place = tl.program_id(0) // blocks
    group = place % groups
    first = group * span + tl.program_id(0) % blocks * ROWS
    end = tl.minimum(tokens, (group + 1) * span)
    return (place // groups).to(tl.int64), group.to(tl.int64), first.to(tl.int64), end


@_jit
def _load_rows(
    base, token_step, column_step, first, end,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Return the pieces of the rows: the first piece of each row, the second of each, and so on."""
    pieces = ()
    for piece in tl.static_range(PIECES):
        column = piece * BLOCK + tl.arange(0, BLOCK)
        for row in tl.static_range(ROWS):
            at = base + (first + row) * token_step + column.to(tl.int64) * column_step
            inside = (column < WIDTH) & (first + row < end)
            pieces = pieces + (tl.load(at, mask=inside, other=0.0, eviction_policy="evict_first"),)
    return pieces


@_jit
def _load_piece(modulation, step, piece: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SHARED: tl.constexpr):
    column = piece * BLOCK + tl.arange(0, BLOCK)
    policy: tl.constexpr = "evict_last" if SHARED else "evict_first"
    at = modulation + column.to(tl.int64) * step
    return tl.load(at, mask=column < WIDTH, other=0.0, eviction_policy=policy).to(tl.float32)


@_jit
def _store_rows(
    base, pieces, first, end, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr
):
    for piece in tl.static_range(PIECES):
        column = piece * BLOCK + tl.arange(0, BLOCK)
        for row in tl.static_range(ROWS):
            inside = (column < WIDTH) & (first + row < end)
            tl.store(base + (first + row) * WIDTH + column, pieces[piece * ROWS + row], mask=inside)


@_jit
def _normed_and_modulated(
    rows, shift, shift_step, scale, scale_step, eps, dtype: tl.constexpr,
    WIDTH: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Return the pieces of the results, in the order of the rows' pieces."""
    statistics = ()
    for row in tl.static_range(ROWS):
        statistics = statistics + _statistics(rows, row, eps, WIDTH, ROWS, BLOCK, PIECES)
    results = ()
    for piece in tl.static_range(PIECES):
        offset = _load_piece(shift, shift_step, piece, WIDTH, BLOCK, SHARED)
        factor = _load_piece(scale, scale_step, piece, WIDTH, BLOCK, SHARED) + 1.0
        for row in tl.static_range(ROWS):
            centred = rows[piece * ROWS + row].to(tl.float32) - statistics[2 * row]
            normed = centred * statistics[2 * row + 1]
            results = results + (rounded(normed * factor + offset, dtype, BY_HAND),)
    return results


@_jit
def _statistics(
    rows, row: tl.constexpr, eps, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr
):
    """Return the mean of a row and the inverse of its standard deviation."""
    total = rows[row].to(tl.float32)
    for piece in tl.static_range(1, PIECES):
        total += rows[piece * ROWS + row].to(tl.float32)
    mean = tl.sum(total, 0) / WIDTH
    squares = tl.zeros((BLOCK,), tl.float32)
    for piece in tl.static_range(PIECES):
        centred = rows[piece * ROWS + row].to(tl.float32) - mean
        if (piece + 1) * BLOCK > WIDTH:
            centred = tl.where(piece * BLOCK + tl.arange(0, BLOCK) < WIDTH, centred, 0.0)
        squares += centred * centred
    return mean, tl.rsqrt(tl.sum(squares, 0) / WIDTH + eps)
