"""What the pairs of `causal.py` are given: seeded weights, a cache that earlier frames filled, and what it costs.

The weights are scaled so that activations stay of order one through all layers, attention looks at some tens of keys rather than at
all alike, and each branch is a visible part of the sum: else an error in one would be lost in the rounding of the others.
"""

from typing import NamedTuple

import torch
from dit_layers import POSITIONS, Block, Widths
from dit_wan import CausalWan
from torch import nn

from pairbench import Cost

SHARP = 1.5
"""Mean weight of the norms of queries and keys: with both, scores have a standard deviation of about 2.2."""
BRANCH = 0.3
"""Standard deviation of gates, shifts and scales."""
SHIFT = 5.0
"""Of the noise schedule, towards noise."""
STEPS = {1: (1000,), 2: (1000, 500), 3: (1000, 666, 333), 4: (1000, 750, 500, 250)}
"""The time steps of so many denoising passes."""


class Size(NamedTuple):
    """A model and the frames that it makes."""

    dim: int
    heads: int
    ffn: int
    rows: int
    columns: int
    """Patches of a frame, of 2 x 2 latents each."""
    tokens: int
    """Of a prompt."""
    context: int
    """Channels of these."""
    condition: int
    """Channels beside the latents."""


SIZES = {
    # Few tokens, for each costs Triton's interpreter 0.1 s a layer; more channels, for the largest error of few numbers is luck.
    "tiny": Size(dim=256, heads=2, ffn=512, rows=1, columns=2, tokens=5, context=24, condition=4),
    "narrow": Size(dim=192, heads=2, ffn=768, rows=4, columns=6, tokens=17, context=48, condition=20),
    # Matrix-Game-2 at 352 x 640: 880 tokens a frame, an image for prompt.
    "mg2": Size(dim=1536, heads=12, ffn=8960, rows=22, columns=40, tokens=257, context=1280, condition=20),
    # Self-Forcing, which is Wan 2.1's 1.3 B, and Wan 2.1's 14 B at 480 x 832: 1560 tokens a frame, text for prompt.
    "sf": Size(dim=1536, heads=12, ffn=8960, rows=30, columns=52, tokens=512, context=4096, condition=0),
    "wan14b": Size(dim=5120, heads=40, ffn=13824, rows=30, columns=52, tokens=512, context=4096, condition=0),
}


def warped(t):
    """Return the part of noise at a time step of 1000."""
    return SHIFT * t / (1000 + (SHIFT - 1) * t)


# -- weights ----------------------------------------------------------------------------------------------------------


