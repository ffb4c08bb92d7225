"""Noise floors: how far a series moves between runs of the same code, told by its own past.

Spikes and steps are left out. Second measurements deal with one run that went wrong, and steps are to be
found; were they in the floor, each would hide the next. A series that keeps changing between levels has neither: its
changes are its noise, and stay in.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pairbench.analyze.compare.rounds import Floats, Ints, damage, mean_log, pair_of, relative_rounds, usable
from pairbench.analyze.compare.runs import compare
from pairbench.model.comparison import Floor, GateOutcome
from pairbench.model.record import DEVICE, HOST, Record, Series, result_of
from pairbench.stats import row_medians

LEAST_RUNS = 5  # the number of runs below which nothing can be said of a series' noise
_LATEST = 30  # the number of newest runs that count: older ones are no measure of the present noise
_TELLING = 8  # the number of changes that it takes to tell a spike or a step from noise
_FAR = 4.0  # the number of standard deviations beyond which a value is a spike, or a difference a step
_STEPS = 0.1  # largest part of the differences that can be steps; with more, steps are how this series behaves
_NORMAL = 1.959963984540054


class Past(NamedTuple):
    """The latencies of one series in one run, and the facts that are equal in two runs whose latencies differ by noise alone."""

    p50_ns: float | None
    p95_ns: float | None
    host_ns: float | None
    latency: str  # the latency of `p50_ns` and `p95_ns`: `device` or `call`
    sameness: tuple[str | None, ...]
    host_relative: float | None = None
    """The host's time as a multiple of the baseline's; None for a baseline. The host's times are None on a CPU."""


class Calibrated(NamedTuple):
    floors: dict[Series, Floor]
    comparisons: int
    judged: int
    alarms: int
    """`comparisons` are pairs of runs, `judged` the series in all of them, and `alarms` the regressions and improvements, all of them false."""


def past_of(record: Record, baseline: Record | None = None) -> Past | None:
    if not usable(record) or damage(record):
        return None
    latency = result_of(record)
    p50, p95 = (float(np.exp(mean_log(metric, [record]))) for metric in (latency.p50, latency.p95))
    hashes = (record.environment_hash, record.implementation_hash, record.definition_hash)
    timers = (record.timer, latency.name, record.device_timer if latency is DEVICE else None)
    divisible = latency is DEVICE and baseline is not None and usable(baseline) and not damage(baseline)
    relative = relative_rounds(record, baseline, HOST.p50) if divisible else None
    host = record.host_p50_ns if latency is DEVICE else None
    host_relative = math.exp(relative.mean) if relative else None
    return Past(p50, p95, host, latency.name, (*hashes, *timers), host_relative)


def floors_of(history: Mapping[Series, Sequence[Past]], *, source: str = "history") -> dict[Series, Floor]:
    enough = {series: past[-_LATEST:] for series, past in history.items() if len(past) >= LEAST_RUNS}
    if not enough:
        return {}
    longest = max(map(len, enough.values()))
    levels = np.full((4, len(enough), longest), np.nan)
    kinds = np.full((len(enough), longest), -1, dtype=np.int64)
    for row, past in enumerate(enough.values()):
        labels: dict[tuple[str | None, ...], int] = {}
        for column, item in enumerate(past):
            for latency, value in enumerate((item.p50_ns, item.p95_ns, item.host_ns, item.host_relative)):
                levels[latency, row, column] = np.nan if value is None else value
            kinds[row, column] = labels.setdefault(item.sameness, len(labels))
    logs = np.log(np.where(levels > 0, levels, np.nan))
    (p50, differences), (p95, _), (host, _), (relative, _) = (noise(values, kinds) for values in logs)
    estimates = zip(enough.items(), *(found.tolist() for found in (p50, p95, host, relative, differences)), strict=True)
    return {
        series: Floor(
            p50=of_p50,
            p95=of_p95 if np.isfinite(of_p95) else of_p50,
            runs=int(number) + 1,
            source=source,
            latency=past[-1].latency,
            host=of_host if np.isfinite(of_host) and source == "calibration" else None,
            host_relative=of_relative if np.isfinite(of_relative) and source == "calibration" else None,
        )
        for (series, past), of_p50, of_p95, of_host, of_relative, number in estimates
        if number + 1 >= LEAST_RUNS
    }


def noise(logs: Floats, kinds: Ints) -> tuple[Floats, Floats]:
    """Return the bound of 95 % of the changes between runs, and the number of changes behind it."""
    alike = kinds[:, 1:] == kinds[:, :-1]
    with np.errstate(invalid="ignore"):
        all_ = np.where(alike, np.diff(logs, axis=1), np.nan)
        telling = np.isfinite(all_).sum(axis=1) >= _TELLING
        # The standard deviation by the median size, which a few large differences do not move.
        sizes = np.where(np.isfinite(all_), np.abs(all_), np.nan)
        rough = np.where(telling, 1.4826 * row_medians(sizes), np.inf)[:, None]
        # A spike is far from both its neighbours.
        cleaned = logs.copy()
        middle = logs[:, 1:-1]
        spike = np.abs(middle - _median_of_three(logs)) > _FAR * rough / np.sqrt(2)
        cleaned[:, 1:-1] = np.where(spike & alike[:, 1:] & alike[:, :-1], np.nan, middle)
        differences = np.where(alike, np.diff(cleaned, axis=1), np.nan)
        # A step is large, and lasts.
        wide = np.pad(cleaned, ((0, 0), (2, 2)), mode="edge")
        medians = _median_of_three(wide)
        lasting = medians[:, 3:] - medians[:, :-3]
        step = (np.abs(differences) > _FAR * rough) & ~(np.abs(lasting) < np.abs(differences) / 2)
    known = np.isfinite(differences)
    rare = step.sum(axis=1) <= np.maximum(1, _STEPS * known.sum(axis=1))
    kept = known & ~(step & rare[:, None])
    number = kept.sum(axis=1).astype(np.float64)
    square = np.where(kept, differences, 0.0) ** 2
    size = np.sqrt(square.sum(axis=1) / np.maximum(number, 1))
    return np.where(number > 0, _NORMAL * size, np.nan), number


def calibrate_from(runs: Sequence[Sequence[Record]]) -> Calibrated:
    """Compare every run with every later one of the same code, as if it were the reference, and count false alarms."""
    # No floors are used: they would come from these very runs, and find them quiet.
    judged = alarms = comparisons = 0
    for reference, current in itertools.combinations(runs, 2):
        outcomes = [change.outcome for change in compare(reference, current) if change.verdict is not None]
        comparisons += 1
        judged += len(outcomes)
        alarms += sum(outcome in (GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT) for outcome in outcomes)
    history: dict[Series, list[Past]] = {}
    for records in runs:
        known = [(series, record) for record in records if (series := Series.of(record)) is not None]
        controls = ((series, record) for series, record in known if record.role == "baseline")
        baselines = {(pair_of(series), record.device_uuid): record for series, record in controls}
        for series, record in known:
            baseline = baselines.get((pair_of(series), record.device_uuid))
            if (past := past_of(record, None if record is baseline else baseline)) is not None:
                history.setdefault(series, []).append(past)
    return Calibrated(floors_of(history, source="calibration"), comparisons, judged, alarms)


def _median_of_three(values: Floats) -> Floats:
    return np.median(np.stack([values[:, :-2], values[:, 1:-1], values[:, 2:]]), axis=0)
