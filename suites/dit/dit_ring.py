"""The step that takes the host out of the device's way: a ring in place of the rolling cache, and every index a number of Python.

Nothing is read back, nothing but a block's own keys and values is moved, and every pass over a full window has the same
shapes at the same addresses: it is what makes a CUDA graph possible.
"""

import dit_layers
import dit_wan
from dit_casts import SingleScheduler
from dit_compile import COMPILE
from dit_fusion import FusedBlock


class Ring(dit_layers.Cache):
    """A frame's slot follows from its number, so that passes over a block write to the same slots and nothing is advanced.

    Keys were rotated to where they are, and attention asks no more: in what order they lie is all the same to it.
    """

    def forward(self, held, k, v, start):
        """Write a block whose first token is `start`, in two pieces if the ring ends within it."""
        count, size = k.shape[1], held.k.shape[1]
        slot = start % size
        begin = min(count, size - slot)
        for buffer, values in ((held.k, k), (held.v, v)):
            buffer[:, slot : slot + begin] = values[:, :begin]
            if begin < count:
                buffer[:, : count - begin] = values[:, begin:]
        seen = min(start + count, size)
        return held.k[:, :seen], held.v[:, :seen]


class RingBlock(FusedBlock):
    """Has no counters."""

    def open(self, k, v, written):
        """Return the cache; how much of it has been written follows from where the next block begins."""
        return dit_layers.KeyValues(k, v, None, None)


class PromptOnce(dit_wan.CausalWan):
    """Embeds a prompt once, as its keys and values are made once."""

    def open_prompt(self, context):
        """Embed a prompt's tokens."""
        return self.context_embedding(context)

    def embed_context(self, context):
        """Return what `open_prompt` made."""
        return context


class HostScheduler(SingleScheduler):
    """Knows sigma."""

    def clean(self, x, flow, t):
        """Return the latents behind noisy ones."""
        return x.sub(flow, alpha=t / 1000)

    def noisy(self, x, noise, t):
        """Return latents made noisy."""
        return x.lerp(noise, t / 1000)


RING = COMPILE | {
    dit_layers.Cache: Ring,
    dit_layers.Block: RingBlock,
    dit_wan.CausalWan: PromptOnce,
    dit_wan.Scheduler: HostScheduler,
}


def ring_valid(cache, tokens, begin, end):
    """Say whether ring and rolling window lie alike before and after a call: the cache is judged as it lies.

    Args:
        cache: Of keys and values.
        tokens: Of a frame.
        begin: Frames before the call.
        end: Frames behind it.
    """
    window = cache["k"].shape[2] // tokens
    for frames in (begin, end):
        if frames > window and frames % window:
            return (
                f"frame {frames} is amid a turn of a ring of {window}, where it lies otherwise than the rolling window"
            )
    return True
