"""Pairs with places for planted changes: `gpu/test_judging.py` edits the marked lines, or sets PLANTED_CYCLES."""

import os

import torch

from pairbench import Operator


def inputs(make, n, k):
    return {"x": make.normal(n, k), "y": make.normal(k, n)}


def spin(cycles):
    """Keep the device busy for so many of its cycles, with one launch in any case."""
    if torch.cuda.is_available():
        torch.cuda._sleep(max(cycles, 1))


def plain(x, y):
    return x @ y


def swapped(x, y):
    return (y.T @ x.T).T


def slowed(x, y):
    spin(0)  # planted: slowed
    return (y.T @ x.T).T


def launches_more(x, y):
    out = (y.T @ x.T).T
    return out  # planted: launch


def plain_on_this_machine(x, y):
    spin(int(os.environ.get("PLANTED_CYCLES", "0")))
    return x @ y


def swapped_on_this_machine(x, y):
    spin(int(os.environ.get("PLANTED_CYCLES", "0")))
    return (y.T @ x.T).T


CASES = {"smoke": [dict(n=64, k=64)], "real": [dict(n=4096, k=2048)]}

untouched = Operator("untouched", baseline=plain, variants={"swapped": swapped}, inputs=inputs, cases=CASES)
slower = Operator("slower", baseline=plain, variants={"slowed": slowed}, inputs=inputs, cases=CASES)
launches = Operator("launches", baseline=plain, variants={"launches_more": launches_more}, inputs=inputs, cases=CASES)
machine = Operator(
    "machine",
    baseline=plain_on_this_machine,
    variants={"swapped": swapped_on_this_machine},
    inputs=inputs,
    cases=CASES,
)
