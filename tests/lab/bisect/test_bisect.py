"""Searches of made-up histories, few of them: the promise of the page beside this file, and the rules behind it."""

from dataclasses import replace

import numpy as np
import pytest

from pairbench.features.bisect.posterior import (
    Posterior,
    Round,
    Spread,
    candidates,
    expected_fall,
    is_enough,
    next_count,
    next_probe,
    posterior,
    prior_of,
    still_open,
)
from tests.lab.bisect.simulate import DOUBLED, LONGER, SHORT, Planted, plain, shipped


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
    """On a grid of few places that follows the rounds; here on a fine one."""
    known = [
        *rounds((4, 0.05), (4, 0.06), (4, 0.04), (2, 0.01), (3, 0.055), (1, -0.01)),
        Round(commit=3, base=2, log_ratio=0.03),
    ]
    spread = Spread(deviation=0.01, weight=3.0)
    prior = prior_of([True, None, False, True])
    step = np.linspace(-0.02, 0.12, 281)[:, None]
    deviation = np.exp(np.linspace(np.log(2e-3), np.log(0.1), 100))
    kinds = ((0.95, 0.0, deviation), (0.95, step, deviation), (0.025, step / 2, np.abs(step) + 5 * deviation))
    weights = []
    for culprit in (1, 2, 3, 4):
        logs = -spread.weight * (np.log(deviation) + spread.deviation**2 / 2 / deviation**2) + 0 * step
        for one in known:
            still, moved, wide = (
                np.exp(-(((one.log_ratio - middle) / width) ** 2) / 2) / width for _, middle, width in kinds
            )
            true, other = (moved, still) if one.base < culprit <= one.commit else (still, moved)
            logs = logs + np.log(0.95 * true + 0.025 * (other + wide))
        weights.append(np.exp(logs).sum())
    expected = prior * np.array(weights)
    assert posterior(prior, known, spread).probability == pytest.approx(expected / expected.sum(), abs=0.02)


def test_one_outlier_does_not_decide_and_a_second_round_does() -> None:
    """The search that named an innocent commit: one round of the culprit, commit 8, reads as no change."""
    known = rounds(
        *[(12, 0.66 + jitter) for jitter in (-0.01, 0, 0, 0.01, 0.02)], (6, 0.0), (9, 0.66), (7, 0.01), (8, -0.008)
    )
    found = posterior(prior_of([None] * 12), known, Spread.least())
    assert not is_enough(candidates(found.probability, ())[0], [None] * 12)
    for _ in range(8):
        number = next_probe(found, ())
        known.append(Round(commit=number, log_ratio=0.66 if number >= 8 else 0.0))
        found = posterior(prior_of([None] * 12), known, Spread.least())
    assert is_enough(candidates(found.probability, ())[0], [None] * 12)
    assert found.probability.argmax() == 7


@pytest.mark.parametrize("planted", [replace(DOUBLED, outliers=0.05), replace(LONGER, outliers=0.02)])
def test_a_probe_in_twenty_that_reads_as_the_other_side_makes_no_one_wrong(planted: Planted) -> None:
    rng = np.random.default_rng(9)
    found = [shipped(planted, rng) for _ in range(60)]
    assert sum(one.sure for one in found) >= 55
    assert sum(one.sure and not one.right for one in found) <= 3


def test_a_commit_whose_hash_is_the_same_needs_more() -> None:
    found = candidates(np.array([0.003, 0.995, 0.002]), ())[0]
    assert is_enough(found, [True, True, True]) and is_enough(found, [])
    assert not is_enough(found, [True, False, True])


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
    good, bad = still_open(counts, 16)
    while (number := next_count(good, bad, skipped)) is not None:
        counts[number] = true[number]
        (good, bad), tried = still_open(counts, 16), tried + 1
    assert (good, bad) == (9, 11)
    assert tried <= 5
