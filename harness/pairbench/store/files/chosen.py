"""Which file each run is read from, where one that was compacted, or that will be, lies beside the runs' own files.

Whatever happens to whoever compacts, and whatever is copied into a store, a run may be in several files of a folder: its own, and compacted
ones. It is read from the one that has most rows of it, for rows are only ever added; of equal ones from the compacted file with most runs.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from pairbench.errors import StoreFailedError
from pairbench.store.files.compacted import compacted_name, runs_in
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile, read_content
from pairbench.store.location import RunFile, StoreLocation

INDEX = "records/_compacted.json"
"""What the compacted files of a store hold, so that each need not be asked. It can be deleted at any time: `pairbench store compact` makes it again."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The files of a dataset, no run twice."""

    files: tuple[RunFile, ...]
    """What is to be read."""
    left: tuple[RunFile, ...] = ()
    """Files all of whose rows are in others, too."""
    runs: dict[str, dict[str, int]]
    """The runs of each compacted file, by its path, with how many rows it has of each."""
    problems: tuple[str, ...] = ()
    """A sentence for each compacted file that does not say what it holds."""


def choose(place: StoreLocation, files: Sequence[RunFile]) -> Chosen:
    """Return which of some files to read for which run.

    Args:
        place: The store.
        files: All of one dataset, or of some of its folders, as they were listed.

    Raises:
        StoreFailedError: the store is elsewhere, and does not give a file.
    """
    compacted = [file for file in files if file.is_compacted]
    if not compacted:
        return Chosen(files=tuple(files), runs={})
    runs, problems = _runs_of(place, compacted)
    # The best first.
    order = sorted(runs, key=lambda path: (-len(runs[path]), path))
    best: dict[tuple[str, str], tuple[int, str]] = {}
    for path in order:
        folder = path.rpartition("/")[0]
        for run_id, rows in runs[path].items():
            if (folder, run_id) not in best or rows > best[folder, run_id][0]:
                best[folder, run_id] = (rows, path)
    kept: list[RunFile] = []
    left: list[RunFile] = []
    for file in files:
        key = (file.folder, file.run_id)
        if file.is_compacted:
            continue
        if key not in best:
            kept.append(file)
        elif not file.is_part and _rows(place, file) > best[key][0]:
            kept.append(file)
            del best[key]
        else:
            # A part goes with the run's own file, which goes before compacted ones only where it is the fuller one.
            left.append(file)
    for file in compacted:
        if file.path not in runs:
            continue
        among = tuple(run_id for run_id in runs[file.path] if best.get((file.folder, run_id), ("", ""))[1] == file.path)
        (kept if among else left).append(replace(file, run_id=max(among or runs[file.path]), among=among))
    kept.sort(key=lambda file: (file.run_id, file.path))
    return Chosen(files=tuple(kept), left=tuple(left), runs=runs, problems=problems)


def write_index(place: StoreLocation, files: Iterable[RunFile]) -> None:
    """Write down what the compacted files among some hold, if it is not written down already.

    Raises:
        StoreFailedError: there is no space or permission, or a file is not given.
    """
    compacted = [file for file in files if file.is_compacted]
    known = _index(place)
    runs, _ = _runs_of(place, compacted, known)
    wanted = {_name(place, path): of_file for path, of_file in runs.items()}
    if wanted != known:
        place.publish(f"{place.root}/{INDEX}", pa.py_buffer(json.dumps(wanted, sort_keys=True).encode()))


def index_problem(place: StoreLocation, files: Iterable[RunFile]) -> str:
    """Return a sentence where what is written down of compacted files is not what they hold; it costs time, and no row.

    Raises:
        StoreFailedError: a file is not given.
    """
    known = _index(place)
    runs, _ = _runs_of(place, [file for file in files if file.is_compacted], {})
    if known == {_name(place, path): of_file for path, of_file in runs.items()}:
        return ""
    return "is not what the compacted files hold, which are asked themselves; `pairbench store compact` makes it again"


def _runs_of(
    place: StoreLocation, compacted: Iterable[RunFile], known: dict[str, dict[str, int]] | None = None
) -> tuple[dict[str, dict[str, int]], tuple[str, ...]]:
    """Return the runs of each compacted file by its path, and what cannot be read."""
    known = _index(place) if known is None else known
    runs, problems = {}, []
    for file in compacted:
        try:
            runs[file.path] = known.get(_name(place, file.path)) or runs_in(place, file.path)
        except FileNotFoundError:  # it is in another by now
            continue
        except (ForeignFileError, UnsoundError, *BROKEN) as error:
            (first, *_) = str(error).splitlines() or [type(error).__name__]
            problems.append(f"{file.path}: cannot be read, left out: {first}")
    return runs, tuple(problems)


def _index(place: StoreLocation) -> dict[str, dict[str, int]]:
    """Return what is written down of compacted files, by their names below the root; what does not fit its name is left out."""
    with suppress(UnsoundError, StoreFailedError, TypeError, AttributeError, *BROKEN):
        path = f"{place.root}/{INDEX}"
        content = place.held.get(path) or read_content(place, path)
        if not place.is_local:
            place.held.put(path, content)
        found = json.loads(content.to_pybytes())
        return {name: runs for name, runs in found.items() if compacted_name(runs) == name.rpartition("/")[2]}
    return {}


def _name(place: StoreLocation, path: str) -> str:
    return path[len(place.root) + 1 :]


def _rows(place: StoreLocation, file: RunFile) -> int:
    try:
        opened = OpenedFile(place, file.path, "records")
        return opened.num_rows if opened.sealed else len(opened.raw())
    except (FileNotFoundError, ForeignFileError, UnsoundError, *BROKEN):
        return 0
