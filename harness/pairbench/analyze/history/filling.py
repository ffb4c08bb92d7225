"""Which commits of a history to measure, and in which order: every one, every Nth, or where it is expected to tell most."""

import itertools
from collections.abc import Collection, Sequence


def every(commits: int, step: int) -> tuple[int, ...]:
    """Return the places of every so many commits, oldest first, the newest among them."""
    return tuple(range((commits - 1) % step, commits, step))


def next_step(
    changed: Sequence[bool],
    measured: Collection[int],
    unmeasurable: Collection[int],
    differing: Collection[tuple[int, int]],
) -> int | None:
    """Return the place of the commit to measure next; None where no further one is expected to tell anything.

    First come both ends, and the commits that change the hash of an implementation; then the middle between two neighbours that were
    measured and differ, the widest gap first.

    Args:
        changed: For each commit, oldest first, whether it changes a hash.
        measured: The places of those that were measured.
        unmeasurable: The places of those that cannot be.
        differing: Pairs of measured neighbours that differ.
    """
    closed = {*measured, *unmeasurable}
    ends = [0, len(changed) - 1]
    first = [place for place in (*ends, *(place for place, one in enumerate(changed) if one)) if place not in closed]
    if first:
        return first[0]
    gaps = sorted(differing, key=lambda pair: (pair[0] - pair[1], pair))
    for before, after in gaps:
        inside = [place for place in range(before + 1, after) if place not in closed]
        if inside:
            return min(inside, key=lambda place: (abs(place - (before + after) / 2), place))
    return None


def neighbours(measured: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of commits between which none was measured."""
    return tuple(itertools.pairwise(sorted(measured)))
