"""Comparisons that are made up, so that their truth is known, judged by the shipped gate and by the rules of other tools.

The spreads are those measured on an H200 between fresh processes: 3 % at 6 us, 0.7 % at 14 us and 0.15 % from 100 us up (0.2 % in
the worse half), straight lines between them in logarithms. A round is a process. The 95th percentile moves with the median, and
by half as much again on its own. One kind of noise is that of the device latencies of all reference runs, as the page beside
this file has them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pairbench.analyze.compare.effect import Effects, Verdicts, decide, estimate
from pairbench.analyze.compare.floors import noise as floor_of
from pairbench.analyze.compare.latency import with_relative
from pairbench.analyze.compare.rounds import Bools, Floats, Ints, Runs
from pairbench.model.comparison import DEFAULT

SERIES = 500
ROUNDS = 3
SHORTEST_NS, LONGEST_NS = 5e3, 1e7
MARKS_NS = (6e3, 14e3, 100e3)  # latencies that series are planted at, and from the last one up
OF_CASE = 3  # series of one case: a baseline and its variants
QUICKER = 0.7  # the most by which variants are quicker than their baseline, in log units: a speedup of 2
_SPREADS = (0.03, 0.007)
P95_SPREAD = 1.5  # of the 95th percentile's own movement, in units of the median's


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How latencies spread between runs of the same code."""

    name: str
    steady: float = 0.0015  # between rounds, from 100 us up
    of_run: float = 0.0  # that all rounds of a run have in common, at any latency
    freedom: float | None = None
    """Degrees of freedom of Student's t instead of the normal distribution; the spread is the same."""
    short: tuple[float, float] = _SPREADS  # between rounds, at 6 and at 14 us
    uneven: float = 0.0  # how far the spread itself differs between series of one latency, log units


