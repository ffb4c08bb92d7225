"""Pairs that are right, with something odd beside them: a wait for the device, an endless output, impostors that pass, are right in one case or crash."""

import os
import sys

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


def declare(name, *variants, rows=(4,), impostors=None):
    named = {variant.__name__: variant for variant in (*variants, good)}
    cases = grid(rows=list(rows), dtype=["float32"])
    return Operator(name, baseline=baseline, variants=named, inputs=inputs, cases=cases, impostors=impostors or {})


def syncs(x):
    """Ask the device for a number: legal in eager mode, impossible in a CUDA graph."""
    return x * 2 if x.abs().sum().item() > 0 else x


def prints(x):
    """Fill stdout and stderr, through Python and past it."""
    for line in range(2_000):
        print(f"line {line} " + "-" * 60)
        print(f"line {line} " + "-" * 60, file=sys.stderr)
    os.write(1, b'{"not": "a message"}\n\x00\xff')
    return x * 2


def right_of_four(x):
    return x * 2 if len(x) == 4 else x


def exits(x):
    os._exit(3)


syncs = declare("syncs", syncs, rows=(4, 8))
prints = declare("prints", prints)
# Rejecting impostors proves nothing where one is right.
impostor_passes = declare(
    "impostor_passes",
    rows=(4, 8),
    impostors={"zero": lambda x: x * 0, "not_one": good, "right_of_four": right_of_four},
)
impostor_crashes = declare(
    "impostor_crashes", impostors={"wrong": lambda x: x * 3, "exits": exits, "also_wrong": lambda x: x * 4}
)
