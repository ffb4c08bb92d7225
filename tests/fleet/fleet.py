"""Fleets for tests: a scheduler and workers in processes of their own, started again when they die, as a service manager does."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pairbench.model.unit import Offer
from tests.builders import git
from tests.commands import ROOT, environment_of
from tests.faults.ports import free_port


def make_project(folder: Path, **files: str) -> str:
    """Make a checkout with a commit, and return the commit."""
    folder.mkdir(parents=True)
    settings = "[tool.pairbench]\ncase_seconds = 0.05\nmin_samples = 20\nrounds = 1\n"
    for name, text in {"pyproject_toml": settings, **files}.items():
        base, _, ending = name.rpartition("_")
        (folder / f"{base}.{ending}").write_text(text)
    return commit_all(folder)


def commit_all(folder: Path) -> str:
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "made")):
        git(folder, *arguments)
    return git(folder, "rev-parse", "HEAD")


def environment(folder: Path, **more: str) -> dict[str, str]:
    made = environment_of(folder, PAIRBENCH_WORKERS="fork", OMP_NUM_THREADS="1", **more)
    return {**made, "PYTHONPATH": f"{made['PYTHONPATH']}:{ROOT}"}


def pairbench(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pairbench", *arguments]


def plan_of(file: Path, commit: str | None, count: int, device: str = "cpu") -> Path:
    units = [{"commit": commit, "operators": [f"ops.py::op{number}"], "device": device} for number in range(count)]
    file.write_text(json.dumps({"units": [{k: v for k, v in unit.items() if v is not None} for unit in units]}))
    return file


def offer(
    identity: str = "GPU-1", *, kind: str = "cuda", model: str = "nvidia-h200", selector: str = "cuda:0"
) -> Offer:
    return Offer(identity=identity, kind=kind, model=model, selector=selector, environment_hash="e" * 16)


def standin(folder: Path) -> Path:
    """Write an interpreter that stands in for `python -m pairbench`."""
    file = folder / "standin"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.fleet.standin "$@"\n')
    file.chmod(0o755)
    return file


class Fleet:
    """A scheduler and some workers, each started again a moment after it has died."""

    def __init__(
        self, folder: Path, project: Path, *, workers: int, worker_options: tuple[str, ...] = (), **more: str
    ) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._environment = environment(folder, **more)
        self._folder, self._project = folder, project
        self._commands = {"scheduler": pairbench("fleet", "scheduler", self.address)}
        worker = pairbench("fleet", "worker", self.address, "--ignore-load", "--devices", "cpu", *worker_options)
        self._commands |= {f"worker{number}": worker for number in range(workers)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ending = threading.Event()
        self.kills = {"scheduler": 0, "worker": 0}

    def __enter__(self) -> Self:
        for name in self._commands:
            self._start(name)
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._keeper.join()
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def _start(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            how: dict[str, Any] = {"cwd": self._project, "env": self._environment, "start_new_session": True}
            self.processes[name] = subprocess.Popen(self._commands[name], stdout=log, stderr=log, **how)

    def _keep(self) -> None:
        while not self._ending.wait(0.1):
            for name, process in list(self.processes.items()):
                if process.poll() is not None:
                    self._start(name)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.kills[name.rstrip("0123456789")] += 1

    def kill_at_random(self, workers: int, schedulers: int, seconds: float, rng: random.Random) -> Iterator[None]:
        """Kill so many at random moments; yields before each kill."""
        names = ["worker"] * workers + ["scheduler"] * schedulers
        rng.shuffle(names)
        for name in names:
            time.sleep(rng.expovariate(1) * seconds / len(names))
            yield
            several = [one for one in self.processes if one.startswith(name)]
            self.kill(rng.choice(several))

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        run = self.start_run(*arguments)
        out, said = run.communicate(timeout=600)
        return subprocess.CompletedProcess(run.args, run.returncode, out, said)

    def start_run(self, *arguments: str) -> "subprocess.Popen[str]":
        command = pairbench("fleet", "run", *arguments, "--scheduler", self.address)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self._project, env=self._environment, stdout=pipe, stderr=pipe, text=True)
