"""What series lend one another: as much as their likeness allows, and nothing where they are too few."""

import numpy as np
import pytest

from pairbench.analyze.compare.effect import excess, groups_of, prior
from pairbench.analyze.compare.rounds import Floats

MOST = 20.0


def variances(spread: Floats, freedom: int, seed: int = 0) -> Floats:
    drawn: Floats = spread**2 * np.random.default_rng(seed).chisquare(freedom, len(spread)) / freedom
    return drawn


def test_alike_series_lend_all_that_may_be_lent() -> None:
    x = np.linspace(0, 7, 400)
    usual, lent = prior(x, variances(np.full(400, 0.01), 4), np.full(400, 4.0), MOST)
    assert np.sqrt(usual) == pytest.approx(0.01, rel=0.25)
    assert lent.min() > 8 and np.median(lent) > 13


def test_the_prior_follows_the_latency() -> None:
    x = np.linspace(0, 4, 400)
    spread = 0.03 * np.exp(-x)
    usual, _ = prior(x, variances(spread, 4), np.full(400, 4.0), MOST)
    assert np.sqrt(usual) / spread == pytest.approx(1, rel=0.3)


def test_unlike_series_lend_little() -> None:
    x = np.linspace(0, 7, 400)
    uneven = 0.01 * np.exp(np.random.default_rng(1).normal(0, 1.0, 400))
    _, lent = prior(x, variances(uneven, 4), np.full(400, 4.0), MOST)
    assert lent.max() < 3


def test_a_few_wild_series_cost_the_others_little() -> None:
    x = np.linspace(0, 7, 400)
    found = variances(np.full(400, 0.01), 4)
    found[::20] *= 1000
    usual, lent = prior(x, found, np.full(400, 4.0), MOST)
    assert np.median(np.sqrt(usual)) == pytest.approx(0.01, rel=0.2)
    assert np.median(lent) > 8


def test_few_series_lend_nothing_and_some_lend_less_than_many() -> None:
    assert prior(np.arange(7.0), np.ones(7), np.full(7, 4.0), MOST)[1].tolist() == [0] * 7
    _, lent = prior(np.linspace(0, 7, 15), variances(np.full(15, 0.01), 4), np.full(15, 4.0), MOST)
    assert 0 < lent.max() < 15


def test_series_without_freedom_of_their_own_borrow() -> None:
    x, freedom = np.linspace(0, 7, 100), np.full(100, 4.0)
    found = variances(np.full(100, 0.01), 4)
    freedom[50], found[50] = 0, 99
    usual, lent = prior(x, found, freedom, MOST)
    assert np.sqrt(usual[50]) == pytest.approx(0.01, rel=0.4) and lent[50] > 5


def test_runs_that_differ_more_than_their_rounds_show_in_the_controls() -> None:
    rng = np.random.default_rng(2)
    null = np.arange(400) % 2 == 0
    x, freedom, guess = np.linspace(0, 7, 400), np.full(400, 24.0), np.full(400, 2.0)
    quiet = excess(rng.standard_t(24, 400), freedom, x, null, guess)
    assert 1 <= np.median(quiet) < 1.4
    loud = excess(3 * rng.standard_t(24, 400), freedom, x, null, guess)
    assert np.median(loud) == pytest.approx(9, rel=0.4)


def test_changes_of_variants_are_no_noise_nor_is_a_slower_machine() -> None:
    rng = np.random.default_rng(3)
    null = np.arange(400) % 2 == 0
    z = rng.standard_t(24, 400) + np.where(null, 0.0, rng.normal(0, 30, 400)) + 12
    found = excess(z, np.full(400, 24.0), np.linspace(0, 7, 400), null, np.full(400, 2.0))
    assert np.median(found) < 1.4


def test_few_controls_leave_the_guess() -> None:
    guess = np.array([1.0, 2.0] * 20)
    found = excess(np.zeros(40), np.full(40, 9.0), np.arange(40.0), np.arange(40) < 15, guess)
    assert found.tolist() == guess.tolist()


def test_groups_are_places() -> None:
    assert [group.tolist() for group in groups_of(np.array([3, 1, 3]))] == [[1], [0, 2]]
