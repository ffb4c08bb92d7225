"""Kills runs and what they are made of at random moments, and interrupts them: `nox -s faults -- kills`.

Runs follow one another in a project, as with a user who starts again after each accident: each finds the locks, the store, the folder for
temporary files and the processes as the one before left them. After each run: no process is left, the store can be read, what it
had before is still there, every row once, and a run that came to its end has every entry. Where everything was killed, the next start sees to
what is left; after the last one nothing is. What a suite has started counts as a process of the run, in its group, in a session of its own,
and as a daemon.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pairbench.store.reader import read_frame
from tests.commands import environment_of
from tests.faults.seen import Seen

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
    cases=grid(rows=[4, 5]))
"""
ENTRIES = 4
ROUNDS = 2
SETTINGS = f"[tool.pairbench]\ncase_seconds = 0.1\nmin_samples = 20\nrounds = {ROUNDS}\n"
KILLS = ("parent", "worker", "server", "parent and worker", "parent and server", "all")
INTERRUPTS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
_ENDS_S, _GONE_S = 180.0, 20.0
"""Seconds in which a run has to come to its end, and its processes have to be gone once it is killed."""
_MARK = "TESTS_FAULTS_RUN"  # the variable by which the processes of a run are known

Key = tuple[str, str, str]  # run, case and implementation


