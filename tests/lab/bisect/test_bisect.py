"""Searches of made-up histories, few of them: the promise of the page beside this file, and the rules behind it."""

import numpy as np
import pytest

from pairbench.features.bisect.posterior import (
    Posterior,
    Round,
    Spread,
    candidates,
    expected_fall,
    next_count,
    next_probe,
    posterior,
    prior_of,
    still_open,
)
from tests.lab.bisect.simulate import LONGER, SHORT, plain, shipped


def test_the_culprit_is_found_in_fewer_rounds_than_by_plain_bisection() -> None:
    """A chance of 1 % each: more than 3 wrong of 60 would have a chance of 0.3 %."""
    rng = np.random.default_rng(7)
    found = [shipped(LONGER, rng) for _ in range(60)]
    assert all(one.sure for one in found)
    assert sum(not one.right for one in found) <= 3
    assert np.median([one.rounds for one in found]) <= 16 < plain(5)(LONGER, rng).rounds


def test_a_short_call_is_found_where_plain_bisection_mostly_is_not() -> None:
    rng = np.random.default_rng(8)
    found = [one for one in (shipped(SHORT, rng) for _ in range(12)) if one.sure]
    assert sum(not one.right for one in found) <= 1
    assert sum(plain(5)(SHORT, rng).right for _ in range(200)) < 130


def rounds(*pairs: tuple[int, float]) -> list[Round]:
    return [Round(commit=commit, log_ratio=ratio) for commit, ratio in pairs]


def test_the_posterior_is_that_of_summing_over_step_and_spread() -> None:
    """Both are integrated out in closed form; here by adding up a grid."""
    known = rounds((4, 0.05), (4, 0.06), (4, 0.04), (2, 0.01), (3, 0.055), (1, -0.01))
    spread = Spread(deviation=0.01, weight=3.0)
    prior = prior_of([True, None, False, True])
    steps, variances = np.linspace(-0.5, 0.5, 2001), np.exp(np.linspace(np.log(1e-6), np.log(1e-1), 600))
    weights = []
    for culprit in (1, 2, 3, 4):
        squares = np.sum([(one.log_ratio - steps * (one.commit >= culprit)) ** 2 for one in known], axis=0)
        logs = -(len(known) / 2) * np.log(variances[:, None]) - squares[None, :] / 2 / variances[:, None]
        # The density of the variance times its width in logarithms.
        logs += (-spread.weight / 2 * np.log(variances) - spread.weight * spread.deviation**2 / 2 / variances)[:, None]
        weights.append(np.exp(logs).sum())
    expected = prior * np.array(weights)
    assert posterior(prior, known, spread).probability == pytest.approx(expected / expected.sum(), rel=2e-3)


def test_a_round_tells_most_where_it_is_open_whether_the_step_was_there() -> None:
    fall = expected_fall(np.array([0.01, 0.3, 0.5, 0.9]), 2.0)
    assert fall.argmax() == 2
    assert fall[0] < fall[3] < fall[1] < np.log(2)
    assert expected_fall(np.array([0.5]), 30.0)[0] == pytest.approx(np.log(2), rel=1e-3)
    assert expected_fall(np.array([0.5]), 0.0)[0] == pytest.approx(0, abs=1e-5)


def test_commits_that_cannot_be_measured_are_gone_around_and_named_with_the_next() -> None:
    known = Posterior(probability=np.array([0.1, 0.2, 0.3, 0.25, 0.15]), step=0.05, deviation=0.01)
    assert next_probe(known, ()) == 3
    assert next_probe(known, {3}) in (2, 4)
    first = candidates(known.probability, {3})[0]
    assert (first.first, first.last) == (3, 4)
    assert first.probability == pytest.approx(0.55)


def test_an_unchanged_hash_lowers_the_prior_and_evidence_overrules_it() -> None:
    prior = prior_of([True, False, True])
    assert prior[1] < prior[0] / 10
    known = rounds(
        *[(3, 0.05 + jitter) for jitter in (-0.003, 0, 0.003)], (2, 0.049), (2, 0.052), (1, 0.001), (1, -0.002)
    )
    assert posterior(prior, known, Spread.least()).probability[1] > 0.9


def test_a_noise_floor_says_how_far_rounds_spread() -> None:
    """A floor of runs of three rounds: 95 % of their changes, each the difference of two means of three."""
    rng = np.random.default_rng(1)
    runs = rng.normal(0, 0.02, (20_000, 2, 3)).mean(axis=2)
    floor = np.quantile(np.abs(runs[:, 0] - runs[:, 1]), 0.95)
    assert Spread.of_floor(float(floor), 3).deviation == pytest.approx(np.sqrt(2) * 0.02, rel=0.03)


def test_counts_are_halved_until_neighbours_are_left() -> None:
    true = {number: 1.0 + (number >= 11) for number in range(17)}
    counts, skipped, tried = {0: 1.0, 16: 2.0}, {8, 10}, 0
    open_ = still_open(counts, 16)
    while (number := next_count(open_, skipped)) is not None:
        counts[number] = true[number]
        open_, tried = still_open(counts, 16), tried + 1
    assert (open_.good, open_.bad) == (9, 11)
    assert tried <= 5
