"""What a run is doing right now, for whoever looks on at this machine: a small file that ends with its process."""

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairbench.model.environment import Device
from pairbench.own_folders import make_own, temporary_folder
from pairbench.workflow.progress import PlainProgress

_LARGEST = 2**20
"""Bytes of a file that are read; one of eight devices has some thousand."""


@dataclass(kw_only=True)
class DeviceNow:
    """What a device of a run does, and how far it has come."""

    device: str
    """Selector of the device, such as `cuda:0`, with its model's name."""
    stage: str = ""
    case: str = ""
    done: int = 0
    total: int = 0
    """Number of steps; a step is a case in one of the stages."""


@dataclass(frozen=True, kw_only=True)
class LiveRun:
    """A run that goes on."""

    run_id: str
    store: str
    """Address of the store that it writes to."""
    began: float
    """When it began, in seconds since the epoch."""
    devices: tuple[DeviceNow, ...]

    @property
    def left_s(self) -> float | None:
        """Seconds that it still takes, if the other steps take as long as those that are done; None before the first."""
        done, total = sum(one.done for one in self.devices), sum(one.total for one in self.devices)
        return (time.time() - self.began) / done * (total - done) if done else None


class TellingProgress(PlainProgress):
    """Progress that is shown as before, and told to a file besides.

    The file is locked for as long as this process lives, so that nobody takes one that was left behind for a run.
    """

    def __init__(self, inner: PlainProgress, run_id: str, store: str) -> None:
        super().__init__()
        self._inner, self._run_id, self._store, self._since = inner, run_id, store, time.time()
        self._now: dict[str, DeviceNow] = {}
        self._writing = threading.Lock()
        self._file: int | None = None
        # Nobody may need it, so a machine without room for it does no harm.
        with contextlib.suppress(OSError):
            folder = _folder()
            for file in folder.glob("*.json"):
                _read(file)  # which removes it if its process was killed
            self._path = folder / f"{run_id}-{os.getpid()}.json"
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._tell()

    def expect(self, device: Device, steps: int) -> None:
        """Announce how many steps a device has."""
        self._of(device).total += steps
        self._tell()
        self._inner.expect(device, steps)

    def step(self, device: Device, stage: str, case: str) -> None:
        """Say what begins."""
        now = self._of(device)
        now.stage, now.case = stage, case
        self._tell()
        self._inner.step(device, stage, case)

    def stepped(self, device: Device) -> None:
        """Count a step."""
        self._of(device).done += 1
        self._tell()
        self._inner.stepped(device)

    def notify(self, text: str) -> None:
        """Print a message."""
        self._inner.notify(text)

    def end(self) -> None:
        """Say that the run is over."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = None

    def _of(self, device: Device) -> DeviceNow:
        return self._now.setdefault(device.selector, DeviceNow(device=f"{device.selector} ({device.name})"))

    def _tell(self) -> None:
        if self._file is None:
            return
        with self._writing, contextlib.suppress(OSError):
            run = LiveRun(run_id=self._run_id, store=self._store, began=self._since, devices=tuple(self._now.values()))
            content = json.dumps(asdict(run)).encode()
            os.pwrite(self._file, content, 0)
            os.ftruncate(self._file, len(content))


@contextlib.contextmanager
def telling(inner: PlainProgress, run_id: str, store: str) -> Iterator[TellingProgress]:
    """Give progress that is told to a file for as long as the run goes on."""
    progress = TellingProgress(inner, run_id, store)
    try:
        yield progress
    finally:
        progress.end()


def live_runs(store: str) -> tuple[LiveRun, ...]:
    """Return the runs of this user on this machine that are writing to a store now, the oldest first; no other's are seen."""
    try:
        files = sorted(_folder().glob("*.json"))
    except OSError:
        return ()
    runs = (run for file in files if (run := _read(file)) is not None)
    return tuple(run for run in runs if run.store == store)


def _read(path: Path) -> LiveRun | None:
    """Return the run that tells of itself in a file; None for one that is over, or is just being written."""
    try:
        with path.open("rb") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)  # nobody holds it: its process was killed
                return None
            content: dict[str, Any] = json.loads(file.read(_LARGEST))
        devices = tuple(DeviceNow(**one) for one in content.pop("devices"))
        return LiveRun(**content, devices=devices)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _folder() -> Path:
    return make_own(temporary_folder(), "live")