def make_model(make, widths, dtype):
    """Return the whole transformer with seeded weights."""
    with torch.device("meta"):
        model = CausalWan(widths)
    model = _filled(model, make, dtype)
    model.freqs = frequencies(widths.dim // widths.heads, make.device)
    model.scheduler.sigmas = warped(torch.arange(1000, 0, -1, dtype=torch.float64, device=make.device))
    return model


def make_block(make, widths, dtype):
    """Return one layer with seeded weights."""
    with torch.device("meta"):
        block = Block(widths)
    return _filled(block, make, dtype)


def frequencies(d, device):
    """Return e^{i * position * frequency}, [1024, d / 2]: pairs of channels for frame, row and column side by side."""

    def of(channels):
        powers = torch.arange(0, channels, 2, dtype=torch.float64, device=device) / channels
        angles = torch.outer(torch.arange(POSITIONS, dtype=torch.float64, device=device), 10000.0**-powers)
        return torch.polar(torch.ones_like(angles), angles)

    return torch.cat([of(d - 4 * (d // 6)), of(2 * (d // 6)), of(2 * (d // 6))], dim=1)


def _filled(module, make, dtype):
    for path, parameter in list(module.named_parameters()):
        owner, _, name = path.rpartition(".")
        value = _value(make, path, parameter.shape, dtype)
        setattr(module.get_submodule(owner), name, nn.Parameter(value, requires_grad=False))
    return module


def _value(make, path, shape, dtype):
    if path.endswith("modulation"):
        return make.normal(*shape, dtype=dtype, scale=BRANCH / 3)
    if "norm_" in path:
        sharp = path.endswith(("norm_q.weight", "norm_k.weight"))
        return make.normal(*shape, dtype=dtype, mean=SHARP if sharp else 1.0, scale=0.1)
    if "norm3" in path:
        return make.normal(*shape, dtype=dtype, mean=1.0 if path.endswith("weight") else 0.0, scale=0.1)
    if path.endswith("bias"):
        return make.normal(*shape, dtype=dtype, scale=0.1 * _gain(path))
    return make.normal(*shape, dtype=dtype, scale=_gain(path) * shape[1:].numel() ** -0.5)


def _gain(path):
    if "cross_attn.o" in path:
        return 1.0  # of what was averaged over some tens of values, and no gate makes it less
    if "self_attn.o" in path:
        return 4.0
    if "time_projection" in path:
        return BRANCH * 2  # SiLU leaves half
    return 1.0


# -- inputs -----------------------------------------------------------------------------------------------------------


def model_inputs(make, model, layers, window, block, blocks, steps, first, dtype, b=1):
    """Return a stretch of decoding: so many blocks of frames behind the first ones, of which the cache holds the newest.

    Args:
        model: Its size, see `SIZES`.
        layers: Of the transformer.
        window: Frames that the cache holds.
        block: Frames that are denoised together.
        blocks: Of a call.
        steps: Denoising passes of a block; one more puts the result into the cache.
        first: Frames before the first block.
    """
    size = SIZES[model]
    widths = Widths(size.dim, size.heads, size.ffn, layers, context=size.context, condition=size.condition)
    pixels = (blocks * block, 2 * size.rows, 2 * size.columns)
    return {
        "model": make_model(make, widths, dtype),
        "noise": make.normal(b, widths.latent, *pixels, dtype=dtype),
        "fresh": make.normal(steps - 1, b, widths.latent, *pixels, dtype=dtype),
        "condition": make.normal(b, size.condition, *pixels, dtype=dtype),
        "context": make.normal(b, size.tokens, size.context, dtype=dtype),
        "cache": _cache(make, size, layers, b, window, first, dtype),
        "block": block,
        "steps": steps,
        "first": first,
    }


def block_inputs(make, model, window, block, first, dtype, b=1):
    """Return what one layer is given in a pass that repeats a block: its slots in the cache are written once more."""
    size = SIZES[model]
    d = size.dim // size.heads
    return {
        "layer": make_block(make, Widths(size.dim, size.heads, size.ffn, 1), dtype),
        "freqs": frequencies(d, make.device),
        "x": make.normal(b, block * size.rows * size.columns, size.dim, dtype=dtype),
        "e": make.normal(b, block, 6, size.dim, dtype=dtype, scale=BRANCH),
        "prompt": {
            "k": make.normal(b, size.tokens, size.heads, d, dtype=dtype, scale=SHARP),
            "v": make.normal(b, size.tokens, size.heads, d, dtype=dtype),
        },
        "cache": _cache(make, size, 1, b, window, first + block, dtype),
        "grid": (block, size.rows, size.columns),
        "first": first,
    }


def _cache(make, size, layers, b, window, written, dtype):
    """Return keys as sharp as those that norms make, and values; frames that nobody has written are zero."""
    tokens = size.rows * size.columns
    shape = (layers, b, window * tokens, size.heads, size.dim // size.heads)
    k, v = make.normal(*shape, dtype=dtype, scale=SHARP), make.normal(*shape, dtype=dtype)
    k[:, :, written * tokens :], v[:, :, written * tokens :] = 0, 0
    return {"k": k, "v": v}


# -- what it costs ----------------------------------------------------------------------------------------------------


def _pass_flops(size, tokens, seen):
    """Return a layer's operations for tokens that see so many others: six products with dim^2, the ffn, the scores."""
    products = 2 * tokens * (6 * size.dim**2 + 2 * size.dim * size.ffn)
    return products + 4 * tokens * (seen + size.tokens) * size.dim


def block_cost(model, window, block, first, dtype, b=1):
    """Read the layer, what it is given and the visible window once; write its output and the block's keys and values."""
    size = SIZES[model]
    tokens = block * size.rows * size.columns
    seen = min(window, first + block) * size.rows * size.columns
    weights = 6 * size.dim**2 + 2 * size.dim * size.ffn
    elements = weights + b * size.dim * (2 * tokens + 2 * seen + 2 * size.tokens)
    return Cost(flops=float(b * _pass_flops(size, tokens, seen)), bytes=float(elements * _bytes(dtype)))


def model_cost(model, layers, window, block, blocks, steps, first, dtype, b=1):
    """Count the products of every pass; read all weights once and the window once, and write what is new in it.

    A prompt's keys count once; embeddings and the head, which are small, not at all.
    """
    size = SIZES[model]
    frame = size.rows * size.columns
    seen = [min(window, first + (i + 1) * block) * frame for i in range(blocks)]
    passes = sum((steps + 1) * _pass_flops(size, block * frame, each) for each in seen)
    prompt = 4 * size.tokens * size.dim**2
    weights = 8 * size.dim**2 + 2 * size.dim * size.ffn
    moved = 2 * b * size.dim * frame * (min(window, first) + min(window, blocks * block))
    return Cost(flops=float(b * layers * (passes + prompt)), bytes=float(layers * (weights + moved) * _bytes(dtype)))


def _bytes(dtype):
    return getattr(torch, dtype).itemsize
