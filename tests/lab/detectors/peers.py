"""The detectors that are compared: natural logarithms of a series in, first runs of new levels out.

asv, apache-otava and ruptures are the packages themselves, at the versions of the extra `detectors`; they get the
latencies, as their users would give them. Perfherder's rule and the ratio are restated here, from the sources named.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.builders import detect
from tests.lab.detectors.noises import Floats


@dataclass(frozen=True, kw_only=True)
class Detector:
    name: str
    find: Callable[[Floats], list[int]]
    source: str


def pairbench(levels: Floats) -> list[int]:
    return [point.index for point in detect(levels)]


def asv(levels: Floats) -> list[int]:
    """Run asv's steps and its rule for what of them is a regression; it reports no improvements."""
    from asv import step_detect

    steps = step_detect.detect_steps(np.exp(levels).tolist())
    found = step_detect.detect_regressions(steps, 0.05)[2]
    return [after for _, after, _, _ in found or []]


def asv_steps(levels: Floats) -> list[int]:
    """Run asv's steps, and keep those of 2 %, up or down, however short."""
    from asv import step_detect

    steps = step_detect.detect_steps(np.exp(levels).tolist())
    return [new[0] for old, new in itertools.pairwise(steps) if abs(math.log(new[2] / old[2])) >= math.log(1.02)]


def otava(levels: Floats, magnitude: float = 0.0) -> list[int]:
    """Run Otava's E-divisive with t-test."""
    from otava.analysis import compute_change_points

    points, _ = compute_change_points(np.exp(levels).tolist(), min_magnitude=magnitude)
    return [int(point.index) for point in points]


def pelt(levels: Floats, smallest: float) -> list[int]:
    """Run PELT with squared error; ruptures has no default penalty: 3 sigma**2 ln n, sigma from neighbours' differences."""
    import ruptures

    variance = (1.4826 * np.median(np.abs(np.diff(levels)))) ** 2 / 2
    search = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(levels)
    ends = search.predict(pen=3 * max(variance, 1e-12) * math.log(len(levels)))
    cuts = [0, *ends]
    medians = [float(np.median(levels[start:end])) for start, end in zip(cuts, ends, strict=False)]
    steps = np.abs(np.diff(medians))
    return [int(end) for end, step in zip(ends, steps, strict=False) if step >= math.log1p(smallest)]


def perfherder(levels: Floats) -> list[int]:
    """Compare up to 24 runs before with 12 from there on, nearer ones weighing more; t > 7 at its peak, and 2 %.

    Restated from mozilla/treeherder, treeherder/perfalert/perfalert/__init__.py, one value a push. The look back is 12
    runs after a hit, and grows to 24.
    """
    values = np.exp(levels)
    size = len(values)
    scores = np.zeros(size)
    quiet = 0
    for run in range(1, size):
        back = values[max(0, run - min(max(quiet, 12), 24)) : run][::-1]
        scores[run] = abs(_weighted_t(back, values[run : run + 12]))
        quiet = 0 if scores[run] > 7 else quiet + 1
    found = []
    for run in range(12, size - 11):
        peak = (
            scores[run] > 7
            and scores[run - 1] <= scores[run]
            and scores[run + 1 : run + 2].max(initial=0) <= scores[run]
        )
        before, after = values[run - 12 : run].mean(), values[run : run + 12].mean()
        if peak and abs(after / before - 1) >= 0.02:
            found.append(run)
    return found


def _weighted_t(back: Floats, fore: Floats) -> float:
    means, errors = [], 0.0
    for window in (back, fore):
        weights = np.arange(len(window), 0, -1) / len(window)
        mean = float(weights @ window / weights.sum())
        means.append(mean)
        errors += float(((window - mean) ** 2).sum()) / max(len(window) - 1, 1) / len(window)
    difference = means[1] - means[0]
    return difference / math.sqrt(errors) if errors else math.copysign(math.inf, difference) if difference else 0.0


def ratio(levels: Floats) -> list[int]:
    """Call a run more than 5 % slower than the one before it a regression."""
    return [int(run) + 1 for run in np.flatnonzero(np.diff(levels) > math.log(1.05))]


DETECTORS = (
    Detector(name="pairbench", find=pairbench, source="this repository, defaults"),
    Detector(
        name="asv",
        find=asv,
        source="asv 0.6.6, the package: `step_detect.detect_regressions`, its default threshold of 5 %; upward only",
    ),
    Detector(name="asv steps, 2 %", find=asv_steps, source="the same: `step_detect.detect_steps` alone, steps of 2 %"),
    Detector(name="otava", find=otava, source="apache-otava 0.8.0, the package: `compute_change_points`, defaults"),
    Detector(
        name="otava, 2 %", find=lambda levels: otava(levels, 0.02), source="the same with a least magnitude of 2 %"
    ),
    Detector(
        name="PELT, 2 %",
        find=lambda levels: pelt(levels, 0.02),
        source="ruptures 1.1.10, the package: `Pelt`, squared error, penalty 3 s² ln n; steps of medians under 2 % dropped",
    ),
    Detector(name="Perfherder", find=perfherder, source="restated from treeherder's `perfalert`: t > 7, 2 %"),
    Detector(name="ratio 1.05", find=ratio, source="restated: more than 5 % above the previous run; upward only"),
)
