"""Calls on values that they have never seen: what is remembered from others shows in their time."""

import pytest

from pairbench.execute.worker.timing.recheck import remembers


@pytest.mark.parametrize(
    ("known_us", "new_us", "found"),
    [
        ([10, 11, 12], [500, 400, 700], True),
        ([10, 11, 12], [500, 15, 700], False),  # one is as fast: something else slowed the others
        ([10, 300, 12], [500, 400, 700], False),  # the machine is busy, and known values suffer as well
        ([1000, 1010, 1020], [2500, 2600, 2200], True),
        ([1000, 1010, 1020], [1900, 2000, 1800], False),
        ([10, 11, 12], [60, 70, 65], False),  # less than the clock of a busy CPU is off by
        ([10, 11, 12], [500, 400], False),
        ([], [500, 400, 700], False),
    ],
)
def test_it_takes_all_of_several_calls(known_us: list[float], new_us: list[float], found: bool) -> None:
    sentence = remembers([value * 1e3 for value in known_us], [value * 1e3 for value in new_us], beyond_ns=50e3)
    assert (sentence is not None) == found
    if sentence:
        assert "remembers results" in sentence and f"{min(new_us):.1f} us" in sentence
