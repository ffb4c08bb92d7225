"""Some of the bits that `nox -s faults` flips."""

import pytest

from tests.faults.flips import flip_bits


@pytest.mark.slow
def test_no_flipped_bit_changes_a_value_without_a_word() -> None:
    found = flip_bits(60)
    assert found.wrong == []
    assert found.counts["bits flipped"] == 60 and found.counts["named and left out"] > 40
