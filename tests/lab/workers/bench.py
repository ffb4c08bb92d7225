"""Measure whether rounds in forked workers are as independent as rounds in fresh interpreters, and how long both take.

python -m tests.lab.workers.bench [SUITE] [--device auto] [--runs 4] [--store FOLDER]

Runs of both kinds are made in turns, so that what drifts moves both. A store that has runs is only read with `--runs 0`.
README.md beside this file has what was found.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).parents[3]
KINDS = ("fresh", "fork")
SERIES = ["operator", "case", "implementation", "mode"]
CHANCE = 0.05


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory() as scratch:
        store = options.store or Path(scratch)
        seconds = pd.DataFrame(
            [
                {kind: timed_run(kind, options.suite, options.device, store / kind) for kind in KINDS}
                for _ in range(options.runs)
            ]
        )
        if len(seconds):
            sys.stdout.write(f"Seconds of a run\n\n{seconds.describe().loc[['min', '50%', 'max']].round(1)}\n\n")
        rounds = {kind: rounds_of(store / kind) for kind in KINDS}
    shown = pd.DataFrame({kind: independence(table) for kind, table in rounds.items()})
    sys.stdout.write(f"{shown.to_string(float_format='{:.3g}'.format)}\n\n{level(rounds)}\n")
    return 0


def timed_run(kind: str, suite: str, device: str, store: Path) -> float:
    """Make a run whose workers are of a kind, and return how long the command took, in seconds."""
    command = [sys.executable, "-m", "pairbench", "run", suite, "--device", device, "--store", str(store)]
    begun = time.monotonic()
    subprocess.run(command, env=os.environ | {"PAIRBENCH_WORKERS": kind}, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def rounds_of(store: Path) -> pd.DataFrame:
    """Return the P50 of each round: on the device on a GPU, of calls elsewhere. Columns: series, run, log_p50."""
    rows = pd.read_parquet(store / "records")
    rows = rows[rows["status"] == "measured"]
    on_gpu = (rows["device_kind"] == "cuda").all()
    p50 = rows["device_round_p50_ns" if on_gpu else "round_p50_ns"]
    table = pd.DataFrame({"series": rows[SERIES].agg(" ".join, axis=1), "run": rows["run_id"], "p50": p50})
    table = table.dropna().explode("p50")
    return table.assign(log_p50=np.log(table.pop("p50").astype(float)))


def independence(rounds: pd.DataFrame) -> dict[str, float]:
    """Return how far rounds of one run differ, and whether runs differ by more than their rounds explain.

    Runs of forked workers have a server each, so what a server hands down to its workers shows as a difference of runs; in
    runs of fresh interpreters only drift does.
    """
    within, between, chances = [], [], []
    for _, of_series in rounds.groupby("series"):
        runs = [run.to_numpy() for _, run in of_series.groupby("run")["log_p50"] if len(run) > 1]
        if len(runs) < 2:
            continue
        spread = np.mean([run.var(ddof=1) for run in runs])
        means = np.var([run.mean() for run in runs], ddof=1)
        within.append(np.sqrt(spread))
        between.append(np.sqrt(max(means - spread / np.mean([len(run) for run in runs]), 0)))
        chances.append(stats.f_oneway(*runs).pvalue)
    return {
        "series": len(within),
        "runs": rounds["run"].nunique(),
        "rounds of a run, SD in %, median": 100 * float(np.median(within)),
        "rounds of a run, SD in %, 90th percentile": 100 * float(np.quantile(within, 0.9)),
        "runs beyond their rounds, SD in %, median": 100 * float(np.median(between)),
        "runs beyond their rounds, SD in %, 90th percentile": 100 * float(np.quantile(between, 0.9)),
        f"series whose runs differ (F test at {CHANCE:.0%}), in %": 100 * float(np.mean(np.array(chances) < CHANCE)),
    }


def level(rounds: dict[str, pd.DataFrame]) -> str:
    """Return how much slower the same series are in forked workers than in fresh interpreters."""
    fresh, fork = (rounds[kind].groupby("series")["log_p50"].mean() for kind in KINDS)
    moved = 100 * (fork - fresh).dropna()
    low, high = stats.bootstrap((moved,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    return (
        f"Forked against fresh, all series: {moved.mean():+.2f} % ({low:+.2f} to {high:+.2f} over {len(moved)} series), "
        f"the furthest {moved.loc[moved.abs().idxmax()]:+.2f} % ({moved.abs().idxmax()})"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", default=str(ROOT / "tests/suites/exam.py"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=int, default=4, help="runs of each kind")
    parser.add_argument("--store", type=Path, help="folder for the runs; default: one that is thrown away")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
