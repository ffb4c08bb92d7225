"""What torch.compile has to leave alone: functions, and loops."""

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


def compile_apart():
    """Have torch.compile take each turn of the loop that calls this for itself: with such a break in it the loop stays Python.

    Else it would unroll it into one graph of all its turns, and compile for minutes what it compiled before.
    """
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break()  # noqa: SLF001, it has no other name
