"""Whole runs on stores that fail in the middle of them: an object store in six ways, one that comes back, and disks of five sizes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pairbench.store.reader import read_run, read_samples
from tests.commands import environment_of
from tests.faults.s3 import ENVIRONMENT, Way, object_store, url_of
from tests.faults.seen import Seen

ROOT = Path(__file__).parents[2]
ROUNDS = 2
IMPLEMENTATIONS = 3
PARTS_OF_DISK = (0.0, 0.1, 0.6, 1.2, 1.9)
"""Sizes of a disk, as parts of what the closed run takes: from one that is full before the run to one where another round does not fit."""
FILES = (0, 2, 5, 6)
"""After how many files an object store turns bad: at once, in the middle, as the samples are closed, and the records."""
FROM_THE_START = -1
LONGEST_S = 180.0  # how long a run may take whose store hangs; without that it takes some ten seconds
_COMMAND = (sys.executable, "-m", "pairbench")
_PAGE = 4096  # bytes that such a disk gives at a time


class _Project:
    """A folder with a suite, and a user of its own, so that nothing waits in the spool of whoever runs this."""

    def __init__(self, folder: Path, case_s: float | None = None) -> None:
        """Make it; a case takes as little time as it can, or so many seconds in each round."""
        self.folder = folder
        shutil.copy(ROOT / "tests" / "suites" / "slow.py", folder / "ops.py")
        samples = 10 if case_s is None else 10**6
        (folder / "pyproject.toml").write_text(
            f"[tool.pairbench]\nrounds = {ROUNDS}\ncase_seconds = {case_s or 0.02}\nmin_samples = {samples}\n"
            f"max_samples = {10 * samples}\n"
        )
        (folder / "tmp").mkdir()
        early = {"PAIRBENCH_WORKERS": "fork", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")}
        self._here: Any = {"cwd": folder, "env": environment_of(folder, **ENVIRONMENT, **early)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Begin a command in a session of its own, which can be killed as a whole."""
        with (self.folder / "err").open("wb") as err:
            return subprocess.Popen(
                [*_COMMAND, *words], **self._here, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True
            )

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        more: Any = {"capture_output": True, "text": True, "timeout": 2 * LONGEST_S}
        return subprocess.run([*_COMMAND, *words], **self._here, check=False, **more)

    def waiting(self) -> list[Path]:
        return [path for path in self.folder.rglob("spool/*") if (path / "spool.json").exists()]

    def left(self, store: str) -> list[Path]:
        """Return what nobody needs any more: in the spool, in the folder for temporary files, and half-written in the store."""
        found = [path for path in self.folder.rglob("spool/**/*") if path.is_file()]
        found += [path for path in (self.folder / "tmp").rglob("*") if path.is_file()]
        return found + [path for path in Path(store).rglob(".*") if path.is_file()]


def fail_elsewhere(
    modes: tuple[str, ...] = ("errors", "slow", "refuses", "hangs"), puts: tuple[int, ...] = FILES
) -> Seen:
    """Run on an object store that turns bad after so many objects, and is well again later."""
    found = Seen()
    with _way() as (folder, way):
        for mode in modes:
            for after in puts:
                here = folder / f"{mode}-{after}"
                here.mkdir()
                way.mode, way.puts, way.turn_after = "fine", 0, (after, mode)
                if after == FROM_THE_START:
                    way.mode, way.turn_after = mode, None
                store, what = url_of(way.port, f"{mode}-{after}"), f"{mode} after {after} files"
                _run(found, _Project(here), store, what, lambda: setattr(way, "mode", "fine"))
    return found


@contextlib.contextmanager
def _way() -> Iterator[tuple[Path, Way]]:
    """Give a folder, and a way to an object store of its own."""
    with tempfile.TemporaryDirectory() as folder, object_store(Path(folder) / "log") as port:
        way = Way(port)
        try:
            yield Path(folder), way
        finally:
            way.close()


def come_back(down_s: float, after: int = 1) -> Seen:
    """Run while the object store is unreachable for some seconds and is back before the run ends: it then holds every record."""
    found = Seen()
    with _way() as (folder, way):
        back: list[float] = []

        def mend() -> None:
            while way.mode == "fine":
                time.sleep(0.05)
            time.sleep(down_s)
            way.mode = "fine"
            back.append(time.monotonic())

        (folder / "project").mkdir()
        project = _Project(folder / "project", case_s=1.25 * down_s)
        way.turn_after = (after, "refuses")
        threading.Thread(target=mend, daemon=True).start()
        _run(found, project, url_of(way.port, "back"), f"away for {down_s:g} s", lambda: None)
        if found.counts["in the store at the end"] != 1:
            found.wrong.append(f"away for {down_s:g} s: the store is there again, and has not everything at the end")
        if not back:
            found.wrong.append("the store was not away before the end of the run")
    return found


