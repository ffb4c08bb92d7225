"""Rotations in single precision, operator by operator, by tables of sines and cosines rounded from float64."""

from __future__ import annotations

import math

import torch
from kernels_rope import runs
from rope_angles import furthest, widths


def complex64(q, k, freqs, sizes, start_frame, cos, sin):
    """Complex products in single precision, for all samples of one size at once."""

    def turn(x, factors):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * factors).flatten(-2).type_as(x)

    return _by_size(q, k, (torch.complex(cos, sin),), sizes, start_frame, turn)


def real(q, k, freqs, sizes, start_frame, cos, sin):
    """Real numbers in float32, operator by operator: more kernels than complex ones need, unless a compiler joins them."""

    def turn(x, c, s):
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2).type_as(x)

    return _by_size(q, k, (cos, sin), sizes, start_frame, turn)


def real_halves(q, k, freqs, sizes, start_frame, cos, sin):
    """Real numbers written straight into their places: no stack, and no copy to join what follows the video."""

    def turn(x, c, s):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        even, odd = x[..., ::2].float(), x[..., 1::2].float()
        out[..., ::2] = torch.addcmul(even * c, odd, s, value=-1)
        out[..., 1::2] = torch.addcmul(odd * c, even, s)
        return out

    return _by_size(q, k, (cos, sin), sizes, start_frame, turn)


def _by_size(q, k, tables, sizes, start_frame, turn):
    """Rotate the samples of each size together; their tables are laid out once for queries and keys."""
    rotated = []
    for run, size in runs(sizes):
        tokens = math.prod(size)
        places = [_spread(part, size, start_frame) for part in tables]
        both = (x[run] for x in (q, k))
        turned = ((turn(x[:, :tokens], *places), x[:, tokens:]) for x in both)
        rotated.append([torch.cat(parts, 1) if tokens < q.shape[1] else parts[0] for parts in turned])
    if len(rotated) == 1:
        return tuple(rotated[0])
    return tuple(torch.cat(parts) for parts in zip(*rotated, strict=True))


def _spread(part, size, start_frame):
    """Return a table's numbers for each token of one video, [tokens, 1, pairs]."""
    frames, rows, columns = size
    first, second, third = part.split(widths(2 * part.shape[1]), 1)
    parts = (
        first[start_frame : start_frame + frames, None, None].expand(-1, rows, columns, -1),
        second[None, :rows, None].expand(frames, -1, columns, -1),
        third[None, None, :columns].expand(frames, rows, -1, -1),
    )
    return torch.cat(parts, -1).reshape(frames * rows * columns, 1, -1)


def fits_single(q, k, freqs, sizes, start_frame):
    if q.dtype == torch.float64:
        return "float64 values; sines and cosines are in float32"
    last = furthest(sizes, start_frame)
    if last >= freqs.shape[0]:
        return f"place {last} is beyond the table's {freqs.shape[0]}"
    return True
