"""Tries again whenever a file changes that a suite is made of, until the user interrupts. Files are looked at a few times a second."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pairbench.errors import InterruptedRunError, PairbenchError
from pairbench.features.attempt.attempts import Attempt, Attempts
from pairbench.suite.reached import forget, reached_files, sources_beside
from pairbench.workflow.git import git

_EVERY_S = 0.2
_SETTLE_S, _SETTLED_AFTER = 0.03, 30
"""Seconds between two looks at files that are being written, and the number of looks after which they count as written."""

_Stamps = dict[Path, tuple[int, int, int] | None]
"""Time of the last change, size and inode of each file; None for an absent one."""


class SuiteFiles:
    """The files that suites depend on: the suites, what they import of the project, and sources beside these."""

    def __init__(self, suites: Callable[[], tuple[Path, ...]]) -> None:
        self._suites = suites
        self._files: set[Path] = set()
        self._known: tuple[tuple[Path, ...], _Stamps, _Stamps] = ((), {}, {})
        self._repositories: dict[Path, Path] = {}
        self.seen = self._look()
        """The files as of the last change."""

    def changed(self) -> tuple[Path, ...]:
        """Return the files that changed since the last call, once no editor writes to them any more."""
        now = self._look()
        if now == self.seen:
            return ()
        for _ in range(_SETTLED_AFTER):
            time.sleep(_SETTLE_S)
            before, now = now, self._look()
            # An editor may take a file away for a moment, to put another one in its place.
            if before == now and all(now.get(suite) for suite in self._suites()):
                break
        changed = tuple(sorted(file for file in now if now[file] != self.seen.get(file)))
        self.seen = now
        return changed

    def _look(self) -> _Stamps:
        suites = self._suites()
        folders, stamps = self._stamps()
        if (suites, folders, stamps) == self._known:
            return stamps  # and nobody imports anything else
        if folders != self._known[1]:
            forget()
        for suite in suites:
            reached = reached_files(suite, self._repository_of(suite.parent))
            # What was reached once stays: while a file is no Python, nobody can tell what it imports.
            self._files |= reached.tree | reached.packages
        self._files |= sources_beside(file for file in self._files if file.parent.is_dir())
        # What has changed since the first look at it is read again at the next one.
        more_folders, more = self._stamps()
        self._known = (suites, more_folders | folders, more | stamps)
        return self._known[2]

    def _stamps(self) -> tuple[_Stamps, _Stamps]:
        """Return the stamps of folders, in which files come and go, and of files."""
        folders = {file.parent for file in self._files}
        return {folder: _stamp(folder) for folder in folders}, {file: _stamp(file) for file in self._files}

    def _repository_of(self, folder: Path) -> Path:
        if folder not in self._repositories:
            top = git(folder, "rev-parse", "--show-toplevel")
            self._repositories[folder] = Path(top).resolve() if top else Path.cwd().resolve()
        return self._repositories[folder]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def try_on_changes(
    attempts: Attempts,
    interrupted: threading.Event,
    *,
    begin: Callable[[tuple[Path, ...]], None],
    failed: Callable[[PairbenchError], None],
) -> Iterator[Attempt]:
    """Yield a try now and after every change of a file, until the user interrupts; an error of the user's code goes to `failed`."""
    files = SuiteFiles(lambda: attempts.asked.files)
    changed: tuple[Path, ...] = ()
    while True:
        begin(changed)
        try:
            attempt = attempts.once()
        except PairbenchError as error:
            failed(error)
        else:
            yield attempt
        attempts.park()
        changed = ()
        while not changed:
            if interrupted.wait(_EVERY_S):
                raise InterruptedRunError
            changed = files.changed()
