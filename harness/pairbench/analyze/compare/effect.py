"""Changes of latency with their uncertainty, all series of a comparison at once: arrays in, arrays out.

A change is the mean of the current runs less that of the reference runs, in log units. A run's mean differs from the
series' level by the spread of its rounds, and by an error that all rounds of a run have in common. The noise floor of a series,
where history or calibration know it, can only widen its interval.

Three rounds a side say little about their own spread. Series of one device and mode with similar latency spread alike,
so each series' variance is moderated by theirs, as limma does for genes (Smyth 2004, doi:10.2202/1544-6115.1027): the
prior variance follows the latency, and its weight in degrees of freedom comes from how much the series' variances
differ beyond chance. Both are fitted by quartiles, so that a few series with an outlying round widen no others.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from pairbench.analyze.compare.rounds import Bools, Floats, Ints, Runs
from pairbench.model.comparison import DEFAULT, Floor, Policy
from pairbench.model.plain import Value

Pair = tuple[Floats, Floats]  # of each series, or of each point
_LEAST = 8  # the number of series below which nothing is lent
_WINDOW = 60  # the number of series of neighbouring latency that give the usual spread at a latency
_NARROWEST = 15
"""The least number of neighbouring series, or a third of all if these are fewer: the usual spread is no straight line."""
_BAND = 30  # the number of controls that tell how much further runs spread than their rounds


def prior(log_latency: Floats, variance: Floats, freedom: Floats, most: float) -> Pair:
    """Return for each series of a group the variance that its neighbours in latency suggest, and the degrees of freedom of that, at most `most`."""
    # `variance` is that between the rounds of a run, above 0, and ignored where its `freedom` is 0.
    known = freedom > 0
    number = int(known.sum())
    if number < _LEAST:
        return np.ones_like(variance), np.zeros_like(variance)
    typical = float(np.median(freedom[known]))
    # The median of a chi-squared over its degrees of freedom is below 1.
    centre = np.log(special.chdtri(freedom[known], 0.5) / freedom[known])
    height = np.log(variance[known]) - centre
    order = np.argsort(log_latency[known], kind="stable")
    x, y = log_latency[known][order], height[order]
    first, _ = _smooth(x, np.clip(y, *_fences(y)))
    # Values far from their neighbours are drawn in.
    fitted, share = _smooth(x, first + np.clip(y - first, *_fences(y - first)))
    residual = y - fitted
    low, high = np.percentile(residual, [25, 75])
    # Quartiles of few series lie by chance too near to each other, and a line through few follows their noise.
    spread = float(high - low) * (1 + 1 / np.sqrt(number))
    # The prior's degrees of freedom at which variances would have this interquartile range, which falls in them.
    tried = np.geomspace(0.5, 1000, 40)
    lower, upper = (np.log(special.fdtri(max(round(typical), 1), tried, q)) for q in (0.25, 0.75))
    lent = min(float(np.exp(np.interp(-spread, lower - upper, np.log(tried)))), most)
    doubt = share * special.polygamma(1, typical / 2)
    trusted = 1 / (1 / lent + doubt / 2)
    usual = np.exp(np.interp(log_latency, x, fitted + float(np.median(residual))))
    return usual, np.interp(log_latency, x, trusted)


def excess(z: Floats, freedom: Floats, log_latency: Floats, null: Bools, guess: Floats) -> Floats:
    """Return the factor by which the variance of changes exceeds that of the rounds, 1 or more; `guess` where the controls, `null`, are too few."""
    # Only controls tell: a change of the code moves variants, perhaps all of them, but moves of baselines to both sides are noise between runs. The
    # shortest interval with half of them tells their spread whatever the other half does, and wherever its centre lies, for a machine that is slower
    # altogether is no noise. (The robust scale is that of Rousseeuw and Leroy 1988; the idea is that of genomic control, Devlin and Roeder 1999.) `z`
    # are the changes over their standard errors, which have the degrees of `freedom`.
    control_rows = np.flatnonzero(null)
    if len(control_rows) < 2 * _LEAST:
        return guess
    order = control_rows[np.argsort(log_latency[control_rows], kind="stable")]
    places, factors = [], []
    for band in np.array_split(order, max(1, len(order) // _BAND)):
        ordered = np.sort(z[band])
        half = len(band) // 2
        shortest = float(np.min(ordered[half:] - ordered[: len(ordered) - half])) / 2
        expected = float(special.stdtrit(float(np.median(freedom[band])), 0.75))
        # That of a sample is shorter than that of its distribution: simulated, 16 to 200 normal values.
        factors.append(max(1.0, (shortest / expected * (1 + 1 / np.sqrt(len(band)))) ** 2))
        places.append(float(np.mean(log_latency[band])))
    return np.asarray(np.interp(log_latency, places, factors))


def _fences(values: Floats) -> tuple[float, float]:
    low, high = np.percentile(values, [25, 75])
    return float(low - 1.5 * (high - low)), float(high + 1.5 * (high - low))


def _smooth(x: Floats, y: Floats) -> Pair:
    """Return a straight line's value at each point, fitted to its neighbours, and the share of its own noise in it."""
    width = min(len(x), max(_NARROWEST, min(len(x) // 3, _WINDOW)))
    start = np.clip(np.arange(len(x)) - width // 2, 0, len(x) - width)
    x = x - x.mean()

    def mean(values: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray((total[start + width] - total[start]) / width)

    mean_x, mean_y = mean(x), mean(y)
    spread = mean(x * x) - mean_x**2
    together = mean(x * y) - mean_x * mean_y
    straight = spread > 1e-6
    slope = np.where(straight, together / np.maximum(spread, 1e-6), 0.0)
    share = (1 + np.where(straight, (x - mean_x) ** 2 / np.maximum(spread, 1e-6), 0.0)) / width
    return mean_y + slope * (x - mean_x), share


_NORMAL = 1.959963984540054
_GUESS = 2.0
"""How far runs of a series without a floor spread, as a multiple of the variance that their rounds explain, where too few
controls tell: the error that all rounds of a run have in common is taken to be as large as the noise of their mean."""


class Effects(Value):
    """One latency of many series; NaN where it is not known on both sides."""

    change: Floats
    error: Floats  # the standard error of the change; NaN also where nothing tells how far rounds spread
    p_value: Floats  # two-sided, of there being no change
    low: Floats
    high: Floats  # `change` is the logarithm of current over reference, `low` and `high` the ends of its 95 % interval


class Verdicts(Value):
    """Whether each effect is slower, faster or unchanged by a policy; an effect that is none of these is undecided."""

    adjusted: Floats  # the p values after Benjamini-Hochberg over all latencies
    minimum: Floats
    slower: Bools
    faster: Bools
    same: Bools


def estimate(runs: Runs, *, groups: Ints, null: Bools, floor: Floats, floor_runs: Floats, policy: Policy) -> Effects:
    """Return the change of each series; those with the same label of `groups` share their spread."""
    # `null` says which are controls, that a change of the code under test does not move. `floor` is the noise floor of each in log units, NaN where
    # there is none, found by `floor_runs` runs.
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
    alike = [np.flatnonzero(known & (groups == label)) for label in np.unique(groups)]
    squares, weight = _moderated(latency, variance, within, alike, policy)
    change = current.mean - reference.mean
    guess = np.where(np.isfinite(floor), 1.0, _GUESS)
    # The variance of the change if rounds had a variance of 1 and those of a run nothing in common, and if runs had one of 1.
    of_rounds = reference.inverse_rounds + current.inverse_rounds
    per_run = 1 / np.maximum(reference.runs, 1) + 1 / np.maximum(current.runs, 1)
    # The variance that rounds of a run have in common, as a multiple of the variance between rounds.
    common = np.zeros(size)
    for group in alike:
        chosen = group[weight[group] > 0]
        if len(chosen):
            z = change[chosen] / np.sqrt(squares[chosen] / weight[chosen] * of_rounds[chosen])
            factor = excess(z, weight[chosen], latency[chosen], null[chosen], guess[chosen])
            common[chosen] = (factor - 1) * of_rounds[chosen] / per_run[chosen]
    # Runs of one side tell as well how far they spread, once it is known how much further than their rounds.
    of_runs_alone = weight == 0
    for side in (reference, current):
        of_mean = np.where(side.runs > 0, side.inverse_rounds * side.runs + common, 1)
        squares = squares + side.square / of_mean
        weight = weight + np.maximum(side.runs - 1, 0)
    # Runs of one round each that agree by chance, to the last digit even, spread no less than any latency does.
    squares = np.where(of_runs_alone, np.maximum(squares, least * weight), squares)
    total = squares / np.maximum(weight, 1e-9) * (of_rounds + common * per_run)
    from_floor = np.nan_to_num((floor / _NORMAL) ** 2 / 2 * per_run)
    alone = (weight == 0) & (from_floor > 0)
    total = np.where(alone, from_floor, np.maximum(total, from_floor))
    # Two estimates, of which the larger is taken: the data of both make it surer. Differences of consecutive runs
    # have two thirds of the information of the runs (von Neumann 1941).
    weight = weight + np.where(from_floor > 0, np.maximum(2 / 3 * (floor_runs - 1), 1), 0)
    return _effects(np.where(known, change, np.nan), total, np.maximum(weight, 1), known & (weight > 0))


def estimate_paired(ratios: Sequence[Floats], latency: Floats, groups: Ints, policy: Policy = DEFAULT) -> Effects:
    """Return the change of each series whose sides took turns: the mean of its rounds' log ratios, with a moderated t interval."""
    # The ratio of a round is free of effects that both sides share, such as the machine's clock of that minute. `ratios` are the log ratios of each
    # series' rounds, current over reference, `latency` its log latency, and `groups` its label: only series with the same lend.
    rounds = np.array([len(values) for values in ratios], dtype=np.float64)
    known = rounds > 0
    change = np.array([values.mean() if len(values) else np.nan for values in ratios])
    within = np.maximum(rounds - 1, 0)
    square = np.array([((values - values.mean()) ** 2).sum() if len(values) else 0.0 for values in ratios])
    # A ratio has the least spread of two processes, and the steps of two clocks. Every round reads the same step, so
    # more rounds tell no more of where within it a median lies.
    variance = np.maximum(square / np.maximum(within, 1), 2 * policy.least_spread**2)
    step = 2 * (policy.tick_ns * np.exp(-latency)) ** 2 / 12
    alike = [np.flatnonzero(known & (groups == label)) for label in np.unique(groups)]
    squares, freedom = _moderated(latency, variance, within, alike, policy)
    total = squares / np.maximum(freedom, 1e-9) / np.maximum(rounds, 1) + step
    return _effects(change, total, freedom, known & (freedom > 0))


def _moderated(latency: Floats, variance: Floats, within: Floats, groups: Sequence[Ints], policy: Policy) -> Pair:
    """Return each series' variance times its degrees of freedom, and these, with those that the series of its group lend."""
    usual, lent = np.ones_like(variance), np.zeros_like(variance)
    for group in groups:
        usual[group], lent[group] = prior(latency[group], variance[group], within[group], policy.most_prior_rounds)
    return lent * usual + within * variance, lent + within


def _effects(change: Floats, total: Floats, freedom: Floats, known: Bools) -> Effects:
    error = np.where(known, np.sqrt(total), np.nan)
    t_freedom = np.maximum(freedom, 1)
    reach = special.stdtrit(t_freedom, 0.975) * error
    p_value = 2 * special.stdtr(t_freedom, -np.abs(change) / error)
    return Effects(change=change, error=error, p_value=p_value, low=change - reach, high=change + reach)


def minimum_effects(floor: Floats, policy: Policy) -> Floats:
    """Return the smallest relative change that counts in each series: the policy's, and at least twice the noise floor."""
    return np.asarray(np.maximum(policy.minimum_effect, np.nan_to_num(2 * np.expm1(floor))))


def minimum_effect(floor: Floor | None) -> float:
    return float(minimum_effects(np.array(floor.p50 if floor else np.nan), DEFAULT))


def _adjusted(p_values: Floats) -> Floats:
    # As `scipy.stats.false_discovery_control` does (Benjamini and Hochberg 1995), which takes a second to import.
    falling = np.argsort(-p_values)
    ranks = np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[falling] = np.minimum.accumulate(np.minimum(p_values[falling] * len(p_values) / ranks, 1))
    return adjusted


def decide(effects: list[Effects], floors: list[Floats], policy: Policy = DEFAULT) -> list[Verdicts]:
    """Return the verdicts of several latencies, adjusted for all of them together."""
    # A change is called one if Benjamini-Hochberg says that it is not noise and its estimate reaches most of the minimum effect. `same` is proven.
    p_values = np.concatenate([item.p_value for item in effects])
    adjusted = np.full_like(p_values, np.nan)
    finite = np.isfinite(p_values)
    adjusted[finite] = _adjusted(p_values[finite])
    of_each = np.split(adjusted, np.cumsum([len(item.change) for item in effects])[:-1])
    decided = []
    for item, floor, mine in zip(effects, floors, of_each, strict=True):
        minimum = np.log1p(minimum_effects(floor, policy))
        real, least = mine <= policy.false_discovery_rate, policy.least_estimate * minimum
        slower, faster = real & (item.change >= least), real & (item.change <= -least)
        same = (item.low > -minimum) & (item.high < minimum) & ~slower & ~faster
        decided.append(Verdicts(adjusted=mine, minimum=minimum, slower=slower, faster=faster, same=same))
    return decided


class _Side(Value):
    runs: Floats
    mean: Floats
    square: Floats  # `mean` is that of the runs' means, and `square` the sum of their squared distances from it
    inverse_rounds: Floats  # variance of the mean if rounds had a variance of 1 and those of a run nothing in common


def _side(runs: Runs, size: int, current: bool) -> _Side:
    here = runs.current == current
    series, mean = runs.series[here], runs.mean[here]
    number = np.bincount(series, minlength=size).astype(np.float64)
    whole = np.maximum(number, 1)
    average = np.bincount(series, mean, minlength=size) / whole
    square = np.bincount(series, (mean - average[series]) ** 2, minlength=size).astype(np.float64)
    inverse_rounds = np.bincount(series, 1 / runs.count[here], minlength=size) / whole**2
    return _Side(runs=number, mean=average, square=square, inverse_rounds=inverse_rounds)
