import itertools

from pairbench.features.backfill import every, next_step


def test_every_nth_commit_has_the_newest_among_them() -> None:
    assert every(10, 3) == (0, 3, 6, 9)
    assert every(9, 4) == (0, 4, 8)
    assert every(7, 10) == (6,)


def walk(moved: int, changed: list[bool], unmeasurable: set[int]) -> list[int]:
    """Return the places in the order in which they are measured, in a history that takes a new level at one of them."""
    measured: list[int] = []
    while True:
        differing = [pair for pair in itertools.pairwise(sorted(measured)) if pair[0] < moved <= pair[1]]
        place = next_step(changed, measured, unmeasurable, differing)
        if place is None:
            return measured
        measured.append(place)


def test_ends_and_changed_hashes_come_first_then_the_middle_of_what_differs() -> None:
    changed = [number in (20, 40) for number in range(65)]
    order = walk(31, changed, set())
    assert order[:4] == [0, 64, 20, 40]
    assert order[4] == 30
    assert {30, 31} <= set(order)
    assert len(order) <= 4 + 5


def test_where_nothing_differs_no_further_commit_is_measured() -> None:
    assert walk(99, [False] * 65, set()) == [0, 64]


def test_what_cannot_be_measured_is_gone_around() -> None:
    order = walk(31, [False] * 65, {32, 31, 0})
    assert not {0, 31, 32} & set(order)
    assert 64 in order
