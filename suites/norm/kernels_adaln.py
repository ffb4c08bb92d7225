"""Triton kernels of adaptive layer norm: a row is read once, held in registers, and written once, modulated.

Plain PyTorch passes such a row through memory for every step: cast, normalise, scale, shift, cast. What these kernels
demand of memory is the row and its result alone, if the modulation, which many rows share, stays in the caches:

- A row is cut into pieces of as many values as the program's threads load in 16 bytes each. A model's 1536 or 5120 is
  six or five of them, where the next power of two would leave a quarter or more of the threads without work.
- A thread holds up to 64 values, of the widths of models 24 to 40: with those an H200 reaches 93 to 95 % of a copy's
  bandwidth, with 48 or 80 it was 91 %.
- Its factors in float32 are four times the bytes of a row of 16-bit values, so that they have to come from the first
  cache: they are marked to stay there and rows to leave early. Two rows a program, which would share them, take so many registers that
  fewer programs run at once: 75 % where one row reaches 94 %.
- Pieces are tensors of one dimension, all of one length, so that 16-bit rows and their float32 factors lie in the same
  threads; otherwise each piece would be exchanged through shared memory.
- All that is loaded is loaded before anything is stored, for behind a store the compiler cannot move a load forward.

The statistics are those of the row in registers, the mean first and then the squares around it: E[x^2] - E[x]^2 would
save one pass over registers and lose all digits where the mean is large.
"""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

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
    programs, tile = _tiles(x, scale)
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
    programs, tile = _tiles(x, scale)
    _gated_and_modulated[(programs,)](
        x, y, gate, shift, scale, residual, out,
        *x.stride(), *y.stride(), *_steps(gate), *_steps(shift), *_steps(scale),
        x.shape[1], eps, WIDTH=x.shape[2], BY_HAND=INTERPRETED, **tile,
    )  # fmt: skip
    return residual, out


def _steps(modulation):
    """Return the strides from sample to sample, from group to group of tokens, and from feature to feature."""
    return modulation.stride(0), modulation.stride(1), modulation.stride(-1)


