"""Changes of latency with their uncertainty, all series of a comparison at once: arrays in, arrays out.

A change is the mean of the current runs less that of the reference runs, in log units. A run's mean differs from the
series' level by what its rounds differ, and by what all rounds of a run have in common; `spread` says how both are
estimated. The noise floor of a series, where history or calibration know it, can only widen its interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from pairbench.analyze.compare.rounds import Bools, Floats, Ints, Runs
from pairbench.analyze.compare.spread import excess, groups_of, prior
from pairbench.model.comparison import Floor
from pairbench.model.policy import DEFAULT, Policy

_NORMAL = 1.959963984540054
_GUESS = 2.0
"""How far runs of a series without a floor spread, as a multiple of the variance that their rounds explain, where too few
controls tell: what all rounds of a run have in common is taken to be as large as the noise of their mean."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """One latency of many series; NaN where it is not known on both sides."""

    change: Floats
    """The logarithm of current over reference."""
    error: Floats
    """The standard error of the change; NaN also where nothing tells how far rounds spread."""
    freedom: Floats
    """The degrees of freedom of the standard error."""
    p_value: Floats
    """The two-sided p value of there being no change."""
    low: Floats
    high: Floats
    """`low` and `high` are the ends of the 95 % interval of the change."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """What the effects say, given a policy."""

    adjusted: Floats
    """The p values after Benjamini-Hochberg over all latencies."""
    minimum: Floats
    """The minimum effect of each series in log units."""
    slower: Bools
    faster: Bools
    same: Bools
    """`slower`, `faster` and `same` are the verdicts; a series that has none of them is undecided."""


def estimate(
    runs: Runs, *, groups: Ints, null: Bools, floor: Floats, floor_runs: Floats, policy: Policy = DEFAULT
) -> Effects:
    """Return the change of each series.

    Args:
        runs: Of all series.
        groups: For each series a label; those with the same share what they know about spread.
        null: Which series are controls, that a change of the code under test does not move.
        floor: For each series its noise floor in log units; NaN where there is none.
        floor_runs: Runs behind each floor.
        policy: The thresholds.
    """
    size = len(groups)
    reference, current = (_side(runs, size, side) for side in (False, True))
    known = (reference.runs > 0) & (current.runs > 0)
    latency = (reference.mean + current.mean) / 2
    within = np.bincount(runs.series, runs.count - 1, minlength=size).astype(np.float64)
    square = np.bincount(runs.series, runs.square, minlength=size)
    # No latency is below a nanosecond, whatever a damaged record says.
    ticks = policy.tick_ns * np.exp(-np.maximum(latency, 0.0))
    least = policy.least_spread**2 + ticks**2 / 12
    variance = np.maximum(square / np.maximum(within, 1), least)
    lent_variance, lent = np.ones(size), np.zeros(size)
    for group in groups_of(groups):
        chosen = group[known[group]]
        lent_variance[chosen], lent[chosen] = prior(
            latency[chosen], variance[chosen], within[chosen], policy.most_prior_rounds
        )
    change = current.mean - reference.mean
    weight = lent + within
    squares = lent * lent_variance + within * variance
    guess = np.where(np.isfinite(floor), 1.0, _GUESS)
    rounds = _Rounds(
        change=change,
        latency=latency,
        squares=squares,
        weight=weight,
        of_rounds=reference.inverse_rounds + current.inverse_rounds,
        per_run=1 / np.maximum(reference.runs, 1) + 1 / np.maximum(current.runs, 1),
    )
    common = _common(rounds, [group[known[group]] for group in groups_of(groups)], null=null, guess=guess)
    # Runs of one side tell as well how far they spread, once it is known how much further than their rounds.
    for side in (reference, current):
        of_mean = np.where(side.runs > 0, side.inverse_rounds * side.runs + common, 1)
        squares = squares + side.square / of_mean
        weight = weight + np.maximum(side.runs - 1, 0)
    total = squares / np.maximum(weight, 1e-9) * (rounds.of_rounds + common * rounds.per_run)
    from_floor = np.nan_to_num((floor / _NORMAL) ** 2 / 2 * rounds.per_run)
    alone = (weight == 0) & (from_floor > 0)
    total = np.where(alone, from_floor, np.maximum(total, from_floor))
    # Two estimates, of which the larger is taken: what either is based on makes it surer. Differences of consecutive runs
    # tell two thirds of what the runs do (von Neumann 1941).
    weight = weight + np.where(from_floor > 0, np.maximum(2 / 3 * (floor_runs - 1), 1), 0)
    told = known & (weight > 0)
    error = np.where(told, np.sqrt(total), np.nan)
    change = np.where(known, change, np.nan)
    freedom = np.maximum(weight, 1)
    reach = special.stdtrit(freedom, 0.975) * error
    return Effects(
        change=change,
        error=error,
        freedom=np.where(told, freedom, np.nan),
        p_value=2 * special.stdtr(freedom, -np.abs(change) / error),
        low=change - reach,
        high=change + reach,
    )


def minimum_effects(floor: Floats, policy: Policy = DEFAULT) -> Floats:
    """Return the smallest relative change that counts in each series: the policy's, and at least twice the noise floor.

    Args:
        floor: Noise floors in log units; NaN where there is none.
        policy: The minimum effect of series without a floor.
    """
    effects: Floats = np.maximum(policy.minimum_effect, np.nan_to_num(2 * np.expm1(floor)))
    return effects


def minimum_effect(floor: Floor | None, policy: Policy = DEFAULT) -> float:
    """Return the smallest relative change of the median latency that counts in one series."""
    return float(minimum_effects(np.array([floor.p50 if floor else np.nan]), policy)[0])


def _adjusted(p_values: Floats) -> Floats:
    """Return p-values adjusted for their number (Benjamini and Hochberg 1995).

    `scipy.stats.false_discovery_control` gives the same; importing it takes a second, for which everybody would wait.
    """
    falling = np.argsort(-p_values)
    ranks = np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[falling] = np.minimum.accumulate(np.minimum(p_values[falling] * len(p_values) / ranks, 1))
    return adjusted


def decide(effects: list[Effects], floors: list[Floats], policy: Policy = DEFAULT) -> list[Verdicts]:
    """Return the verdicts of several latencies, adjusted for all of them together.

    A change is called one if Benjamini-Hochberg says that it is not noise and its estimate reaches most of the minimum
    effect. `same` is proven: the whole interval lies within the minimum effect.
    """
    p_values = np.concatenate([item.p_value for item in effects])
    adjusted = np.full_like(p_values, np.nan)
    told = np.isfinite(p_values)
    if told.any():
        adjusted[told] = _adjusted(p_values[told])
    found, start = [], 0
    for item, floor in zip(effects, floors, strict=True):
        mine = adjusted[start : start + len(item.change)]
        start += len(item.change)
        minimum = np.log1p(minimum_effects(floor, policy))
        real = mine <= policy.false_discovery_rate
        least = policy.least_estimate * minimum
        slower, faster = real & (item.change >= least), real & (item.change <= -least)
        inside = (item.low > -minimum) & (item.high < minimum)
        same = inside & ~slower & ~faster
        found.append(Verdicts(adjusted=mine, minimum=minimum, slower=slower, faster=faster, same=same))
    return found


@dataclass(frozen=True, kw_only=True)
class _Side:
    runs: Floats
    mean: Floats
    """The mean of the runs' means."""
    square: Floats
    """The sum of the squared distances of the runs' means to their mean."""
    inverse_rounds: Floats
    """The variance of the mean if rounds had a variance of 1 and the rounds of a run nothing in common."""


