"""What the suites of peers share: cases by the sizes of models, and the packages that variants need.

A peer's function is imported where it is called, so the suites load without any of the packages. Every peer has `kind="library"`: a kernel of
one's own is then compared with the fastest of them, too.
"""

from __future__ import annotations

import importlib.util
import os

from pairbench import Variant

from ..train.train_common import of

QWEN_3_32B = dict(hidden=5120, intermediate=25600, heads=64, kv_heads=8, vocabulary=151936)
DEEPSEEK_V3 = dict(hidden=7168, intermediate=18432, heads=128, kv_heads=128, vocabulary=129280)
WAN_21 = dict(hidden=5120, intermediate=13824, heads=40, kv_heads=40)

PACKAGES = {
    "cut_cross_entropy": "cut-cross-entropy>=25.1",
    "fa3": "fa3-fwd>=0.0.3",
    "fla": "fla-core>=0.6",
    "flag_gems": "flag-gems>=5",
    "flash_attn_4": "flash-attn-4>=4.0.0b1",
    "liger": "liger-kernel>=0.8",
    "quack": "quack-kernels>=0.6",
    "xformers": "xformers>=0.0.35",
}
"""The requirement of each peer, by its name as a variant."""


if found := importlib.util.find_spec("flag_gems"):
    # It sets this to its folder as it is imported, which would be a change of the environment by the first call.
    os.environ["FLAGGEMS_SOURCE_DIR"] = found.submodule_search_locations[0]


def peers(functions, *, consumes=None, valid=None):
    """Return the variants of some peers' functions by name; `consumes` and `valid` are of single peers, by name.

    A peer that is there twice has a suffix that says what is different, such as `liger_float32`.
    """
    consumes, valid = consumes or {}, valid or {}
    return {
        name: Variant(
            function,
            kind="library",
            needs=["cuda", f"package:{_package(name)}"],
            consumes=consumes.get(name, ()),
            valid=valid.get(name),
        )
        for name, function in functions.items()
    }


def _package(name):
    return next(package for peer, package in PACKAGES.items() if f"{name}_".startswith(f"{peer}_"))


def case(model, tokens, *names, **axes):
    """Return a case in bfloat16 of that many tokens, with some of a model's sizes as axes."""
    return dict(tokens=tokens, dtype="bfloat16", **of(model, *names), **axes)


def training(*cases):
    """Return cases in one direction, forward and backward together: a step of training pays for both."""
    return [dict(one, direction="fwd_bwd") for one in cases]
