"""Bisection of what is counted: no statistics, and commits that cannot be counted are gone around."""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Open(NamedTuple):
    """The commits in question: the last one that still has the good count, and the first one that has not."""

    good: int
    bad: int


def still_open(counts: Mapping[int, float], last: int) -> Open:
    """Return which commits are in question.

    Args:
        counts: By the number of the commit; 0 is the good end, whose count is the good one.
        last: The number of the bad end.
    """
    bad = min((number for number, count in counts.items() if count != counts[0]), default=last)
    good = max(number for number, count in counts.items() if count == counts[0] and number < bad)
    return Open(good, bad)


def next_count(open_: Open, skipped: Collection[int]) -> int | None:
    """Return the number of the commit to count next: the nearest to the middle that can be; None where there is none."""
    middle = (open_.good + open_.bad) / 2
    able = [number for number in range(open_.good + 1, open_.bad) if number not in skipped]
    return min(able, key=lambda number: (abs(number - middle), number), default=None)
