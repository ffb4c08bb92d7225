"""Measure the detector and its peers on the same series, and write the tables of README.md beside this file.

python -m tests.lab.detectors.bench [--data FOLDER] [--write] [--half held-out] [--series 100] [--jobs 2]
"""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.lab.detectors import real, scores
from tests.lab.detectors.noises import HALVES, HARDER, NOISES
from tests.lab.detectors.peers import DETECTORS
from tests.lab.page import Rows, show, write

PAGE = Path(__file__).with_name("README.md")
SIZES = (100, 300, 1000, 3000)
OURS = DETECTORS[0]
DRIFTS = PAGE.parents[3] / "docs" / "measurements" / "drift.md"
DELAYED = (0.03, 0.05)
SPREADS = (0.005, 0.01, 0.02)
RATES = (0.0005, 0.0015, 0.003, 0.005)


def main() -> int:
    options = _options()
    tables = show([("detectors", [["name", "what runs"], *([one.name, one.source] for one in DETECTORS)])])
    # Each task is small and names its detector by number: lambdas do not travel between processes.
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        tables |= show(_measured(pool, options.half, options.series))
        drifts = show(_drifts(pool, options.half, options.series))
    # By themselves, so that nothing runs beside what is being timed.
    tables |= show([("time", _times(options.half))])
    if options.data:
        tables |= show([("real", _real(options.data))])
    if options.write:
        write(PAGE, tables)
        write(DRIFTS, drifts)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the real series; without it they are left out")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    parser.add_argument(
        "--half", choices=HALVES, default="held-out", help="which series; constants are set on the other"
    )
    parser.add_argument(
        "--series", type=int, default=100, help="for each peer and setting; ours gets ten times as many"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    if options.data and not options.data.is_dir():
        parser.error(
            f"--data: {options.data} is no folder; expected one that holds tcpd, mongodb_spa, otava_tigerbeetle.csv"
        )
    if options.write and options.half != "held-out":
        parser.error("--write: the page shows the held-out half; leave out --half or leave out --write")
    return options


def _measured(pool: Executor, half: str, series: int) -> Iterator[tuple[str, Rows]]:
    settings = [(noise, cv) for cv in scores.CVS for noise in NOISES]
    nulls, recalls, delays = {}, {}, {}
    for index, detector in enumerate(DETECTORS):
        more = 10 if detector is OURS else 1
        for noise, cv in settings:
            nulls[index, noise, cv] = pool.submit(_call, index, "null_alarms", half, noise, cv, series * more)
            recalls[index, noise, cv] = pool.submit(_call, index, "recall", half, noise, cv, series * min(more, 5))
        for noise in NOISES:
            for step in DELAYED:
                args = (half, noise, 0.01, max(series // 4, 2) * min(more, 4), step)
                delays[index, noise, step] = pool.submit(_call, index, "delays", *args)
    harder = _harder(pool, half, series)
    newest = {
        (noise, cv, runs, step): pool.submit(scores.newest_verdicts, half, noise, cv, series * 4, runs, step)
        for noise, cv in settings
        for runs, step in ((3, 0.0), (1, 0.05), (2, 0.05), (3, 0.05))
    }
    yield "null", _per_setting(settings, lambda i, noise, cv: _percent(nulls[i, noise, cv].result()))
    for cv in scores.CVS:
        rows = [["noise", "step", *(detector.name for detector in DETECTORS)]]
        for noise in NOISES:
            found = [recalls[index, noise, cv].result()[0] for index in range(len(DETECTORS))]
            rows += [
                [noise, f"{step:.0%}", *(_percent(shares[column]) for shares in found)]
                for column, step in enumerate(scores.STEPS)
            ]
        yield f"recall {cv:.0%}", rows
    yield "elsewhere", _per_setting(settings, lambda i, noise, cv: _percent(recalls[i, noise, cv].result()[1]))
    rows = [["noise", "step", *(detector.name for detector in DETECTORS)]]
    for noise in NOISES:
        for step in DELAYED:
            needed = [delays[index, noise, step].result() for index in range(len(DETECTORS))]
            rows.append([noise, f"{step:.0%}", *map(_delay, needed)])
    yield "delay", rows
    yield (
        "harder",
        [["series", "share with an alarm"], *([name, _percent(task.result())] for name, task in harder.items())],
    )
    head = ["noise", "CV", "wrong, nothing new", "same, nothing new", "+5 %: 1 run", "2 runs", "3 runs"]
    rows = [head]
    for noise, cv in settings:
        still = newest[noise, cv, 3, 0.0].result()
        late = [newest[noise, cv, runs, 0.05].result()["slower"] for runs in (1, 2, 3)]
        shares = [still["slower"] + still["faster"], still["same"], *late]
        rows.append([noise, f"{cv:.0%}", *map(_percent, shares)])
    yield "newest", rows


def _drifts(pool: Executor, half: str, series: int) -> Iterator[tuple[str, Rows]]:
    slow = {(cv, rate): pool.submit(scores.drift_delays, half, cv, series, rate) for cv in SPREADS for rate in RATES}
    steps = (0.0, 0.03, 0.05, 0.1)
    false = {
        (noise, cv, step): pool.submit(scores.drifts, half, noise, cv, series * 5, step)
        for noise in (*NOISES, *HARDER)
        for cv in SPREADS
        for step in steps
    }
    rows = [["noise", *(f"{rate:.2%} a run" for rate in RATES)]]
    rows += [[f"{cv:.1%}", *(_told(slow[cv, rate].result(), rate) for rate in RATES)] for cv in SPREADS]
    yield "delay", rows
    rows = [["noise", "CV", "nothing happens", *(f"a step of {step:.0%}" for step in steps[1:])]]
    for noise in (*NOISES, *HARDER):
        for cv in SPREADS:
            rows.append([noise, f"{cv:.1%}", *(_percent(false[noise, cv, step].result()) for step in steps)])
    yield "false", rows


def _told(needed: list[int], rate: float) -> str:
    """Return the delay in runs, and the rise after its median; a dash where most are not found in time."""
    middle = sorted(needed)[len(needed) // 2]
    return f"{_delay(needed, scores.SLOWLY)}, {np.expm1(rate * middle):+.1%}" if middle <= scores.SLOWLY else "-"


def _harder(pool: Executor, half: str, series: int) -> dict[str, Future[Any]]:
    tasks = {}
    for noise in HARDER:
        tasks[f"{noise}, CV 2%, 100 runs"] = pool.submit(_call, 0, "null_alarms", half, noise, 0.02, series * 5)
    for noise in NOISES:
        for size, count in ((20, series * 5), (300, series * 2), (1000, series // 2)):
            name = f"{noise}, CV 2%, {size} runs"
            tasks[name] = pool.submit(_call, 0, "null_alarms", half, noise, 0.02, max(count, 2), size)
    for noise in NOISES:
        name = f"{noise}, CV 2%, 100 runs, looked at after each"
        tasks[name] = pool.submit(_call, 0, "ever_alarms", half, noise, 0.02, series)
    return tasks


def _times(half: str) -> Rows:
    rows = [["runs", *(detector.name for detector in DETECTORS)]]
    for size in SIZES:
        took = [scores.milliseconds(detector.find, half, size) for detector in DETECTORS]
        rows += [[str(size), *(f"{each:.0f}" if each >= 10 else f"{each:.1f}" for each in took)]]
    return rows


def _real(folder: Path) -> Rows:
    rows = [["series", "half", "runs", "what", *(detector.name for detector in DETECTORS)]]
    for series in real.read(folder):
        head = [series.name, series.half, str(len(series.levels))]
        if series.marked:
            found = [real.agreement(detector.find, series) for detector in DETECTORS]
            for column, what in enumerate(("precision", "recall", "F1")):
                rows.append([*head, what, *(f"{scored[column]:.2f}" for scored in found)])
        else:
            rows.append([*head, "changes", *(str(len(detector.find(series.levels))) for detector in DETECTORS)])
    return rows


def _call(index: int, score: str, *arguments: Any) -> Any:
    return getattr(scores, score)(DETECTORS[index].find, *arguments)


def _per_setting(settings: list[tuple[str, float]], cell: Any) -> Rows:
    head = ["noise", "CV", *(detector.name for detector in DETECTORS)]
    return [
        head,
        *([noise, f"{cv:.0%}", *(cell(i, noise, cv) for i in range(len(DETECTORS)))] for noise, cv in settings),
    ]


def _percent(share: float) -> str:
    """Return percent with a digit below ten: 0.4, 12."""
    return f"{100 * share:.1f}" if 0 < share < 0.1 else f"{100 * share:.0f}"


def _delay(needed: list[int], most: int = scores.PATIENCE) -> str:
    """Return the median and the 90th percentile; a dash for what is not found in time."""
    ends = (sorted(needed)[int(len(needed) * part)] for part in (0.5, 0.9))
    return " / ".join(str(end) if end <= most else "-" for end in ends)


if __name__ == "__main__":
    sys.exit(main())
