"""The video decoder on one slab of the pixels: what `vae_wan.Forms` names, for a process that has only some columns or rows.

Everything else in the network concerns one pixel alone, so each process does it for its own. A convolution of 3 x 3 needs
one line of pixels from either neighbour; what it kept of earlier frames stays where it is, and its lines are sent along.
Attention needs the keys and values of all pixels, which at the latents' resolution are few: they are gathered, and each
process attends with its own queries. How tensors get from process to process is not known here.
"""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
import vae_wan
import vae_wan_forms


class Slab(NamedTuple):
    """The part of the pixels that one process has: whole columns, or whole rows."""

    rank: int
    lengths: tuple
    """Of each process's slab along the axis, in latents."""
    axis: int
    """-1 cuts columns apart, -2 rows."""
    exchange: object
    """exchange(sends, receives): sends contiguous tensors to ranks and fills others from ranks; dicts by rank."""

    def forms(self):
        """Return the decoder's forms for this slab."""
        bound = {form.__name__: functools.partial(form, self) for form in (causal, planar, attend)}
        return vae_wan.Forms(**bound)

    def neighbours(self):
        """Return the ranks before and after this one that there are."""
        return [rank for rank in (self.rank - 1, self.rank + 1) if 0 <= rank < len(self.lengths)]


def cut(height, width, processes):
    """Return the axis to cut along, and how much of it each process gets.

    The longer side is cut: its seams are the shorter, and its slabs differ the least. The first ones get what is left over.
    """
    axis = -1 if width >= height else -2
    whole, left = divmod(max(height, width), processes)
    return axis, tuple(whole + (rank < left) for rank in range(processes))


def parts(x, lengths, axis):
    """Return the slabs of a tensor as views; its resolution may be a multiple of the latents'."""
    times = x.shape[axis] // sum(lengths)
    return x.split([times * length for length in lengths], dim=axis)


# -- what looks at other pixels ---------------------------------------------------------------------------------------


def causal(slab, x, cache, layer):
    """Convolve [b, c, t, h, w] with what was kept of earlier frames, or zeros, and the neighbours' lines around it.

    All is put together in one copy, of which the first and last lines come from elsewhere.
    """
    weight = layer["weight"]
    if weight.shape[-1] == 1:  # along time alone, or not at all
        return vae_wan_forms.pad_time(x, cache, layer)
    front = weight.shape[2] - 1
    wide = _with_room(x, slab.axis, frames=front + x.shape[2])
    inside = wide.narrow(slab.axis, 1, x.shape[slab.axis])
    kept = 0 if cache is None else cache.shape[2]
    inside[:, :, : front - kept].zero_()
    if cache is not None:
        inside[:, :, front - kept : front].copy_(cache)
    inside[:, :, front:].copy_(x)
    _fill_lines(slab, wide)
    return F.conv3d(wide, weight, layer["bias"], padding=(0, *_padding_across(slab.axis)))


def planar(slab, x, layer):
    """Convolve images [b * t, c, h, w], with the neighbours' lines around them."""
    if layer["weight"].shape[-1] == 1:
        return vae_wan.planar(x, layer)
    wide = _with_room(x, slab.axis)
    wide.narrow(slab.axis, 1, x.shape[slab.axis]).copy_(x)
    _fill_lines(slab, wide)
    return F.conv2d(wide, layer["weight"], layer["bias"], padding=_padding_across(slab.axis))


def attend(slab, q, k, v):
    """Attend from this slab's pixels, [b * t, 1, pixels, c], to those of all slabs."""
    own = torch.cat([k, v], dim=-1)
    line = own.shape[2] // slab.lengths[slab.rank]
    others = {
        rank: own.new_empty(*own.shape[:2], line * length, own.shape[3])
        for rank, length in enumerate(slab.lengths)
        if rank != slab.rank
    }
    slab.exchange(dict.fromkeys(others, own), others)
    whole = torch.cat([others.get(rank, own) for rank in range(len(slab.lengths))], dim=2)
    return vae_wan.attend(q, *whole.chunk(2, dim=-1))


def _with_room(x, axis, frames=None):
    """Return memory like x with a line more at both ends of an axis, and another number of frames."""
    shape = list(x.shape)
    shape[axis] += 2
    if frames is not None:
        shape[2] = frames
    return x.new_empty(shape)


def _fill_lines(slab, wide):
    """Fill the first and last lines: from the neighbours, or with the zeros that pad the image."""
    last = wide.shape[slab.axis] - 1
    outer = {slab.rank - 1: wide.narrow(slab.axis, 0, 1), slab.rank + 1: wide.narrow(slab.axis, last, 1)}
    inner = {slab.rank - 1: wide.narrow(slab.axis, 1, 1), slab.rank + 1: wide.narrow(slab.axis, last - 1, 1)}
    there = slab.neighbours()
    sent = {rank: inner[rank].contiguous() for rank in there}
    received = {rank: torch.empty_like(sent[rank]) for rank in there}
    slab.exchange(sent, received)
    for rank, line in outer.items():
        if rank in received:
            line.copy_(received[rank])
        else:
            line.zero_()


def _padding_across(axis):
    """Return the padding of height and width that is left to the convolution."""
    return (1, 0) if axis == -1 else (0, 1)


# -- one process's part of a call -------------------------------------------------------------------------------------


def decode_slab(slab, latents, weights, steps, hand_over):
    """Decode a slab of the latents step by step.

    Args:
        slab: Which.
        latents: Its latents, [b, c, n, h, w].
        weights: All of the decoder's.
        steps: Where each begins and ends.
        hand_over: Is given the place of each step's first frame, and the slab's part of its frames.
    """
    forms = slab.forms()
    latents = forms.causal(latents, None, weights["post_quant"])
    caches = vae_wan.fresh_caches(weights)
    for begin, end in steps:
        frames = vae_wan.decode_chunk(latents[:, :, begin:end], weights, caches, forms)
        hand_over(vae_wan.clip_frames(begin), frames.clamp_(-1, 1))
