"""Made-up histories with one culprit: searched as `pairbench bisect` does, and as `git bisect run` would with a script that times.

A round is a pair of fresh processes in turns, so its log ratio spreads by the square root of 2 times what the median of a process does:
3 % at 6 us, 0.7 % at 14 us.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pairbench.analyze.compare.effect import decide, estimate_paired
from pairbench.analyze.compare.rounds import Floats
from pairbench.features.bisect.posterior import Round, Spread, candidates, is_enough, next_probe, posterior, prior_of
from pairbench.features.bisect.search import TRIES

MOST = 200  # rounds after which a search gives up, as by default
CONFIRMING, MORE = 5, 3
"""Rounds that confirm the ends, as by default, and how many times as many where they leave it open."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    latency_us: float
    spread: float  # the standard deviation of the median's logarithm between processes
    step: float  # by how much the culprit is slower, as a part of one
    commits: int = 256
    unmeasurable: float = 0.0  # the part of the commits that cannot be measured
    changing: float | None = None
    """The part of the commits that change the implementation's hash; None where nothing is known of it."""
    culprit_changes: bool = True  # whether the culprit is among them
    freedom: float | None = None
    """Degrees of freedom of Student's t instead of the normal distribution; the spread is the same."""
    outliers: float = 0.0
    """The part of rounds, but for those of the ends, that read as if the culprit were on the other side."""

    @property
    def size(self) -> float:
        return float(np.log1p(self.step))

    def noise(self, rng: np.random.Generator, rounds: int) -> Floats:
        """Return the log ratios of rounds without a step."""
        if self.freedom is None:
            values: Floats = rng.standard_normal(rounds)
        else:
            values = np.sqrt(1 - 2 / self.freedom) * rng.standard_t(self.freedom, rounds)
        return values * (self.spread * 2**0.5)

    def ratios(self, rng: np.random.Generator, rounds: int, *, moved: bool) -> Floats:
        """Return the log ratios of rounds of two commits that the culprit is between, or is not, outliers among them."""
        other = rng.random(rounds) < self.outliers if self.outliers else np.zeros(rounds, dtype=bool)
        values: Floats = self.noise(rng, rounds) + self.size * (other != moved)
        return values


SHORT = Planted(latency_us=6, spread=0.03, step=0.05)
LONGER = Planted(latency_us=14, spread=0.007, step=0.03)
DOUBLED = Planted(latency_us=2000, spread=0.01, step=0.94, commits=12)  # A call on a CPU that does its work twice


@dataclass(frozen=True, kw_only=True)
class Searched:
    right: bool  # whether it named the culprit, alone or among those that cannot be told from it
    sure: bool = True  # whether it named anything
    confirmed: bool = True  # whether the ends were found to differ, and so anything was looked for
    rounds: int = 0  # rounds of commits, without those of the ends
    confirming: int = 0


Search = Callable[[Planted, np.random.Generator], Searched]


def shipped(planted: Planted, rng: np.random.Generator) -> Searched:
    """Search as `pairbench bisect` does where the store has no floor: nothing is known but what the rounds say."""
    ends, confirmed = _confirm(planted, rng)
    if not confirmed:
        return Searched(right=False, sure=False, confirmed=False, confirming=len(ends))
    return replace(_search(planted, rng, ends, Spread.least()), confirming=len(ends))


def told(planted: Planted, rng: np.random.Generator) -> Searched:
    """Search as `pairbench bisect` would if it knew the step and the spread beforehand, which no one does."""
    ends = np.full(1000, planted.size)
    return _search(planted, rng, ends, Spread(deviation=float(np.sqrt(2) * planted.spread), weight=1e6))


def plain(rounds: int) -> Search:
    """Return a search as `git bisect run` makes it, with a script that takes so many rounds and knows half of the step as its threshold."""

    def search(planted: Planted, rng: np.random.Generator) -> Searched:
        culprit = int(rng.integers(1, planted.commits + 1))
        good, bad, taken = 0, planted.commits, 0
        while bad - good > 1:
            middle = (good + bad) // 2
            mean = planted.noise(rng, rounds).mean() + planted.size * (middle >= culprit)
            taken += rounds
            good, bad = (good, middle) if mean > planted.size / 2 else (middle, bad)
        return Searched(right=bad == culprit, rounds=taken)

    return search


def _confirm(planted: Planted, rng: np.random.Generator) -> tuple[Floats, bool]:
    """Return the rounds of the ends as `ab` takes them, suspects measured again, and whether they are found to differ."""
    ratios = np.empty(0)
    for rounds in (CONFIRMING, CONFIRMING * MORE):
        ratios = planted.noise(rng, rounds) + planted.size
        for again in (False, True):
            ratios = np.concatenate([ratios, planted.noise(rng, rounds) + planted.size]) if again else ratios
            if not _slower(planted, ratios):
                break
        else:
            return ratios, True
    return ratios, False


def _slower(planted: Planted, ratios: Floats) -> bool:
    latency = np.log(np.array([planted.latency_us * 1e3]))
    effects = estimate_paired([ratios], latency, np.zeros(1, dtype=np.int64))
    return bool(decide([effects], [np.array([np.nan])])[0].slower[0])


def _search(planted: Planted, rng: np.random.Generator, ends: Floats, spread: Spread) -> Searched:
    last = planted.commits
    changes = rng.random(last) < planted.changing if planted.changing is not None else None
    culprit = int(rng.integers(1, last + 1))
    if changes is not None:
        able = np.flatnonzero(changes == planted.culprit_changes) + 1
        culprit = int(rng.choice(able)) if len(able) else culprit
    prior = prior_of([None] * last if changes is None else changes.tolist())
    skipped: set[int] = set()
    unmeasurable = set((np.flatnonzero(rng.random(last - 1) < planted.unmeasurable) + 1).tolist())
    rounds = [Round(commit=last, log_ratio=float(ratio)) for ratio in ends]
    taken, tries, known_hashes = 0, 0, [] if changes is None else changes.tolist()
    while True:
        known = posterior(prior, rounds, spread)
        best = candidates(known.probability, skipped)[0]
        sure = is_enough(best, known_hashes)
        if sure and tries < TRIES:
            tries += 1
            for number in (CONFIRMING, CONFIRMING * MORE):
                ratios = planted.ratios(rng, 2 * number, moved=best.first <= culprit <= best.last)
                rounds += [Round(commit=best.last, base=best.first - 1, log_ratio=float(one)) for one in ratios]
                if sure := _slower(planted, ratios[:number]) and _slower(planted, ratios):
                    break
            if sure:
                break
            continue
        if sure or taken == MOST:
            sure = False
            break
        number = next_probe(known, skipped)
        if number in unmeasurable:
            skipped.add(number)
            continue
        taken += 1
        ratio = float(planted.ratios(rng, 1, moved=number >= culprit)[0])
        rounds.append(Round(commit=number, log_ratio=ratio))
    return Searched(right=sure and best.first <= culprit <= best.last, sure=sure, rounds=taken)