def _side(runs: Runs, size: int, current: bool) -> _Side:
    here = runs.current == current
    series, mean = runs.series[here], runs.mean[here]
    number = np.bincount(series, minlength=size).astype(np.float64)
    whole = np.maximum(number, 1)
    average = np.bincount(series, mean, minlength=size) / whole
    return _Side(
        runs=number,
        mean=average,
        square=np.bincount(series, (mean - average[series]) ** 2, minlength=size).astype(np.float64),
        inverse_rounds=np.bincount(series, 1 / runs.count[here], minlength=size) / whole**2,
    )


@dataclass(frozen=True, kw_only=True)
class _Rounds:
    """What the rounds of each series say before it is known how much those of a run have in common."""

    change: Floats
    """The logarithm of current over reference."""
    latency: Floats
    """The mean of both sides as the logarithm of ns."""
    squares: Floats
    """The sum of the squared distances between the rounds of a run, with what other series lend."""
    weight: Floats
    """The degrees of freedom behind that sum; 0 where nothing tells how far rounds spread."""
    of_rounds: Floats
    """The variance of the change if rounds had a variance of 1 and the rounds of a run nothing in common."""
    per_run: Floats
    """The variance of the change if runs had a variance of 1 and each were known exactly."""


def _common(rounds: _Rounds, groups: Sequence[Ints], *, null: Bools, guess: Floats) -> Floats:
    """Return the variance that rounds of a run have in common, as a multiple of the variance between rounds.

    Args:
        rounds: Of all series.
        groups: The places of the series that share what they know about spread, as far as both sides have them.
        null: Which series are controls.
        guess: For each series the factor that is taken where too few controls tell.
    """
    common = np.zeros(len(rounds.change))
    for group in groups:
        chosen = group[rounds.weight[group] > 0]
        if not len(chosen):
            continue
        variance = rounds.squares[chosen] / rounds.weight[chosen]
        z = rounds.change[chosen] / np.sqrt(variance * rounds.of_rounds[chosen])
        factor = excess(z, rounds.weight[chosen], rounds.latency[chosen], null[chosen], guess[chosen])
        common[chosen] = (factor - 1) * rounds.of_rounds[chosen] / rounds.per_run[chosen]
    return common
