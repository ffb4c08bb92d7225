"""Examine a machine and pairbench on it: do figures repeat, is nothing blamed wrongly, and is what was planted found.

python -m tests.lab.exam.bench FOLDER [--steps repeat pytest planted ab report] [--runs 5] [--device auto]

In FOLDER, a repository of its own, `tests/suites/exam.py` is measured several times, and once by pytest; then each of
`PLANTED` is put into it, and it is measured and judged again, and once more by `ab`. Steps can be made one by one, in this
order; the report needs no device.
"""

import argparse
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.builders import git

SUITE = Path(__file__).parents[2] / "suites/exam.py"
SERIES = ["operator", "case", "implementation"]
SHORT_NS = 10e3  # below this a clock's tick and a launch are a percent and more
PROVEN_FROM_NS = 50e3

PLANTED = {
    "twice_a": (
        "2 % more work in a kernel",
        '"twice_a", lambda x: doubled(x)',
        '"twice_a", lambda x: doubled(x, 0.02)',
    ),
    "twice_b": (
        "3 % more work in a kernel",
        '"twice_b", lambda x: doubled(x)',
        '"twice_b", lambda x: doubled(x, 0.03)',
    ),
    "gelu": ("one operator more", 'F.gelu(x, approximate="tanh")', 'F.gelu(x, approximate="tanh").view_as(x)'),
    "softmax": ("one launch more", "torch.softmax(x, -1)", "torch.softmax(x, -1).mul_(1)"),
    "product": ("20 us more of Python", "torch.addmm(bias, x, weight)", "late(torch.addmm(bias, x, weight))"),
}
"""What is planted in the optimised variant of an operator, the text that it takes the place of, and the new text; other operators stay as they are."""
LATE = '''

def late(outputs):
    """Keep the host for some 20 us."""
    import time

    end = time.perf_counter_ns() + 20_000
    while time.perf_counter_ns() < end:
        pass
    return outputs
'''


def main() -> int:
    options = _options()
    folder: Path = options.folder
    device = ("--device", options.device)
    for step in options.steps:
        match step:
            case "repeat":
                _repository(folder)
                _keep(folder, "calibrate", "exam.py", "--runs", str(options.runs), *device)
            case "pytest":
                shutil.copy(SUITE, folder)
                command = ["pytest", "-p", "pairbench.integrations.pytest_plugin", "exam.py", "--benchmark-only"]
                command += ["--pairbench-rounds=3", "--pairbench-save", "--pairbench-tier=all"]
                command += [f"--pairbench-device={options.device}"]
                subprocess.run([sys.executable, "-m", *command], cwd=folder, check=True)
            case "planted":
                _plant(folder)
                _keep(folder, "run", "exam.py", *device)
                _keep(folder, "compare")
            case "ab":
                _plant(folder)
                _keep(folder, "ab", "HEAD", "exam.py", "--store", "sides", *device)
            case "report":
                _report(folder)
    return 0


def planted(source: str) -> str:
    """Return the suite with every change of `PLANTED`."""
    for name, before, after in PLANTED.values():
        if source.count(before) != 1:
            raise ValueError(f"{name}: {before!r} is {source.count(before)} times in {SUITE.name}, expected once")
        source = source.replace(before, after)
    return source + LATE


def _repository(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SUITE, folder)
    (folder / ".gitignore").write_text("*.json\nresults/\nsides/\n")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "The exam")):
        git(folder, *command)


def _plant(folder: Path) -> None:
    (folder / "exam.py").write_text(planted(SUITE.read_text(encoding="utf-8")), encoding="utf-8")


