"""The parts of a run: which of them the run's one file has made superfluous."""

from collections import defaultdict
from collections.abc import Iterable

from pairbench.errors import StoreFailedError
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile
from pairbench.store.location import RunFile, StoreLocation


def doubled(files: Iterable[RunFile]) -> dict[str, list[str]]:
    """Return the parts that lie beside the one file which was made of them, by that file's path."""
    files = list(files)
    wholes = {file.path for file in files if not file.is_part}
    parts: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.is_part and file.whole in wholes:
            parts[file.whole].append(file.path)
    return dict(parts)


def tidy(location: StoreLocation, files: Iterable[RunFile]) -> None:
    """Delete doubled parts where the one file is sound and holds as many rows: a run was killed while it closed.

    Safe while others read or do the same, and where nothing may be deleted nothing is.
    """
    for whole, parts in doubled(files).items():
        try:
            sound = _rows(location, whole) >= sum(_rows(location, part) for part in parts)
        except (ForeignFileError, UnsoundError, StoreFailedError, *BROKEN):
            continue
        if sound:
            location.delete(parts)


def _rows(location: StoreLocation, path: str) -> int:
    """Return how many rows a file holds, after making sure that all of it is sound."""
    dataset = path[len(location.root) + 1 :].partition("/")[0]
    opened = OpenedFile(location, path, dataset)
    return opened.num_rows if opened.sealed else len(opened.raw())
