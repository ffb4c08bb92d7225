"""Makes a store of 1,000 runs of 2,000 series and times `pairbench compare` and `pairbench trend` on it.

    python -m tests.lab.scale.bench [--runs 1000] [--series 2000] [--store FOLDER] [--times 3] [--compact]

`nox -s scale` runs it, also with 10,000 runs and `--compact`: then `pairbench store compact` comes first, is timed too, and compare and trend
are judged by the limits of a large store, start-up included. A store that is there already is used again. Times are of whole processes, the
best of some; what a process takes to start and to load its libraries is timed as well, for a trend is else judged without it. Exits with 1
where one takes too long.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.scale.big_store import first_variant, write_store

ROOT = Path(__file__).parents[3]

COMPARE_S = 3.0
TREND_S = 1.0  # after start-up
COMPARE_LARGE_S = 5.0
TREND_LARGE_S = 3.0  # both with start-up, of a store of 10,000 runs that has been compacted

_IMPORTS = {
    "compare": "pairbench.cli, pairbench.workflow.comparer, pairbench.report.comparison",
    "trend": "pairbench.cli, pairbench.workflow.lookup, pairbench.analyze.history.trend, pairbench.report.trend",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--series", type=int, default=2000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--compact", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or Path(folder) / "store"
        if not (store / "records").is_dir():
            make(store, runs=given.runs, series=given.series)
        if given.compact:
            notify(
                f"compacted in {best(lambda: run('-m', 'pairbench', 'store', 'compact', '--store', str(store)), 1):.0f} s"
            )
            files = [path.stat().st_size for path in (store / "records").rglob("*.parquet")]
            notify(f"{len(files):,} files, {sum(files) / 1e6:.0f} MB")
        return measure(store, given.times, large=given.compact)


def make(store: Path, *, runs: int, series: int) -> None:
    """Make the store; a quarter of the way one variant becomes 3 % slower."""
    began = time.perf_counter()
    for number in write_store(store, runs=runs, series=series, slower={runs // 4: 1.03}):
        if number % 100 == 99:
            notify(f"made {number + 1} of {runs} runs")
    size = sum(path.stat().st_size for path in store.rglob("*.parquet"))
    notify(f"{runs:,} runs of {series:,} series, {size / 1e6:.0f} MB, made in {time.perf_counter() - began:.0f} s")


def measure(store: Path, times: int, *, large: bool = False) -> int:
    name = first_variant()
    loading = {verb: best(functools.partial(run, "-c", f"import {names}"), times) for verb, names in _IMPORTS.items()}
    compare = best(lambda: run("-m", "pairbench", "compare", "--store", str(store)), times)
    trend = best(lambda: run("-m", "pairbench", "trend", name, "--store", str(store)), times)
    notify(f"start-up: {', '.join(f'{verb} {seconds:.2f} s' for verb, seconds in loading.items())}")
    if large:
        return judge([("compare", compare, "s", COMPARE_LARGE_S), ("trend", trend, "s", TREND_LARGE_S)])
    after = ("trend after start-up", trend - loading["trend"], "s", TREND_S)
    return judge([("compare", compare, "s", COMPARE_S), after])


def judge(rows: Sequence[tuple[str, float, str, float]]) -> int:
    """Print what was measured beside its limit, and return 1 where a limit is passed."""
    notify(f"{'what':26} {'measured':>12} {'limit':>9}")
    for what, value, unit, limit in rows:
        notify(f"{what:26} {value:9.2f} {unit:2} {limit:6.1f} {unit:2}{'' if value <= limit else '  too much'}")
    return int(any(value > limit for _, value, _, limit in rows))


def best(once: Callable[[], None], times: int) -> float:
    """Return the shortest time in seconds: how long it needs, not how busy the machine is."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        once()
        found.append(time.perf_counter() - began)
    return min(found)


def run(*arguments: str) -> None:
    """Run a Python process, from outside any checkout."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "harness"), os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


def notify(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