def _pairbench(folder: Path, *arguments: str) -> str:
    """Return what a command found, as JSON."""
    command = [sys.executable, "-m", "pairbench", *arguments, "--format", "json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: it found regressions
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def _keep(folder: Path, *arguments: str) -> None:
    """Run a command, and keep what it found for the report."""
    (folder / f"{arguments[0]}.json").write_text(_pairbench(folder, *arguments), encoding="utf-8")


def _kept(folder: Path, command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{command}.json").read_text(encoding="utf-8"))
    return found


def _report(folder: Path) -> None:
    calibration = _kept(folder, "calibrate")["calibrations"][-1]
    rows = pd.read_parquet(folder / "results/records")
    sys.stdout.write("\n".join([*_repeated(folder, rows, calibration), *_played(rows, calibration["runs"]), ""]))
    for command in ("compare", "ab"):
        if (folder / f"{command}.json").exists():
            sys.stdout.write("\n".join(["", *_judged(command, _kept(folder, command)), ""]))


def _repeated(folder: Path, rows: pd.DataFrame, calibration: dict[str, Any]) -> Iterator[str]:
    rows = rows[rows["run_id"].isin(calibration["runs"])]
    on_gpu = (rows["device_kind"] == "cuda").all()
    names = ("device_p50_ns" if on_gpu else "call_p50_ns", "device_speedup" if on_gpu else "speedup", "host_p50_ns")
    p50, gain, host = (rows.pivot_table(index=SERIES, columns="run_id", values=name).dropna() for name in names)
    mean = p50.mean(axis=1)
    yield f"{len(p50)} series, {p50.shape[1]} runs, P50 from {mean.min() / 1e3:.1f} us to {mean.max() / 1e6:.2f} ms"
    yield f"{calibration['alarms']} alarms in {calibration['judged']} judgements of {calibration['comparisons']} comparisons"
    yield from _furthest("P50 max/min, from 10 us up", _ratio(p50[mean >= SHORT_NS]))
    yield from _furthest("P50 max/min, below 10 us", _ratio(p50[mean < SHORT_NS]))
    yield from _furthest(
        "speedup max/min", _ratio(gain).drop(index="baseline", level="implementation", errors="ignore")
    )
    yield from _furthest("host max/min", _ratio(host))
    floors = [floor["host_relative"] for floor in calibration["floors"] if floor["host_relative"] is not None]
    if floors:
        yield f"host floors relative to the baseline, in %: median {100 * np.median(floors):.1f}, from {100 * min(floors):.1f} to {100 * max(floors):.1f}"
    same = list(_same(folder, calibration["runs"], set(p50.index[mean >= PROVEN_FROM_NS])))
    yield f"proven the same from 50 us up: {np.mean(same):.1%} of {len(same)} pairs of single runs"


def _played(rows: pd.DataFrame, runs: list[str]) -> Iterator[str]:
    """What a run by pytest found, beside the runs before it; nothing where there is none."""
    p50 = rows.pivot_table(index=SERIES, columns="run_id", values="device_p50_ns").dropna(subset=runs)
    for run in p50.columns.difference(runs):
        if run > max(runs) and not rows[rows["run_id"] == run]["dirty"].any():
            long = p50[p50[runs].mean(axis=1) >= PROVEN_FROM_NS]
            yield from _furthest(
                f"pytest ({run}) against the mean of the runs, from 50 us up, {len(long)} series",
                100 * (long[run] / long[runs].mean(axis=1) - 1).abs(),
            )


def _ratio(of: pd.DataFrame) -> "pd.Series[float]":
    return 100 * (of.max(axis=1) / of.min(axis=1) - 1)


def _furthest(name: str, moved: "pd.Series[float]") -> Iterator[str]:
    if len(moved):
        yield f"{name}, in %: median {moved.median():.2f}, 90th percentile {moved.quantile(0.9):.2f}; the furthest:"
        for series, percent in moved.nlargest(5).items():
            yield f"    {percent:5.2f}  {' '.join(series)}"


def _same(folder: Path, runs: list[str], series: set[Any]) -> Iterator[bool]:
    for earlier, later in itertools.combinations(sorted(runs), 2):
        for change in json.loads(_pairbench(folder, "compare", earlier, later))["changes"]:
            of = change["series"]
            operator = of["case"].partition("[")[0]
            if (operator, of["case"], of["implementation"]) in series:
                yield change["verdict"] == "same"


def _judged(command: str, comparison: dict[str, Any]) -> Iterator[str]:
    """What was found where something is planted, and every alarm where nothing is."""
    yield f"{command}: {comparison['verdict']}"
    for change in comparison["changes"]:
        of = change["series"]
        what, *_ = PLANTED.get(of["case"].partition("[")[0], ("",)) if of["implementation"] != "baseline" else ("",)
        if what or change["outcome"] not in ("unchanged", "undecided"):
            yield f"    {what or 'NOTHING PLANTED'}: {of['case']}-{of['implementation']}: {change['outcome']}"
            yield f"        {change['reason']}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an empty folder outside of any repository")
    steps = ("repeat", "pytest", "planted", "ab", "report")
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps)
    parser.add_argument("--runs", type=int, default=5, help="runs of one and the same code")
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
