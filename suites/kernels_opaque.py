"""Functions that torch.compile has to leave alone."""

import functools

import torch

_left_alone = {}


def opaque(function):
    """Do what `torch.compiler.disable` does, and import the compiler only where something is being compiled.

    The decorator itself imports it, which takes 0.8 s that a suite would cost everybody who loads it.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        left_alone = _left_alone.get(function)
        if left_alone is None:
            left_alone = _left_alone[function] = torch.compiler.disable(function)
        return left_alone(*args, **kwargs)

    return call
