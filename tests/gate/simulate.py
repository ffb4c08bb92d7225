"""Judges made-up comparisons with the shipped gate and with the rules of other tools, and counts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairbench.analyze.compare.effect import Effects, Verdicts, decide, estimate
from pairbench.analyze.compare.floors import noise as floor_of
from pairbench.analyze.compare.latency import with_relative
from pairbench.analyze.compare.rounds import Bools, Floats, Runs
from pairbench.model.comparison import DEFAULT, Policy
from tests.gate.noise import MARKS_NS, QUICKER, SERIES, Bench, Noise, Side, draw, make_bench, runs_of, spread_of
from tests.gate.peers import PEERS, rounds_of, samples_of

PAST_RUNS = 20
"""That floors come from, where there are any."""
EFFECTS = (0.02, 0.03, 0.05)
MARKS = ("6 us", "14 us", "100 us", "more")
"""Where changes are planted; `more` is anywhere above 100 us."""
RANGES = ("below 14 us", "14 to 100 us", "100 us and more")
_NEAR = 0.1
"""Planted series are moved to within this of their mark, log units."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is compared with what."""

    noise: Noise
    reference_runs: int
    floors: bool
    """Whether the series' noise floors are known from earlier runs."""
    series: int = SERIES
    machine: float = 0.0
    """By how much the machine takes longer, on the current side, for the cases with a slowed variant; log units."""
    alike: bool = False
    """Whether the latencies of a case are alike; else they have nothing to do with each other."""
    relative: bool = True
    """Whether variants are judged relative to their baselines as well, as the harness does."""


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """Identical sides."""

    comparisons: int
    with_alarm: int
    """Comparisons in which any series was called slower or faster, by median or 95th percentile."""
    same: Counter[str]
    """Series whose median was proven the same, by their range of latency."""
    series: Counter[str]


def judge(
    bench: Bench,
    reference: Side,
    current: Side,
    floors: tuple[Floats, Floats],
    policy: Policy,
    *,
    relative: bool = True,
) -> list[Verdicts]:
    """Return the verdicts of medians and 95th percentiles.

    Args:
        bench: The series.
        reference: What they were.
        current: What they are.
        floors: The noise floors of both latencies.
        policy: The thresholds.
        relative: Whether variants are judged relative to their baselines as well, as the harness does.
    """

    def effects(runs: Runs, floor: Floats, null: Bools) -> Effects:
        past = np.full(len(bench.latency_ns), float(PAST_RUNS))
        return estimate(runs, groups=bench.groups, null=null, floor=floor, floor_runs=past, policy=policy)

    own = [
        effects(runs_of(bench, before, now), floor, bench.null)
        for before, now, floor in (
            (reference.p50, current.p50, floors[0]),
            (reference.p95, current.p95, floors[1]),
        )
    ]
    p50, p95 = decide(own, list(floors), policy)
    if relative:
        sides = [side.p50 - side.p50[bench.baseline_of] for side in (reference, current)]
        of_pairs = effects(runs_of(bench, *sides, chosen=~bench.null), floors[0], np.zeros_like(bench.null))
        p50 = with_relative(own[0], p50, of_pairs, floors[0], policy)
    return [p50, p95]


def quiet(setting: Setting, comparisons: int, seed: int, policy: Policy = DEFAULT) -> Quiet:
    """Compare identical sides many times."""
    rng = np.random.default_rng(seed)
    with_alarm = 0
    same: Counter[str] = Counter()
    series: Counter[str] = Counter()
    for _ in range(comparisons):
        bench, spread, floors = _start(setting, rng)
        reference = draw(bench, setting.noise, spread, rng, runs=setting.reference_runs)
        current = draw(bench, setting.noise, spread, rng, runs=1)
        p50, p95 = judge(bench, reference, current, floors, policy, relative=setting.relative)
        with_alarm += bool((p50.slower | p50.faster | p95.slower | p95.faster).any())
        labels = label(bench)
        same.update(labels[p50.same].tolist())
        series.update(labels.tolist())
    return Quiet(comparisons=comparisons, with_alarm=with_alarm, same=same, series=series)


def caught(
    setting: Setting, comparisons: int, seed: int, policy: Policy = DEFAULT
) -> dict[tuple[str, float], Counter[str]]:
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
            verdicts = judge(bench, reference, current, floors, policy, relative=setting.relative)
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


def _start(setting: Setting, rng: np.random.Generator) -> tuple[Bench, Floats, tuple[Floats, Floats]]:
    bench = make_bench(rng, setting.series, alike=setting.alike)
    return bench, *_noise_of(setting, bench, rng)


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


def peers(setting: Setting, comparisons: int, seed: int) -> tuple[dict[str, Counter[str]], int]:
    """Let the rules of other tools judge comparisons, half of them without any change, half with planted ones.

    Returns:
        For each rule the comparisons with an alarm, the series called falsely, and what was caught at each mark and
        effect; and how many comparisons there were of either kind.
    """
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
    return found, comparisons