class Project:
    """A folder with a suite and a store, and a user of its own, so that no other run of this machine is waited for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary, self.store = folder, folder / "tmp", folder / "results"
        self.temporary.mkdir(parents=True)
        (folder / "ops.py").write_text(SUITE)
        (folder / "pyproject.toml").write_text(SETTINGS)
        own = {f"XDG_{name.upper()}": str(folder / name) for name in ("state_home", "runtime_dir")}
        self.environment = environment_of(folder, **own, TMPDIR=str(self.temporary), OMP_NUM_THREADS="1")
        self.left_over: list[Run] = []  # those whose processes the next start sees to
        self.began = 0

    def records(self) -> Counter[Key]:
        # The records first: what was there then has its samples now, also while a run goes on.
        columns = ["run_id", "case", "implementation", "status", "n_rounds"]
        records = list(self._read("records", columns))
        rows = list(self._read("samples", ["run_id", "case", "implementation", "round"]))
        if twice := [row for row, count in Counter(rows).items() if count > 1]:
            raise AssertionError(f"{len(twice)} rows of samples are there twice: {twice[:2]}")
        samples = Counter(row[:3] for row in rows)
        found: Counter[Key] = Counter()
        for run, case, implementation, status, rounds in records:
            key = (run, case, implementation)
            found[key] += 1
            if status == "measured" and samples[key] < rounds:
                raise AssertionError(f"samples of {case} of run {run} are lost: {samples[key]} of {rounds}")
        return found

    def left(self) -> list[Path]:
        """Return the files and folders that nobody needs; this user's own folder may stay, as long as nothing is in it."""
        lasting = {self.temporary / f"pairbench-{os.getuid()}", self.temporary / f"pairbench-{os.getuid()}" / "live"}
        hidden = [path for path in self.store.rglob("*") if path.name.startswith(".")]
        return [path for path in self.temporary.rglob("*") if path not in lasting] + hidden

    def _read(self, dataset: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
        if not any((self.store / dataset).rglob("*.parquet")):
            return
        reading = read_frame(self.store, dataset, columns=columns)
        if reading.problems:
            raise AssertionError(f"the store cannot be read: {reading.problems}")
        yield from reading.value[columns].itertuples(index=False, name=None)


class Run:
    def __init__(self, project: Project, workers: str) -> None:
        project.began += 1
        self.project, self.mark = project, f"{_MARK}={project.folder}:{project.began}"
        self.known = {key[0] for key in project.records()}
        self.errors = project.folder / f"errors-{project.began}"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pairbench", "run", "ops.py", "--device", "cpu"],
                cwd=project.folder,
                env={**project.environment, "PAIRBENCH_WORKERS": workers, _MARK: self.mark.partition("=")[2]},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Return what the run has started and what that has started, all that runs."""
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError, ValueError):
                if self.mark.encode() in file.read_bytes().split(b"\0"):
                    found.append(int(file.parent.name))
        return [pid for pid in found if pid != self.process.pid and _state(pid) not in ("Z", "X", "")]

    def targets(self, kind: str) -> list[int]:
        if kind == "all":
            return [self.process.pid, *self.processes()]
        if kind == "parent":
            return [self.process.pid]
        return [pid for pid in self.processes() if _kind(pid) == kind]

    def own(self, records: Iterable[Key]) -> list[Key]:
        return [key for key in records if key[0] not in self.known]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _kind(pid: int) -> str:
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if name == "pairbench-forks":
            return "server"
        if name == "pairbench-work" or any(b"pairbench.execute.worker" in word for word in words):
            return "worker"
    return ""


def _until(what: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def kill(kind: str, after_s: float, workers: str, project: Project, seen: Seen) -> None:
    """Start a run, kill a part of it after a time, and look at what is left."""
    run = Run(project, workers)
    time.sleep(after_s)
    before = project.records()
    pids: list[int] = []

    def there() -> bool:
        pids[:] = [pid for one in kind.split(" and ") for pid in run.targets(one)[: None if kind == "all" else 1]]
        return len(pids) > kind.count(" and ") or run.process.poll() is not None

    if not _until(there, 30) or run.process.poll() is not None:
        run.process.wait(_ENDS_S)
        kill(kind, after_s / 2, workers, project, seen)  # it had ended before
        return
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    seen.counts[f"kill -9 of {kind}"] += 1
    _look(run, f"kill -9 of {kind} after {after_s:.2f} s, workers {workers or 'as usual'}", seen, before)


def interrupt(number: signal.Signals, after_s: float, workers: str, project: Project, seen: Seen) -> None:
    run = Run(project, workers)
    time.sleep(after_s)
    before = project.records()
    with contextlib.suppress(ProcessLookupError):
        run.process.send_signal(number)
    seen.counts[number.name] += 1
    _look(run, f"{number.name} after {after_s:.2f} s, workers {workers or 'as usual'}", seen, before, signalled=number)


def finish(project: Project, seen: Seen) -> None:
    """Start once more, leave that run alone, and see that nothing is left of all before."""
    seen.counts["files left for the next start"] += len(project.left())
    run = Run(project, "")
    before = project.records()
    _look(run, "the last run", seen, before, last=True)
    for earlier in project.left_over:
        _see_gone(earlier, earlier.errors.name, seen)
    if files := project.left():
        seen.wrong.append(f"{len(files)} files are left: {', '.join(map(str, files[:5]))}")


def _look(
    run: Run,
    what: str,
    seen: Seen,
    before: Counter[Key],
    *,
    signalled: signal.Signals | None = None,
    last: bool = False,
) -> None:
    def wrong(text: str) -> None:
        seen.wrong.append(f"{what}: {text}")

    try:
        code = run.process.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        wrong(f"it hangs: it had not ended after {_ENDS_S:.0f} s")
        code = None
        run.process.kill()
        run.process.wait()
    seen.counts[f"exit code {code}"] += 1
    errors = run.errors.read_text(errors="replace")
    if "Traceback" in errors and ("/pairbench/" in errors or "this is a bug" in errors):
        wrong(f"a traceback: {errors[errors.index('Traceback') :].strip()[-1000:]}")
    ordinary = {0, 1} if last else {-signal.SIGKILL, 0, 1} if signalled is None else {0, 1, 130, -signalled}
    if code not in ordinary:
        wrong(f"exit code {code}: {errors.strip()[-300:]}")
    # Where all servers were killed with the parent, the next start finds what their workers had started.
    later = "and server" in what or "of all" in what
    if later and not _until(lambda: not run.processes(), 1.0):
        seen.counts["processes left for the next start"] += len(run.processes())
        run.project.left_over.append(run)
    elif not later:
        _see_gone(run, what, seen)
    try:
        after = run.project.records()
    except AssertionError as error:
        wrong(str(error))
        return
    if lost := before.keys() - after.keys():
        wrong(f"{len(lost)} records are lost: {sorted(lost)[:2]}")
    if twice := [key for key, count in after.items() if count > 1]:
        wrong(f"{len(twice)} records are there twice: {twice[:2]}")
    seen.counts["records that were there before"] += len(run.own(before))
    own = run.own(after)
    if code in (0, 1, 130) and own and len(own) != ENTRIES:
        wrong(f"{len(own)} records of {ENTRIES}, the others are lost")
    if code in (0, 1) and not own:
        wrong("no records, all are lost")


def _see_gone(run: Run, what: str, seen: Seen) -> None:
    """Say which processes of a run are left after a time, and kill them."""
    if _until(lambda: not run.processes(), _GONE_S):
        return
    told = {}
    for pid in run.processes():
        with contextlib.suppress(OSError):
            told[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            os.kill(pid, signal.SIGKILL)
    seen.wrong.append(f"{what}: processes are left: {told}")


def trials(
    kills: int,
    interrupts: int,
    seed: int,
    *,
    jobs: int = 2,
    kinds: Iterable[str] = KILLS,
    length_s: float | None = None,
) -> Seen:
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, ThreadPoolExecutor(jobs) as threads:
        if length_s is None:
            began = time.monotonic()
            whole = Run(Project(Path(folder) / "whole"), "")
            if whole.process.wait(_ENDS_S) not in (0, 1):
                seen.wrong.append(f"a run that is left alone fails: {whole.errors.read_text()[-300:]}")
                return seen
            length_s = time.monotonic() - began
        plans = list(_plans(kills, interrupts, random.Random(seed), tuple(kinds), length_s))

        def work(job: int) -> None:
            project = Project(Path(folder) / str(job))
            for plan in plans[job::jobs]:
                try:
                    plan(project, seen)
                except Exception as error:  # noqa: BLE001 (whatever it is, the others go on)
                    seen.wrong.append(f"{plan}: {type(error).__name__}: {error}")
            finish(project, seen)

        for one in [threads.submit(work, job) for job in range(min(jobs, len(plans)))]:
            one.result()
    return seen


def _plans(
    kills: int, interrupts: int, draw: random.Random, kinds: tuple[str, ...], length_s: float
) -> Iterator[Callable[[Project, Seen], None]]:
    for number in range(kills + interrupts):
        workers, after_s = draw.choice(("", "", "fork", "fresh")), draw.uniform(0, length_s * 1.1)
        if number < kills:
            kind = kinds[number % len(kinds)]
            if workers == "fresh" and ("server" in kind or kind == "all"):
                workers = ""  # it has none
            yield partial(kill, kind, after_s, workers)
        else:
            early = draw.random() < 0.3  # the first second has the most different moments in it
            moment = draw.uniform(0, 1) if early else after_s
            yield partial(interrupt, INTERRUPTS[number % len(INTERRUPTS)], moment, workers)