def _tiles(x, scale):
    """Return how many programs there are, a row each, and how a row is cut."""
    batch, tokens, width = x.shape
    groups = scale.shape[1]
    span = triton.cdiv(tokens, groups)  # tokens of one modulation; the last group may have fewer
    warps = 1 if width <= 1024 else 2 if width <= 2048 else 4 if width <= 8192 else 8 if width <= 16384 else 16
    piece = min(warps * 32 * 16 // x.element_size(), triton.next_power_of_2(width))
    tile = dict(
        groups=groups, span=span, BLOCK=piece, PIECES=triton.cdiv(width, piece), SHARED=span > 1, num_warps=warps,
    )  # fmt: skip
    return batch * groups * span, tile


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _modulated(
    x, shift, scale, out, x_batch, x_token, x_column, shift_batch, shift_group, shift_column,
    scale_batch, scale_group, scale_column, tokens, eps, groups, span,
    WIDTH: tl.constexpr, BY_HAND: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Normalise and modulate the row of one program."""
    sample, group, token = _place(groups, span)
    row = _load_row(x + sample * x_batch + token * x_token, x_column, token < tokens, WIDTH, BLOCK, PIECES)
    result = _normed_and_modulated(
        row, shift + sample * shift_batch + group * shift_group, shift_column,
        scale + sample * scale_batch + group * scale_group, scale_column, eps,
        x.dtype.element_ty, WIDTH, BY_HAND, BLOCK, PIECES, SHARED,
    )  # fmt: skip
    _store_row(out + (sample * tokens + token) * WIDTH, result, token < tokens, WIDTH, BLOCK, PIECES)


@_jit
def _gated_and_modulated(
    x, y, gate, shift, scale, residual, out, x_batch, x_token, x_column, y_batch, y_token, y_column,
    gate_batch, gate_group, gate_column, shift_batch, shift_group, shift_column, scale_batch, scale_group, scale_column,
    tokens, eps, groups, span,
    WIDTH: tl.constexpr, BY_HAND: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Add a gated row to the residual stream, then normalise and modulate it as it is stored, rounded."""
    sample, group, token = _place(groups, span)
    before = _load_row(x + sample * x_batch + token * x_token, x_column, token < tokens, WIDTH, BLOCK, PIECES)
    added = _load_row(y + sample * y_batch + token * y_token, y_column, token < tokens, WIDTH, BLOCK, PIECES)
    gate += sample * gate_batch + group * gate_group
    total = ()
    for piece in tl.static_range(PIECES):
        opened = _load_piece(gate, gate_column, piece, WIDTH, BLOCK, SHARED)
        product = added[piece].to(tl.float32) * opened
        total = total + (rounded(before[piece].to(tl.float32) + product, x.dtype.element_ty, BY_HAND),)
    result = _normed_and_modulated(
        total, shift + sample * shift_batch + group * shift_group, shift_column,
        scale + sample * scale_batch + group * scale_group, scale_column, eps,
        x.dtype.element_ty, WIDTH, BY_HAND, BLOCK, PIECES, SHARED,
    )  # fmt: skip
    place = (sample * tokens + token) * WIDTH
    _store_row(residual + place, total, token < tokens, WIDTH, BLOCK, PIECES)
    _store_row(out + place, result, token < tokens, WIDTH, BLOCK, PIECES)


@_jit
def _place(groups, span):
    """Return the program's sample, group of tokens and token, which may lie behind the last one; 64-bit, as offsets have to be."""
    place = tl.program_id(0) // span
    group = place % groups
    token = group * span + tl.program_id(0) % span
    return (place // groups).to(tl.int64), group.to(tl.int64), token.to(tl.int64)


@_jit
def _load_row(row, step, there, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    """Return the pieces of a row."""
    pieces = ()
    for piece in tl.static_range(PIECES):
        column = piece * BLOCK + tl.arange(0, BLOCK)
        at = row + column.to(tl.int64) * step
        pieces = pieces + (tl.load(at, mask=(column < WIDTH) & there, other=0.0, eviction_policy="evict_first"),)
    return pieces


@_jit
def _load_piece(modulation, step, piece: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SHARED: tl.constexpr):
    column = piece * BLOCK + tl.arange(0, BLOCK)
    policy: tl.constexpr = "evict_last" if SHARED else "evict_first"
    at = modulation + column.to(tl.int64) * step
    return tl.load(at, mask=column < WIDTH, other=0.0, eviction_policy=policy).to(tl.float32)


@_jit
def _store_row(row, pieces, there, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    for piece in tl.static_range(PIECES):
        column = piece * BLOCK + tl.arange(0, BLOCK)
        tl.store(row + column, pieces[piece], mask=(column < WIDTH) & there)


@_jit
def _normed_and_modulated(
    row, shift, shift_step, scale, scale_step, eps, dtype: tl.constexpr,
    WIDTH: tl.constexpr, BY_HAND: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Return the pieces of the result."""
    mean, inverse = _statistics(row, eps, WIDTH, BLOCK, PIECES)
    result = ()
    for piece in tl.static_range(PIECES):
        offset = _load_piece(shift, shift_step, piece, WIDTH, BLOCK, SHARED)
        factor = _load_piece(scale, scale_step, piece, WIDTH, BLOCK, SHARED) + 1.0
        normed = (row[piece].to(tl.float32) - mean) * inverse
        result = result + (rounded(normed * factor + offset, dtype, BY_HAND),)
    return result


@_jit
def _statistics(row, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    """Return the mean of a row and the inverse of its standard deviation."""
    total = row[0].to(tl.float32)
    for piece in tl.static_range(1, PIECES):
        total += row[piece].to(tl.float32)
    mean = tl.sum(total, 0) / WIDTH
    squares = tl.zeros((BLOCK,), tl.float32)
    for piece in tl.static_range(PIECES):
        centred = row[piece].to(tl.float32) - mean
        if (piece + 1) * BLOCK > WIDTH:
            centred = tl.where(piece * BLOCK + tl.arange(0, BLOCK) < WIDTH, centred, 0.0)
        squares += centred * centred
    return mean, tl.rsqrt(tl.sum(squares, 0) / WIDTH + eps)