def killed_while_away(after: int = 2) -> Seen:
    """Kill a run, with all that it has started, whose object store has failed; what it had measured until then is to come up by a push."""
    found = Seen()
    with _way() as (folder, way):
        (folder / "project").mkdir()
        project = _Project(folder / "project", case_s=5.0)
        store = url_of(way.port, "killed")
        way.turn_after = (after, "refuses")
        process = project.start("run", "ops.py", "--device", "cpu", "--store", store)
        until = time.monotonic() + LONGEST_S
        while not _spooled(project) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        found.counts["runs"] += 1
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not _spooled(project):
            found.wrong.append(f"nothing waits: {(project.folder / 'err').read_text()[-500:]}")
        way.mode, way.turn_after = "fine", None
        _push(found, project, store, "killed")
        with mock.patch.dict(os.environ, ENVIRONMENT):
            records = read_run(store)
            samples = read_samples(store, records.value[0].run_id)
        names = [row.implementation for row in records.value]
        keys = [(row.implementation, row.round) for row in samples.value]
        found.counts["rows"] += len(names) + len(keys)
        if sorted(map(str, names)) != ["baseline", "same", "twice"] or len(set(keys)) != len(keys) or not keys:
            found.wrong.append(f"the store has {names} and {keys}")
        if problems := (*records.problems, *samples.problems):
            found.wrong.append(problems[0])
        if project.waiting():
            found.wrong.append("something still waits")
    return found


def _push(found: Seen, project: _Project, store: str, what: str) -> None:
    for _ in range(2):  # the second time nothing is left to do
        pushed = project.call("store", "push", "--store", store)
        if pushed.returncode or "Traceback" in pushed.stderr:
            found.wrong.append(f"{what}: push ended with {pushed.returncode}: {pushed.stderr[-500:]}")


def _spooled(project: _Project) -> list[Path]:
    return [path for path in project.folder.rglob("spool/**/records/**/*.parquet") if not path.name.startswith(".")]


def fail_for_space(parts: tuple[float, ...] = PARTS_OF_DISK) -> Seen:
    found = Seen()
    with tempfile.TemporaryDirectory() as folder:
        size = _size_of_a_run(Path(folder))
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "project").mkdir()
            path, project = Path(folder) / "disk", _Project(Path(folder) / "project")
            with _disk(path, int(part * size)):
                enlarge = lambda: subprocess.run(["mount", "-o", "remount,size=64m", str(path)], check=True)  # noqa: E731, B023
                _run(found, project, str(path), f"a disk for {part:.0%} of a run", enlarge)
    return found


def _size_of_a_run(folder: Path) -> int:
    done = _Project(folder).call("run", "ops.py", "--device", "cpu", "--store", str(folder / "store"))
    assert done.returncode == 0, done.stderr
    return sum(-file.stat().st_size // _PAGE * -_PAGE for file in (folder / "store").rglob("*.parquet"))


def _run(found: Seen, project: _Project, store: str, what: str, mend: Any) -> None:
    found.counts["runs"] += 1
    began = time.monotonic()
    try:
        done = project.call("run", "ops.py", "--device", "cpu", "--format", "json", "--store", store)
    except subprocess.TimeoutExpired:
        found.wrong.append(f"{what}: hangs for more than {time.monotonic() - began:.0f} s")
        return
    finally:
        mend()
    took = time.monotonic() - began
    if took > LONGEST_S:
        found.wrong.append(f"{what}: hangs for {took:.0f} s")
    if "Traceback" in done.stderr:
        found.wrong.append(f"{what}: a traceback, exit code {done.returncode}: {done.stderr[-500:]}")
    document = json.loads(done.stdout)
    if "error" in document:  # nothing was measured, for the store takes nothing at all
        found.counts["refused before measuring"] += 1
        if done.returncode not in (2, 4) or "cannot be" not in document["error"]:
            found.wrong.append(f"{what}: nothing was shown, exit code {done.returncode}: {done.stderr[-500:]}")
        return
    if len(document["records"]) != IMPLEMENTATIONS:
        found.wrong.append(f"{what}: {len(document['records'])} rows are shown")
    kept = document["summary"]["not_in_store"]
    if (done.returncode == 4) != (kept is not None) or done.returncode not in (0, 4):
        found.wrong.append(f"{what}: exit code {done.returncode}, and {kept} is said")
    found.counts["kept aside" if kept else "in the store at the end"] += 1
    if kept and not project.waiting():
        found.wrong.append(f"{what}: nothing waits")
    _push(found, project, store, what)
    if left := project.left(store):
        found.wrong.append(f"{what}: {len(left)} files are left, {left[0]} the first")
    found.counts["files left"] += len(left)
    _check(found, store, document["run_id"], what)


def _check(found: Seen, store: str, run_id: str, what: str) -> None:
    records, samples = read_run(store, run_id), read_samples(store, run_id)
    found.counts["rows"] += len(records.value) + len(samples.value)
    if len(records.value) != IMPLEMENTATIONS or {row.n_rounds for row in records.value} != {ROUNDS}:
        found.wrong.append(f"{what}: the store has {[(row.implementation, row.n_rounds) for row in records.value]}")
    keys = {(row.implementation, row.round) for row in samples.value}
    if len(samples.value) != IMPLEMENTATIONS * ROUNDS or len(keys) != len(samples.value):
        found.wrong.append(f"{what}: the store has {len(samples.value)} rows of samples, {len(keys)} of them different")
    if problems := (*records.problems, *samples.problems):
        found.wrong.append(f"{what}: {problems[0]}")


@contextlib.contextmanager
def _disk(path: Path, size: int) -> Iterator[None]:
    """Give a disk of some bytes: a file system in memory, which takes rights of an administrator. One without any is full."""
    path.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={max(size, _PAGE)}", "tmpfs", str(path)], check=True, capture_output=True
    )
    try:
        if size < _PAGE:
            (path / "full").write_bytes(b"0" * _PAGE)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def may_mount() -> bool:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            stack.enter_context(_disk(folder / "disk", _PAGE))
        except (OSError, subprocess.CalledProcessError):
            return False
        return True