NOISES = (
    Noise(name="0.15 %"),
    Noise(name="0.2 %", steady=0.002),
    Noise(name="0.15 %, runs differ by 0.2 % more", of_run=0.002),
    Noise(name="0.15 %, t with 4 df", freedom=4),
    Noise(name="0.15 %, uneven by a factor of 1.6", uneven=0.5),
    Noise(name="device latencies of all reference runs", short=(0.014, 0.0062), steady=0.002, uneven=0.9),
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    latency_ns: Floats
    null: Bools  # the first of each case: the baseline

    @property
    def baseline_of(self) -> Ints:
        """The place of each series' baseline."""
        places: Ints = np.arange(len(self.latency_ns)) // OF_CASE * OF_CASE
        return places


@dataclass(frozen=True, kw_only=True)
class Side:
    """Rounds of one side: log latencies less the series' own, in an array of series, runs, rounds."""

    p50: Floats
    p95: Floats


def make_bench(rng: np.random.Generator, series: int = SERIES, *, alike: bool = False) -> Bench:
    logs = rng.uniform(np.log(SHORTEST_NS), np.log(LONGEST_NS), series)
    if alike:
        logs = np.repeat(logs[::OF_CASE], OF_CASE)[:series] - np.where(
            np.arange(series) % OF_CASE, rng.uniform(0, QUICKER, series), 0
        )
    return Bench(latency_ns=np.exp(logs), null=np.arange(series) % OF_CASE == 0)


def spread_of(bench: Bench, noise: Noise, rng: np.random.Generator) -> Floats:
    """Return for each series how far its rounds spread."""
    marks, spreads = np.log(MARKS_NS), np.log([*noise.short, noise.steady])
    slope = (spreads[1] - spreads[0]) / (marks[1] - marks[0])
    logs = np.log(bench.latency_ns)
    usual = np.interp(logs, marks, spreads) + slope * np.minimum(logs - marks[0], 0)
    spread: Floats = np.exp(usual + noise.uneven * rng.standard_normal(len(logs)))
    return spread


def draw(bench: Bench, noise: Noise, spread: Floats, rng: np.random.Generator, *, runs: int) -> Side:
    shape = (len(bench.latency_ns), runs, ROUNDS)

    def values(size: tuple[int, ...]) -> Floats:
        if noise.freedom is None:
            return rng.standard_normal(size)
        scaled: Floats = rng.standard_t(noise.freedom, size) * np.sqrt(1 - 2 / noise.freedom)
        return scaled

    p50 = spread[:, None, None] * values(shape) + noise.of_run * values((*shape[:2], 1))
    own = P95_SPREAD * (spread[:, None, None] * values(shape) + noise.of_run * values((*shape[:2], 1)))
    return Side(p50=p50, p95=p50 + own)


def runs_of(bench: Bench, reference: Floats, current: Floats, *, chosen: Bools | None = None) -> Runs:
    """Return both sides as the harness has them, of the chosen series only if any are."""
    parts = []
    for side, values in enumerate((reference, current)):
        logs = values + np.log(bench.latency_ns)[:, None, None]
        mean = logs.mean(axis=2)
        square = ((logs - mean[..., None]) ** 2).sum(axis=2)
        series = np.repeat(np.arange(len(logs)), logs.shape[1])
        kept = np.ones(len(series), dtype=np.bool_) if chosen is None else chosen[series]
        parts.append((series[kept], np.full(kept.sum(), bool(side)), mean.ravel()[kept], square.ravel()[kept]))
    series, current_side, mean, square = (np.concatenate(items) for items in zip(*parts, strict=True))
    count = np.full(len(series), float(ROUNDS))
    return Runs(series=series, current=current_side, count=count, mean=mean, square=square)


SAMPLES = 50  # of a round
SAMPLE_SPREAD = 0.01  # between the samples of a round


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A rule that sees log latencies of the reference and of the current side, one row a series."""

    name: str
    rule: Callable[[Floats, Floats], Bools]
    samples: bool  # whether it sees the pooled samples instead of each round's median


def ratio(limit: float) -> Callable[[Floats, Floats], Bools]:
    """Medians further apart than a factor."""
    return lambda before, now: np.abs(np.median(now, axis=1) - np.median(before, axis=1)) > np.log(limit)


def rank_test(p: float, factor: float = 1.0) -> Callable[[Floats, Floats], Bools]:
    """Mann-Whitney's U, two-sided, and medians further apart than a factor."""
    far = ratio(factor)
    return lambda before, now: (stats.mannwhitneyu(now, before, axis=1, method="auto").pvalue < p) & far(before, now)


def apart(before: Floats, now: Floats) -> Bools:
    """Tell where the 99 % intervals of both medians, from order statistics, do not overlap."""

    def ends(values: Floats) -> tuple[Floats, Floats]:
        ordered = np.sort(values, axis=1)
        rank = max(int(stats.binom.ppf(0.005, values.shape[1], 0.5)) - 1, 0)
        return ordered[:, rank], ordered[:, -1 - rank]

    (low_before, high_before), (low_now, high_now) = ends(before), ends(now)
    found: Bools = (low_now > high_before) | (low_before > high_now)
    return found


PEERS = (
    Peer(name="ratio of medians > 1.05", rule=ratio(1.05), samples=False),
    Peer(name="Mann-Whitney p < .05 on rounds", rule=rank_test(0.05), samples=False),
    Peer(name="Mann-Whitney p < .05 on pooled samples", rule=rank_test(0.05), samples=True),
    Peer(name="Mann-Whitney p < .002 on pooled samples and ratio > 1.05", rule=rank_test(0.002, 1.05), samples=True),
    Peer(name="99 % intervals of the medians do not overlap, pooled samples", rule=apart, samples=True),
)


def samples_of(side: Side, rng: np.random.Generator) -> Floats:
    """Return the samples of all rounds of a side, one row a series."""
    size = (*side.p50.shape, SAMPLES)
    values = side.p50[..., None] + SAMPLE_SPREAD * rng.standard_normal(size)
    return values.reshape(len(values), -1)


def rounds_of(side: Side) -> Floats:
    """Return the medians of all rounds of a side, one row a series."""
    return side.p50.reshape(len(side.p50), -1)


PAST_RUNS = 20  # that floors come from, where there are any
EFFECTS = (0.02, 0.03, 0.05)
MARKS = ("6 us", "14 us", "100 us", "more")  # where changes are planted; `more` is anywhere above 100 us
RANGES = ("below 14 us", "14 to 100 us", "100 us and more")
_NEAR = 0.1  # planted series are moved to within this of their mark, log units


@dataclass(frozen=True, kw_only=True)
class Setting:
    noise: Noise
    reference_runs: int
    floors: bool  # whether the series' noise floors are known from earlier runs
    series: int = SERIES
    machine: float = 0.0
    """By how much the machine takes longer, on the current side, for the cases with a slowed variant; log units."""
    alike: bool = False  # whether the latencies of a case are alike; else they have nothing to do with each other
    relative: bool = True  # whether variants are judged relative to their baselines as well, as the harness does


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """Identical sides."""

    with_alarm: int  # comparisons in which any series was called slower or faster, by median or 95th percentile
    same: Counter[str]  # series whose median was proven the same, by their range of latency
    series: Counter[str]


def judge(
    bench: Bench, reference: Side, current: Side, floors: tuple[Floats, Floats], *, relative: bool = True
) -> list[Verdicts]:
    """Return the verdicts of medians and 95th percentiles."""

    def effects(runs: Runs, floor: Floats, null: Bools) -> Effects:
        past = np.full(len(bench.latency_ns), float(PAST_RUNS))
        one_group = np.zeros(len(past), dtype=np.int64)
        return estimate(runs, groups=one_group, null=null, floor=floor, floor_runs=past, policy=DEFAULT)

    own = [
        effects(runs_of(bench, before, now), floor, bench.null)
        for before, now, floor in ((reference.p50, current.p50, floors[0]), (reference.p95, current.p95, floors[1]))
    ]
    p50, p95 = decide(own, list(floors))
    if relative:
        sides = [side.p50 - side.p50[bench.baseline_of] for side in (reference, current)]
        of_pairs = effects(runs_of(bench, *sides, chosen=~bench.null), floors[0], np.zeros_like(bench.null))
        p50 = with_relative(own[0], p50, of_pairs, floors[0], DEFAULT)
    return [p50, p95]


def quiet(setting: Setting, comparisons: int, seed: int) -> Quiet:
    """Compare identical sides many times."""
    rng = np.random.default_rng(seed)
    with_alarm = 0
    same: Counter[str] = Counter()
    series: Counter[str] = Counter()
    for _ in range(comparisons):
        bench = make_bench(rng, setting.series, alike=setting.alike)
        spread, floors = _noise_of(setting, bench, rng)
        reference = draw(bench, setting.noise, spread, rng, runs=setting.reference_runs)
        current = draw(bench, setting.noise, spread, rng, runs=1)
        p50, p95 = judge(bench, reference, current, floors, relative=setting.relative)
        with_alarm += bool((p50.slower | p50.faster | p95.slower | p95.faster).any())
        labels = label(bench)
        same.update(labels[p50.same].tolist())
        series.update(labels.tolist())
    return Quiet(with_alarm=with_alarm, same=same, series=series)


def caught(setting: Setting, comparisons: int, seed: int) -> dict[tuple[str, float], Counter[str]]:
    """Slow single variants among series that did not change, and count what is said of them.

    In each comparison every mark has one slowed series for each effect: few, so that the many others set the bar.
    """
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, float], Counter[str]] = {(mark, effect): Counter() for mark in MARKS for effect in EFFECTS}
    for _ in range(comparisons):
        for effect in EFFECTS:
            bench, places = _placed(make_bench(rng, setting.series, alike=setting.alike), rng)
            spread, floors = _noise_of(setting, bench, rng)
            reference = draw(bench, setting.noise, spread, rng, runs=setting.reference_runs)
            current = draw(bench, setting.noise, spread, rng, runs=1)
            of_cases = np.isin(bench.baseline_of, bench.baseline_of[list(places)])
            for values in (current.p50, current.p95):
                values[list(places)] += np.log1p(effect)
                values[of_cases] += setting.machine
            verdicts = judge(bench, reference, current, floors, relative=setting.relative)
            for mark, place in zip(MARKS, places, strict=True):
                found[mark, effect][_word(verdicts[0], place)] += 1
    return found


