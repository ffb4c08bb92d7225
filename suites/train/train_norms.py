"""What the norms in training share: their cases, and where kernel and impostors make sense."""

from __future__ import annotations

from kernels_train_norm import LONGEST
from train_common import LLAMA_8B, LLAMA_70B, QWEN_7B, QWEN_32B, computes_in_float32, of

from pairbench import grid

EDGE = [
    dict(tokens=3, hidden=32, dtype="float64"),
    dict(tokens=1, hidden=48, dtype="float32"),
    dict(tokens=5, hidden=33, dtype="bfloat16"),  # no multiple of a vector
    dict(tokens=4, hidden=1536, dtype="float16"),
    dict(tokens=0, hidden=32, dtype="float32"),
]
SMOKE = grid(tokens=[12], hidden=[64], dtype=["float32", "bfloat16"])
REAL = [
    dict(tokens=4096, dtype="bfloat16", **of(LLAMA_8B, "hidden")),
    dict(tokens=8192, dtype="bfloat16", **of(QWEN_7B, "hidden")),
    dict(tokens=8192, dtype="bfloat16", **of(QWEN_32B, "hidden")),
]
HEADLINE = [dict(tokens=16384, dtype="bfloat16", **of(LLAMA_70B, "hidden"))]


def fits(x, **_):
    if x.shape[-1] > LONGEST:
        return f"rows of {x.shape[-1]} values; registers hold {LONGEST}"
    return computes_in_float32(x)


def several(x, **_):
    return min(x.shape) > 2
