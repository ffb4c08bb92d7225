"""Rotary angles of a video's tokens: the table as Wan keeps it, the plain rotation by it, and one that never sees it.

A token's place is its frame, row and column. Of the dim / 2 pairs of neighbouring values the first c - 2 * (c // 3) turn with
the frame, then c // 3 with the row and c // 3 with the column (22, 21 and 21 of 64): pair i of n by place * 10000 ** (-i / n).
"""

from __future__ import annotations

import math

import torch

BASE = 10000.0


def widths(dim):
    """Return how many pairs turn with frame, row and column."""
    third = dim // 2 // 3
    return dim // 2 - 2 * third, third, third


def table(positions, dim, device):
    """Return the unit complex numbers of each position and pair, [positions, dim / 2], in complex128."""
    place = torch.arange(positions, dtype=torch.float64, device=device)
    columns = []
    for width in widths(dim):
        steps = torch.arange(width, dtype=torch.float64, device=device) / max(width, 1)
        columns.append(torch.outer(place, BASE**-steps))
    angle = torch.cat(columns, 1)
    return torch.polar(torch.ones_like(angle), angle)


def reaching(freqs, sizes, start_frame):
    """Return a table that has all places, made anew where the given one ends before them.

    The plain form fails there. Made longer here, so that a kernel that reads on past the table's end is found wrong.
    """
    last = furthest(sizes, start_frame)
    return freqs if last < freqs.shape[0] else table(last + 1, 2 * freqs.shape[1], freqs.device)


def furthest(sizes, start_frame):
    """Return the largest place along any direction."""
    return max(max(start_frame + frames, height, width) - 1 for frames, height, width in sizes)


def factors(freqs, size, start_frame):
    """Return the table's numbers for each token of one video, [tokens, 1, pairs], in the order frame, row, column."""
    frames, height, width = size
    first, second, third = freqs.split(widths(2 * freqs.shape[1]), 1)
    parts = (
        first[start_frame : start_frame + frames].view(frames, 1, 1, -1).expand(frames, height, width, -1),
        second[:height].view(1, height, 1, -1).expand(frames, height, width, -1),
        third[:width].view(1, 1, width, -1).expand(frames, height, width, -1),
    )
    return torch.cat(parts, -1).reshape(frames * height * width, 1, -1)


def published(x, freqs, sizes, start_frame):
    """Rotate x, [batch, tokens, heads, dim], as published: a loop over samples, complex products in double precision.

    Three copies of the input's size go through memory in float64 besides. Only the sizes, which are read from the device there,
    are numbers of the host here.
    """
    freqs = reaching(freqs, sizes, start_frame)
    samples = []
    for one, (frames, height, width) in zip(x, sizes, strict=True):
        tokens = frames * height * width
        pairs = torch.view_as_complex(one[:tokens].to(torch.float64).reshape(tokens, x.shape[2], -1, 2))
        turned = torch.view_as_real(pairs * factors(freqs, (frames, height, width), start_frame)).flatten(2)
        samples.append(torch.cat([turned, one[tokens:]]))
    return torch.stack(samples).type_as(x)


def from_places(x, sizes, start_frame):
    """Rotate x from the places themselves: sines and cosines of angles computed here, in x's precision, in real numbers.

    No table, no complex number and no split of one takes part, and one head after another keeps the temporaries small.
    """
    out = x.clone()
    for sample, (frames, height, width) in enumerate(sizes):
        token = torch.arange(frames * height * width, device=x.device)
        places = (token // (height * width) + start_frame, token // width % height, token % width)
        angles = [
            place[:, None] * torch.exp(torch.arange(n, device=x.device).to(x.dtype) * (-math.log(BASE) / n))
            for place, n in zip(places, widths(x.shape[3]), strict=True)
            if n
        ]
        cos, sin = torch.cat(angles, 1).cos(), torch.cat(angles, 1).sin()
        for head in range(x.shape[2]):
            even, odd = x[sample, : len(token), head, 0::2], x[sample, : len(token), head, 1::2]
            out[sample, : len(token), head, 0::2] = even * cos - odd * sin
            out[sample, : len(token), head, 1::2] = even * sin + odd * cos
    return out


def single_precision(freqs):
    """Return the table rounded to float32: cosines and sines of angles that were computed in float64."""
    return {"cos": freqs.real.to(torch.float32).contiguous(), "sin": freqs.imag.to(torch.float32).contiguous()}
