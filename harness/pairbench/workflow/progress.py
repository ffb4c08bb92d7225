"""Progress of a run: on stderr, and in a small file for others on this machine, which ends with the run's process."""

import contextlib
import fcntl
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairbench.model.environment import Device
from pairbench.model.plain import Value, safe
from pairbench.own_folders import make_own, temporary_folder

_BAR = 24


@dataclass(kw_only=True)
class DeviceNow:
    device: str  # such as `cuda:0 (NVIDIA H100)`
    stage: str = ""
    case: str = ""
    done: int = 0  # steps, each one stage of one case
    total: int = 0


class PlainProgress:
    every_s = 10.0  # seconds between two lines of a log

    def __init__(self, notify: Callable[[str], None] | None = None) -> None:
        self.devices: dict[str, DeviceNow] = {}  # by their selectors
        self._notify, self._lock = notify, threading.Lock()
        self._began, self._printed = time.monotonic(), 0.0

    def expect(self, device: Device, steps: int) -> None:
        with self._lock:
            self._of(device).total += steps
            self._show(device.selector)

    def step(self, device: Device, stage: str, case: str) -> None:
        with self._lock:
            now = self._of(device)
            now.stage, now.case = stage, case
            self._show(device.selector, begins=True)

    def stepped(self, device: Device) -> None:
        """Count a step. With a budget there may be more steps than were expected."""
        with self._lock:
            now = self._of(device)
            now.done += 1
            now.total = max(now.total, now.done)
            self._show(device.selector)

    def _of(self, device: Device) -> DeviceNow:
        return self.devices.setdefault(device.selector, DeviceNow(device=f"{device.selector} ({device.name})"))

    def _show(self, selector: str, *, begins: bool = False) -> None:
        """Show the state of a device: a line when it begins a step, at most one every `every_s` seconds."""
        at, now = time.monotonic(), self.devices[selector]
        if not begins or (at - self._printed < self.every_s and self._printed):
            return
        self._printed, left = at, ""
        done, total = (sum(getattr(one, name) for one in self.devices.values()) for name in ("done", "total"))
        if done and done != total:
            left = f" (about {(at - self._began) / done * (total - done):.0f} s left)"
        self._write(done, total, f"{selector} {now.stage}: {now.case}{left}")

    def _write(self, done: int, total: int, text: str) -> None:
        self.notify(f"[{done}/{total}] {text}")

    def notify(self, text: str) -> None:
        """Hand a message to the caller's function, or write it to stderr."""
        if self._notify is not None:
            self._notify(text)
            return
        sys.stderr.write(f"{safe(text)}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove what is shown."""


class BarProgress(PlainProgress):
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__()
        self._progress = Progress(
            TextColumn("{task.fields[device]} {task.fields[stage]}"),
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[case]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}
        self._progress.start()

    def _show(self, selector: str, *, begins: bool = False) -> None:  # noqa: ARG002 (lines of a log need it)
        now = self.devices[selector]
        if selector not in self._tasks:
            self._tasks[selector] = self._progress.add_task("", device=selector, stage="", case="")
        task, case = self._tasks[selector], safe(now.case)
        self._progress.update(task, completed=now.done, total=now.total, stage=now.stage, case=case)

    def notify(self, text: str) -> None:
        self._progress.console.print(safe(text), markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


class NotebookProgress(PlainProgress):
    """A line below the notebook's cell that changes with each step and is removed in the end."""

    every_s = 0.1

    def __init__(self) -> None:
        super().__init__()
        # Loaded already, for it is what runs the cell; pairbench does not depend on it.
        self._display = sys.modules["IPython.display"]
        self._shown = self._display.display({"text/plain": ""}, raw=True, display_id=True)

    def _write(self, done: int, total: int, text: str) -> None:
        part = round(_BAR * done / total) if total else 0
        text = f"{'█' * part}{'░' * (_BAR - part)} {done}/{total} {text}"
        self._shown.update({"text/plain": safe(text)}, raw=True)

    def close(self) -> None:
        self._shown.update({"text/plain": ""}, raw=True)


class StatusListener(PlainProgress):
    """A line on a terminal that says what a try is doing and is removed in the end; results are shown by the caller."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = False

    def doing(self, what: str) -> None:
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{safe(what)[:width]}\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False

    def notify(self, text: str) -> None:
        self.close()
        super().notify(text)

    def case(self, tried: Any) -> None:
        """Leave finished cases to the caller."""

    def finish(self, attempt: Any) -> None:
        """Leave the end to the caller."""


def open_progress() -> contextlib.closing[PlainProgress]:
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None and "IPython.display" in sys.modules else None
    bars = BarProgress if sys.stderr.isatty() else PlainProgress
    return contextlib.closing(NotebookProgress() if hasattr(shell, "kernel") else bars())


class LiveRun(Value):
    run_id: str
    store: str
    began: float  # seconds since the epoch
    devices: tuple[DeviceNow, ...]

    @property
    def left_s(self) -> float | None:
        """The expected remaining seconds, if all steps take as long as those that are done; None before the first."""
        done, total = sum(one.done for one in self.devices), sum(one.total for one in self.devices)
        return (time.time() - self.began) / done * (total - done) if done else None


class PublishedProgress(PlainProgress):
    """Progress that is also written to a file, which is locked while this process lives: what a killed one left is no run."""

    def __init__(self, inner: PlainProgress, run_id: str, store: str) -> None:
        super().__init__(inner.notify)
        self._inner, self._run_id, self._store, self._since = inner, run_id, store, time.time()
        inner.devices = self.devices
        self._file: int | None = None
        with contextlib.suppress(OSError):  # nobody may need it, so a machine without room for it does no harm
            folder = _folder()
            for file in folder.glob("*.json"):
                _read(file)  # which removes it if its process was killed
            self._path = folder / f"{run_id}-{os.getpid()}.json"
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._publish()

    def _show(self, selector: str, *, begins: bool = False) -> None:
        self._publish()
        self._inner._show(selector, begins=begins)  # noqa: SLF001 (another of the same class)

    def _publish(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                devices = tuple(self.devices.values())
                run = LiveRun(run_id=self._run_id, store=self._store, began=self._since, devices=devices)
                content = json.dumps(asdict(run)).encode()
                os.pwrite(self._file, content, 0)
                os.ftruncate(self._file, len(content))

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = None


def live_runs(store: str) -> tuple[LiveRun, ...]:
    """Return this user's runs on this machine that write to a store now, the oldest first."""
    files: list[Path] = []
    with contextlib.suppress(OSError):
        files = sorted(_folder().glob("*.json"))
    return tuple(run for file in files if (run := _read(file)) is not None and run.store == store)


def _read(path: Path) -> LiveRun | None:
    """Return the run in a file; None for one that is over, or while the file is being written."""
    try:
        with path.open("rb") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)  # nobody holds it: its process was killed
                return None
            content: dict[str, Any] = json.loads(file.read(2**20))  # one of eight devices has some thousand bytes
        devices = tuple(DeviceNow(**one) for one in content.pop("devices"))
        return LiveRun(**content, devices=devices)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _folder() -> Path:
    return make_own(temporary_folder(), "live")
