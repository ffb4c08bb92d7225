"""Upper bounds of rates, against the binomial distribution that defines them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pairbench.analyze.compare.rounds import upper_bound


def test_nothing_seen_is_the_rule_of_three() -> None:
    assert upper_bound(0, 3000) == pytest.approx(3 / 3000, rel=0.01)
    assert upper_bound(0, 3000, confidence=0.99) > upper_bound(0, 3000)


@pytest.mark.parametrize("tries", [0, 1, 7])
def test_always_seen_excludes_nothing(tries: int) -> None:
    assert upper_bound(tries, tries) == 1


@given(st.integers(1, 5000).flatmap(lambda tries: st.tuples(st.integers(0, tries - 1), st.just(tries))))
def test_the_bound_is_where_so_few_are_just_improbable(counts: tuple[int, int]) -> None:
    seen, tries = counts
    bound = upper_bound(seen, tries)
    assert seen / tries < bound < 1
    assert stats.binom.cdf(seen, tries, bound) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize(("seen", "tries"), [(-1, 3), (4, 3)])
def test_impossible_counts_are_refused(seen: int, tries: int) -> None:
    with pytest.raises(ValueError, match=f"seen {seen} times in {tries} tries, expected 0 to {tries}"):
        upper_bound(seen, tries)
