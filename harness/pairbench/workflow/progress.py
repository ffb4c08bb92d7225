"""Progress on stderr: a bar with case, round and time left on a terminal, plain lines elsewhere."""

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

from pairbench.model.environment import Device
from pairbench.model.text import safe

_LINE_EVERY_S = 10.0
"""Seconds between two lines of a log."""
_REDRAW_EVERY_S, _BAR = 0.1, 24
"""Seconds between two changes of a notebook's line, and the letters of its bar."""


class PlainProgress:
    """A line now and then, for logs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = self._done = 0
        self._began = time.monotonic()
        self._printed = 0.0

    def expect(self, device: Device, steps: int) -> None:  # noqa: ARG002 (the bars need it)
        """Announce how many steps a device has."""
        with self._lock:
            self._total += steps

    def step(self, device: Device, stage: str, case: str) -> None:
        """Say what begins."""
        now = time.monotonic()
        with self._lock:
            if now - self._printed < _LINE_EVERY_S and self._printed:
                return
            self._printed = now
            self.notify(f"[{self._done}/{self._total}] {device.selector} {stage}: {case}{self._left(now)}")

    def stepped(self, device: Device) -> None:  # noqa: ARG002 (the bars need it)
        """Count a step. With a budget there may be more of them than were expected."""
        with self._lock:
            self._done += 1
            self._total = max(self._total, self._done)

    def _left(self, now: float) -> str:
        if not self._done or self._done == self._total:
            return ""
        seconds = (now - self._began) / self._done * (self._total - self._done)
        return f" (about {seconds:.0f} s left)"

    def notify(self, text: str) -> None:
        """Print a message of its own."""
        sys.stderr.write(f"{safe(text)}\n")
        sys.stderr.flush()


class BarProgress(PlainProgress):
    """A bar a device."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__()
        self._progress = Progress(
            TextColumn("{task.fields[device]} {task.fields[stage]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[case]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, int] = {}
        self._progress.start()

    def expect(self, device: Device, steps: int) -> None:
        """Add a bar."""
        self._tasks[device.selector] = self._progress.add_task(
            "", total=steps, device=device.selector, stage="", case=""
        )

    def step(self, device: Device, stage: str, case: str) -> None:
        """Show what begins."""
        self._progress.update(self._tasks[device.selector], stage=stage, case=safe(case))  # type: ignore[arg-type]

    def stepped(self, device: Device) -> None:
        """Move the bar, and its end with it where there are more steps than were expected."""
        task = self._progress.tasks[self._tasks[device.selector]]
        self._progress.update(task.id, advance=1, total=max(task.total or 0, task.completed + 1))

    def notify(self, text: str) -> None:
        """Print above the bars."""
        self._progress.console.print(safe(text), markup=False, highlight=False)

    def close(self) -> None:
        """Take the bars away."""
        self._progress.stop()


class StatusLine:
    """A line on a terminal that says what is under way, and leaves nothing behind; nothing where stderr is none."""

    def __init__(self) -> None:
        self._shown = False

    def say(self, text: str) -> None:
        """Say what is under way, in place of what was said before."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{safe(text)[:width]}\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line away, for something else is going to be printed."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


class NotebookProgress(PlainProgress):
    """A line below the cell that is written anew with each step, and goes when all is over."""

    def __init__(self) -> None:
        super().__init__()
        # Loaded already, for it is what runs the cell; pairbench does not depend on it.
        self._display = sys.modules["IPython.display"]
        self._shown = self._display.display({"text/plain": ""}, raw=True, display_id=True)
        self._last = 0.0

    def step(self, device: Device, stage: str, case: str) -> None:
        """Show what begins."""
        now = time.monotonic()
        with self._lock:
            if now - self._last < _REDRAW_EVERY_S:
                return
            self._last = now
            part = self._done / self._total if self._total else 0.0
            bar = "█" * round(_BAR * part) + "░" * (_BAR - round(_BAR * part))
            self._write(f"{bar} {self._done}/{self._total} {device.selector} {stage}: {case}{self._left(now)}")

    def close(self) -> None:
        """Take the line away."""
        self._write("")

    def _write(self, text: str) -> None:
        self._shown.update({"text/plain": safe(text)}, raw=True)


def _is_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None and "IPython.display" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


class StatusTelling(StatusLine):
    """What a quick look tells its user while it goes on; what it found is its caller's to show."""

    def doing(self, what: str) -> None:
        """Say what is under way."""
        self.say(what)

    def notify(self, text: str) -> None:
        """Print a message of its own."""
        self.clear()
        sys.stderr.write(f"{safe(text)}\n")
        sys.stderr.flush()

    def case(self, tried: object) -> None:
        """Take a case of which all is known."""


@contextlib.contextmanager
def open_progress() -> Iterator[PlainProgress]:
    """Give what suits stderr, or the notebook that this process runs."""
    if _is_notebook():
        line = NotebookProgress()
        try:
            yield line
        finally:
            line.close()
        return
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    bar = BarProgress()
    try:
        yield bar
    finally:
        bar.close()
