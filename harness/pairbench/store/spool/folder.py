"""Where results wait that a store did not take: a folder of this user's, laid out as a store, which `pairbench store push` publishes."""

import contextlib
import datetime as dt
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pairbench.errors import StoreError, StoreFailedError
from pairbench.own_folders import check_own, make_own, state_folder, temporary_folder
from pairbench.store.files.written import sweep_temporary, write_whole
from pairbench.store.location import StoreLocation

_FOLDER = "spool"
_NOTE = "spool.json"
_OWNER = ".owner"
_KIND = "spool 1"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A folder of the spool, whose run has ended."""

    folder: Path
    store: str
    """The store that it was meant for, without what would open it."""
    why: str
    """What the store said."""

    @property
    def files(self) -> list[Path]:
        """The files that are to be published, in an order in which no record comes before its samples."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        kept = [path.relative_to(self.folder) for path in found if path.parent != self.folder]
        return sorted(kept, key=lambda path: (path.parts[0] == "records", path))


class Spool:
    """Publishes files into a store, and from the moment that it fails into a folder of this user's.

    Nothing is made before it is needed. What cannot be kept there either, for the disk is full, stays in memory and is tried again.
    """

    def __init__(self, location: StoreLocation, name: str, notify: Callable[[str], None]) -> None:
        """Take a name for the folder, and what is told of it.

        Args:
            location: The store.
            name: What the folder's name begins with, such as the run's id.
            notify: Is told once that the store has failed, and where the results are.
        """
        self.location = location
        self.why: str | None = None
        """What the store said when it failed first; None as long as it has not."""
        self.folder: Path | None = None
        """Where the files are that it did not take; None where there are none, or they could not be kept."""
        self._name = name
        self._notify = notify
        self._told = False
        self._held = contextlib.ExitStack()
        self._unkept: dict[str, pa.Buffer] = {}

    def publish(self, path: str, content: pa.Buffer) -> None:
        """Make a file appear, whole, in the store, or once that has failed in the folder; what neither takes is kept in memory."""
        if self.why is None:
            try:
                self.location.publish(path, content)
            except StoreFailedError as error:
                self.why = str(error)
            else:
                return
        self._unkept[path[len(self.location.root) + 1 :]] = content
        self._keep()
        if not self._told:
            self._told = True
            where = f"in {self.folder}" if self.folder else "in memory, for no other place takes them"
            self._notify(f"pairbench: {self.why}; what is measured from here on is kept {where}")

    def publish_alone(self, path: str, content: pa.Buffer) -> None:
        """Make a file appear as `publish` does, where nobody has made its folder yet."""
        if self.why is None:
            try:
                self.location.make_folder(path.rpartition("/")[0])
            except (StoreError, StoreFailedError) as error:
                self.why = str(error)
        self.publish(path, content)

    def _keep(self) -> None:
        """Write down what is kept in memory, as far as there is room."""
        if self.folder is None:
            self.folder = self._make()
        if self.folder is None:
            return
        for path in list(self._unkept):
            try:
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.folder / path, self._unkept[path])
            except OSError:
                return
            del self._unkept[path]

    def _make(self) -> Path | None:
        for base in spool_places():
            try:
                folder = make_own(base, _FOLDER, f"{self._name}-{secrets.token_hex(3)}")
                self._held.enter_context(_owned(folder))
                note = {
                    "pairbench": _KIND,
                    "store": self.location.address,
                    "why": self.why,
                    "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                }
                write_whole(folder / _NOTE, json.dumps(note, indent=2).encode())
            except OSError:
                continue
            return folder
        return None

    def close(self) -> tuple[str, ...]:
        """Let others publish what is in the folder.

        Returns:
            The files, below the store's root, that neither the store nor a folder has taken.
        """
        if self._unkept:
            self._keep()
        self._held.close()
        for path in list(self._unkept):
            try:
                self.location.publish(f"{self.location.root}/{path}", self._unkept[path])
            except StoreFailedError:
                break
            del self._unkept[path]
        return tuple(self._unkept)


def spool_places() -> list[Path]:
    """Return the user's folders in which results may wait, the first one first."""
    return [place for place in (state_folder(), temporary_folder()) if place is not None]


def waiting() -> Iterator[Waiting]:
    """Yield what waits, the oldest first; what a run that is under way still writes to is left alone."""
    for base in spool_places():
        with contextlib.suppress(OSError):
            check_own(base)  # what somebody else put there is not published
            for folder in sorted((base / _FOLDER).iterdir()):
                found = _waiting(folder)
                if found is not None:
                    yield found


def _waiting(folder: Path) -> Waiting | None:
    try:
        if not (folder / _NOTE).exists():
            _remove_empty(folder)
            return None
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        with _owned(folder):
            return Waiting(folder=folder, store=str(note["store"]), why=str(note["why"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _remove_empty(folder: Path) -> None:
    """Remove a folder whose maker was killed before anything was in it.

    Raises:
        OSError: something is in it, or somebody holds it.
    """
    check_own(folder)
    with _owned(folder):
        sweep_temporary([folder])
        if {file.name for file in folder.iterdir()} == {_OWNER}:
            (folder / _OWNER).unlink()
            folder.rmdir()


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Hold a folder: the kernel gives it back when the process ends, however it ends.

    Raises:
        BlockingIOError: another process holds it.
        OSError: it cannot be held.
    """
    descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def held(one: Waiting) -> contextlib.AbstractContextManager[None]:
    """Hold a folder while it is published, so that nobody else does the same.

    Raises:
        BlockingIOError: another process does.
    """
    return _owned(one.folder)
