"""What is counted for a detector: values in, rates out. Each function is one task, so that they can share out the cores."""

import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from pairbench.analyze.history.trend import judge_newest
from pairbench.model.comparison import Verdict
from tests.builders import detect, explain
from tests.lab.detectors import noises
from tests.lab.detectors.noises import Floats

Find = Callable[[Floats], list[int]]

STEPS = (0.02, 0.03, 0.05, 0.1)
CVS = (0.01, 0.02)
NEAR = 3  # runs that a changepoint may be off by
PATIENCE, SLOWLY = 30, 60
"""Runs after a step, and of a slope, that are revealed, one by one."""


def null_alarms(find: Find, half: str, noise: str, cv: float, series: int, size: int = 100) -> float:
    """Return the share of series without a step on which anything is reported."""
    return float(np.mean([bool(find(noises.null(half, noise, cv, number, size))) for number in range(series)]))


def recall(find: Find, half: str, noise: str, cv: float, series: int) -> tuple[list[float], float]:
    """Return, for each of STEPS, the share found within NEAR runs, and the share of all with an alarm anywhere else."""
    hits = np.zeros(len(STEPS))
    elsewhere = 0
    for number in range(series):
        level, place = noises.null(half, noise, cv, number), noises.step_of(half, noise, cv, number)
        for column, step in enumerate(STEPS):
            found = find(noises.stepped(level, place, step))
            near = [abs(run - place) <= NEAR for run in found]
            hits[column] += any(near)
            elsewhere += not all(near)
    return (hits / series).tolist(), elsewhere / series / len(STEPS)


def delays(find: Find, half: str, noise: str, cv: float, series: int, step: float) -> list[int]:
    """Return, for each series, how many runs of the new level were needed to find it; more than PATIENCE for never."""
    needed = []
    for number in range(series):
        level = noises.stepped(noises.null(half, noise, cv, number, 60 + PATIENCE), 60, step)
        seen = (find(level[: 60 + runs]) for runs in range(1, PATIENCE + 1))
        found = (runs for runs, places in enumerate(seen, start=1) if any(abs(place - 60) <= NEAR for place in places))
        needed.append(next(found, PATIENCE + 1))
    return needed


def ever_alarms(find: Find, half: str, noise: str, cv: float, series: int, size: int = 100) -> float:
    """Return the share of series without a step that alarm at any time, looked at after every run."""
    alarmed = 0
    for number in range(series):
        level = noises.null(half, noise, cv, number, size)
        alarmed += any(find(level[:runs]) for runs in range(8, size + 1))
    return alarmed / series


def newest_verdicts(half: str, noise: str, cv: float, series: int, runs: int, step: float) -> dict[str, float]:
    """Return how often each verdict is given on the newest run, after so many runs of a new level."""
    said: Counter[str] = Counter({verdict.value: 0 for verdict in Verdict})
    for number in range(series):
        level = noises.stepped(noises.null(half, noise, cv, number, 60 + runs), 60, step)
        said[judge_newest(level, detect(level)).verdict.value] += 1
    return {verdict: count / series for verdict, count in said.items()}


def drifts(half: str, noise: str, cv: float, series: int, step: float = 0.0) -> float:
    """Return the share of series taken for drifts in which there is none: in which nothing happens, or one step 4 to 33 runs ago."""
    taken = 0
    for number in range(series):
        level = noises.null(half, noise, cv, number)
        if step:
            place = noises.step_of(half, noise, cv, number)
            level = noises.stepped(level, place, step)[: place + 4 + number % 30]
        taken += explain(level)[1] is not None
    return taken / series


def drift_delays(half: str, cv: float, series: int, rate: float) -> list[int]:
    """Return, for each series, after how many runs of a slope it is told as a drift that goes on; SLOWLY + 1 for never."""
    needed = []
    for number in range(series):
        level = noises.null(half, "iid", cv, number, 30 + SLOWLY)
        level = level + rate * np.clip(np.arange(len(level)) - 29, 0, None)
        told = (runs for runs in range(4, SLOWLY + 1) if _goes_on(level[: 30 + runs]))
        needed.append(next(told, SLOWLY + 1))
    return needed


def _goes_on(levels: Floats) -> bool:
    drift = explain(levels)[1]
    return drift is not None and drift.last == len(levels) - 1


def milliseconds(find: Find, half: str, size: int) -> float:
    """Return the least time of three for a series with a 5 % step in its middle; of one where that takes a second."""
    level = noises.stepped(noises.null(half, "AR(1) 0.5", 0.01, 0, size), size // 2, 0.05)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        find(level)
        took = time.perf_counter() - start
        best = min(best, took)
        if took > 1:
            break
    return 1000 * best