def label(bench: Bench) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return for each series the range of latency that it is in."""
    chosen: np.ndarray[tuple[int], np.dtype[np.str_]] = np.array(RANGES)[np.digitize(bench.latency_ns, MARKS_NS[1:])]
    return chosen


def _placed(bench: Bench, rng: np.random.Generator) -> tuple[Bench, Sequence[int]]:
    """Return a bench with a variant at each mark, and one anywhere above the last, each in a case of its own."""
    latency = bench.latency_ns.copy()
    places = (1, 4, 7, 10)
    for place, mark in zip(places, MARKS_NS, strict=False):
        latency[place] = mark * np.exp(rng.uniform(0, _NEAR))
    latency[places[3]] = np.exp(rng.uniform(np.log(MARKS_NS[-1]), np.log(latency.max())))
    for place in places:
        latency[place - 1] = latency[place] * np.exp(rng.uniform(0, QUICKER))
    return Bench(latency_ns=latency, null=bench.null), places


def _noise_of(setting: Setting, bench: Bench, rng: np.random.Generator) -> tuple[Floats, tuple[Floats, Floats]]:
    spread = spread_of(bench, setting.noise, rng)
    if not setting.floors:
        nothing = np.full(len(spread), np.nan)
        return spread, (nothing, nothing)
    past = draw(bench, setting.noise, spread, rng, runs=PAST_RUNS)
    kinds = np.zeros((len(spread), PAST_RUNS), dtype=np.int64)
    return spread, (floor_of(past.p50.mean(axis=2), kinds)[0], floor_of(past.p95.mean(axis=2), kinds)[0])


def _word(verdicts: Verdicts, place: int) -> str:
    if verdicts.slower[place]:
        return "slower"
    return "same" if verdicts.same[place] else "faster" if verdicts.faster[place] else "undecided"


def peers(setting: Setting, comparisons: int, seed: int) -> dict[str, Counter[str]]:
    """Let the rules of other tools judge comparisons, half of them without any change, half with planted ones."""
    rng = np.random.default_rng(seed)
    found: dict[str, Counter[str]] = {peer.name: Counter() for peer in PEERS}
    for _ in range(comparisons):
        for effect in (0.0, *EFFECTS):
            bench, places = _placed(make_bench(rng, setting.series), rng)
            spread = spread_of(bench, setting.noise, rng)
            reference = draw(bench, setting.noise, spread, rng, runs=setting.reference_runs)
            current = draw(bench, setting.noise, spread, rng, runs=1)
            current.p50[list(places)] += np.log1p(effect)
            views = {False: (rounds_of(reference), rounds_of(current))}
            views[True] = samples_of(reference, rng), samples_of(current, rng)
            for peer in PEERS:
                called = peer.rule(*views[peer.samples])
                counter = found[peer.name]
                if not effect:
                    counter["comparisons"] += bool(called.any())
                    counter["series"] += int(called.sum())
                for mark, place in zip(MARKS, places, strict=True):
                    counter[f"{mark} {effect:.0%}"] += int(called[place])
    return found
