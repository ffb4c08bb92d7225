"""Kills runs and what they are made of at random moments, and interrupts them: `python -m tests.faults.kills`.

After each: no process is left, the store can be read, what it had before is still there, a run that goes on has every entry once, and the next
start finds nothing in the folder for temporary files that it does not sweep. What a suite has started counts as a process of the run, in its
group, in a session of its own, and as a daemon.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pairbench.store.reader import read_frame, runs

ROOT = Path(__file__).parents[2]
SUITE = """
import os, subprocess, sys, time
from pairbench import Operator, grid

_left = []

def leave():
    if _left:
        return
    _left.append(True)
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    os.wait()

def baseline(x):
    leave()
    time.sleep(0.001)
    return x + x

def same(x):
    time.sleep(0.001)
    return x * 2

op = Operator("op", baseline=baseline, variants={"same": same}, inputs=lambda make, rows: {"x": make.normal(rows)},
    cases=grid(rows=[4, 5, 6]))
"""
ENTRIES = 6
SETTINGS = "[tool.pairbench]\ncase_seconds = 0.1\nmin_samples = 20\nrounds = 2\n"
KILLS = ("parent", "worker", "server", "parent and worker", "parent and server", "all")
INTERRUPTS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
_ENDS_S, _GONE_S = 180.0, 20.0
"""Seconds in which a run has to come to its end, and its processes have to be gone once it is killed."""
_SHARED = ("pairbench-locks",)
"""What stays in the folder for temporary files on purpose."""


@dataclass
class Counts:
    """What was seen of all trials."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """A sentence for each time that something went wrong."""

    def lines(self) -> list[str]:
        """Return a table in Markdown."""
        rows = [f"| {what} | {count} |" for what, count in sorted(self.counts.items())]
        return ["| what | times |", "| --- | ---: |", *rows, f"| went wrong | {len(self.wrong)} |"]


class Run:
    """A run in a folder of its own, as a user starts one."""

    def __init__(self, folder: Path, workers: str) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir(parents=True)
        (folder / "ops.py").write_text(SUITE)
        (folder / "pyproject.toml").write_text(SETTINGS)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "harness"), os.environ.get("PYTHONPATH", "")]),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PAIRBENCH_WORKERS": workers,
            "OMP_NUM_THREADS": "1",
        }
        self.errors = folder / "errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                self.command("run", "ops.py", "--device", "cpu"),
                cwd=folder,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pairbench", *words]

    def processes(self) -> list[int]:
        """Return what the run has started and what that has started, all that runs."""
        mark, found = f"TMPDIR={self.temporary}".encode(), []
        for file in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError, ValueError):
                if mark in file.read_bytes().split(b"\0") and _state(int(file.parent.name)) not in ("Z", "X", ""):
                    found.append(int(file.parent.name))
        return [pid for pid in found if pid != self.process.pid]

    def targets(self, kind: str) -> list[int]:
        """Return the processes of one kind: parent, worker, server or all."""
        if kind == "all":
            return [self.process.pid, *self.processes()]
        if kind == "parent":
            return [self.process.pid]
        return [pid for pid in self.processes() if _kind(pid) == kind]

    def records(self) -> set[tuple[str, str, str, str]]:
        """Return run, case, implementation and status of all records in the store."""
        if not any((self.folder / "results").rglob("*.parquet")):
            return set()
        columns = ["run_id", "case", "implementation", "status"]
        reading = read_frame(self.folder / "results", columns=columns)
        if reading.problems:
            raise AssertionError(f"the store cannot be read: {reading.problems}")
        return {tuple(row) for row in reading.value[columns].itertuples(index=False)}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _kind(pid: int) -> str:
    """Return what a process of a run is by its name and its command line."""
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if name == "pairbench-forks":
            return "server"
        if name == "pairbench-work" or b"pairbench.execute.worker" in words:
            return "worker"
    return ""


def _until(what: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def kill(folder: Path, kind: str, after_s: float, workers: str, seen: Counts) -> None:
    """Start a run, kill a part of it after a time, and look at what is left."""
    run = Run(folder, workers)
    time.sleep(after_s)
    before = run.records()
    pids: list[int] = []

    def there() -> bool:
        pids[:] = [pid for one in kind.split(" and ") for pid in run.targets(one)[: None if kind == "all" else 1]]
        return len(pids) > kind.count(" and ") or run.process.poll() is not None

    if not _until(there, 30) or run.process.poll() is not None:
        run.process.wait(_ENDS_S)
        kill(folder / "again", kind, after_s / 2, workers, seen)  # it had ended before
        return
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    seen.counts[f"kill -9 of {kind}"] += 1
    _look(run, f"kill -9 of {kind} after {after_s:.2f} s, workers {workers or 'as usual'}", seen, before)


def interrupt(folder: Path, number: signal.Signals, after_s: float, workers: str, seen: Counts) -> None:
    """Start a run, send it a signal after a time, and look at what is left."""
    run = Run(folder, workers)
    time.sleep(after_s)
    before = run.records()
    with contextlib.suppress(ProcessLookupError):
        run.process.send_signal(number)
    seen.counts[number.name] += 1
    _look(run, f"{number.name} after {after_s:.2f} s, workers {workers or 'as usual'}", seen, before, signalled=number)


def _look(
    run: Run,
    what: str,
    seen: Counts,
    before: set[tuple[str, str, str, str]],
    signalled: signal.Signals | None = None,
) -> None:
    def wrong(text: str) -> None:
        seen.wrong.append(f"{what}: {text}")

    try:
        code = run.process.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        wrong(f"it had not ended after {_ENDS_S:.0f} s")
        code = None
        run.process.kill()
        run.process.wait()
    seen.counts[f"exit code {code}"] += 1
    errors = run.errors.read_text(errors="replace")
    if "Traceback" in errors and ("/pairbench/" in errors or "this is a bug" in errors):
        wrong(f"a traceback: {errors.strip().splitlines()[-1]}")
    ordinary = {-signal.SIGKILL, 0, 1} if signalled is None else {0, 1, 130, -signalled}
    if code not in ordinary:
        wrong(f"exit code {code}: {errors.strip()[-300:]}")
    # Where all servers were killed with the parent, the next start finds what their workers had started.
    if not _until(lambda: not run.processes(), _GONE_S if "and server" not in what and "of all" not in what else 2.0):
        seen.counts["processes left for the next start"] += len(run.processes())
    try:
        after = run.records()
        problems = runs(run.folder / "results").problems if after else ()
    except AssertionError as error:
        wrong(str(error))
        after, problems = before, ()
    if problems:
        wrong(f"the store has problems: {problems}")
    if lost := {one[:3] for one in before if one[3] == "measured"} - {one[:3] for one in after}:
        wrong(f"{len(lost)} records are lost: {sorted(lost)[:2]}")
    seen.counts["records that were there before"] += len(before)
    if code in (0, 1, 130) and after and len(after) != ENTRIES:
        wrong(f"{len(after)} records of {ENTRIES}")
    if code in (0, 1) and not after:
        wrong("no records")
    _next_start(run, wrong, seen)


def _next_start(run: Run, wrong: Callable[[str], None], seen: Counts) -> None:
    done = subprocess.run(
        run.command("list", "ops.py"), cwd=run.folder, env=run.environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        wrong(f"the next start fails: {done.stderr.strip()[-300:]}")
    if not _until(lambda: not run.processes(), _GONE_S):
        left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in run.processes()}
        wrong(f"processes are left: {left}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    left_files = [file.name for file in run.temporary.iterdir() if file.name not in _SHARED]
    seen.counts["files left in the temporary folder"] += len(left_files)


def trials(kills: int, interrupts: int, seed: int, *, jobs: int = 2, kinds: Iterable[str] = KILLS) -> Counts:
    """Kill and interrupt runs.

    Args:
        kills: How many.
        interrupts: How many.
        seed: Of the moments.
        jobs: How many at a time.
        kinds: What is killed, in turns.
    """
    draw, seen = random.Random(seed), Counts()
    several = tuple(kinds)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, ThreadPoolExecutor(jobs) as threads:
        began = time.monotonic()
        Run(Path(folder) / "whole", "").process.wait(_ENDS_S)
        length_s = time.monotonic() - began
        waiting = []
        for number in range(kills + interrupts):
            place, workers = Path(folder) / str(number), draw.choice(("", "", "fork", "fresh"))
            after_s = draw.uniform(0, length_s * 1.1)
            if number < kills:
                kind = several[number % len(several)]
                if workers == "fresh" and ("server" in kind or kind == "all"):
                    workers = ""  # it has none
                waiting.append(threads.submit(kill, place, kind, after_s, workers, seen))
            else:
                signalled = INTERRUPTS[number % len(INTERRUPTS)]
                early = draw.random() < 0.3  # the first second has the most different moments in it
                waiting.append(
                    threads.submit(interrupt, place, signalled, draw.uniform(0, 1) if early else after_s, workers, seen)
                )
        for one in waiting:
            one.result()
    return seen


def main() -> None:
    """Do as many as are asked for, and print a table."""
    parser = argparse.ArgumentParser(description="Kill and interrupt runs at random moments.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--interrupts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    began = time.monotonic()
    seen = trials(options.kills, options.interrupts, options.seed, jobs=options.jobs)
    sys.stdout.write("\n".join([*seen.lines(), "", f"{time.monotonic() - began:.0f} s", *seen.wrong]) + "\n")
    sys.exit(bool(seen.wrong))


if __name__ == "__main__":
    main()
