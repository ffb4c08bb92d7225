"""What follows from the order in which modules finish: what was inside of what, and what may be compared at a time."""

from collections.abc import Iterator
from dataclasses import replace

from pairbench.model.divergence import Layer

Key = tuple[str, int]
"""A module's name, and which of its calls."""


def mark_contained(layers: list[Layer]) -> list[Layer]:
    """Return calls in their order, with those marked that are off inside of a module which is not."""
    return [
        replace(layer, contained=not around.off)
        if layer.off and (around := _around(layers, place)) is not None
        else layer
        for place, layer in enumerate(layers)
    ]


def _around(layers: list[Layer], place: int) -> Layer | None:
    """Return the next call to end of those that a call was inside of, if it was compared."""
    inner = layers[place].module.split(".")
    return next(
        (
            layer
            for layer in layers[place + 1 :]
            if layer.gap and len(outer := layer.module.split(".")) < len(inner) and inner[: len(outer)] == outer
        ),
        None,
    )


def stretches(sizes: dict[Key, tuple[int, int]], room: int, *, with_oracle: bool) -> Iterator[set[Key]]:
    """Yield calls whose outputs fit into so many bytes together, in order; one that is larger goes alone."""
    stretch: set[Key] = set()
    held = 0
    for key, (elements, size) in sizes.items():
        needed = size + (8 * elements if with_oracle else 0)
        if stretch and held + needed > room:
            yield stretch
            stretch, held = set(), 0
        stretch.add(key)
        held += needed
    if stretch:
        yield stretch
