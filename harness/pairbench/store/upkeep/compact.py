"""Merges the records of old runs into fewer files, so that one series over many runs is few pieces of few files. Samples stay as they are.

A merged file is there, has been read back and holds every row, before the first of the files that it stands for is deleted; until then, and
for ever if the process is killed, each run is read from one of them (`files/chosen.py`). Two that compact at once, or a store that is copied
into another, leave at most files too many, which the next one removes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.errors import StoreFailedError
from pairbench.store.derived import SINCE
from pairbench.store.files.compacted import (
    ROW,
    Chosen,
    CompactedFile,
    choose,
    compacted_content,
    open_file,
    write_index,
)
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.reading import problem_of
from pairbench.store.schema import SCHEMA_VERSION

KEEP = 100
"""How many of the newest runs of each device model keep files of their own: what `compare` looks at, and what may still be completed."""
AT_LEAST = 16
"""How many runs it takes in a month that is not over, so that a nightly job does not write the same rows every night."""
MOST_ROWS = 190_000
MOST_RUNS = 2_000
"""How much a merged file holds."""
MOST_BYTES = 2**28
"""How many bytes of files are merged into one."""
_ANY = 2
"""How many it takes in a month that is over; there a single one joins a file that has room."""
_TIMES = 4


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What became of a folder of records: of one device model and one month."""

    folder: str
    """Below the store's root."""
    runs: int
    """How many runs were merged."""
    files: int
    """How many files there are fewer."""
    size: int
    """How many bytes they had."""
    now: int
    """How many bytes the new files have."""
    problems: tuple[str, ...]
    """A sentence for each file that cannot be read, and stays."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A file that may be merged."""

    file: RunFile
    rows: int
    size: int
    form: str
    """The file's schema version and columns: only files of one form are merged."""
    whole: bool
    """Whether it is a compacted one all of whose runs are read from it."""


def compact(place: StoreLocation, *, keep: int = KEEP) -> Iterator[Merged]:
    """Merge old records, a folder at a time, and yield what was done wherever something was; done again, nothing is.

    Left as they are: the newest runs, runs that were never closed, and files of a schema version before 4 or after this one's.

    Args:
        place: The store.
        keep: How many of the newest runs of each device model keep files of their own.

    Raises:
        StoreFailedError: the store cannot be listed, read or written to; every row is where it was.
    """
    place.sweep()
    files = place.files("records")
    folders: dict[str, list[RunFile]] = defaultdict(list)
    for file in files:
        folders[file.folder].append(file)
    recent, months = _recent(choose(place, files), keep)
    done = False
    for folder, there in sorted(folders.items()):
        slug = there[0].device_slug
        merged = _compact_folder(place, folder, recent[slug], is_over=folder < months[slug])
        if merged is not None:
            done = True
            yield merged
    write_index(place, place.files("records") if done else files)


def _recent(chosen: Chosen, keep: int) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """Return the newest runs of each device model, and the folder of its newest month."""
    runs: dict[str, set[str]] = defaultdict(set)
    months: dict[str, str] = defaultdict(str)
    for file in (*chosen.files, *chosen.left):
        runs[file.device_slug].update(file.run_ids)
        months[file.device_slug] = max(months[file.device_slug], file.folder)
    newest = {slug: frozenset(sorted(of_slug)[max(len(of_slug) - keep, 0) :]) for slug, of_slug in runs.items()}
    return defaultdict(frozenset, newest), months


def _compact_folder(place: StoreLocation, folder: str, recent: frozenset[str], *, is_over: bool) -> Merged | None:
    """Merge what there is to merge in a folder, and return what was done; None where nothing is to be done."""
    runs, files, size, now = 0, 0, 0, 0
    problems: dict[str, None] = {}
    for _ in range(_TIMES):  # what has been merged may fit into one file with what was there
        chosen = choose(place, run_files(place.listing(folder[len(place.root) + 1 :], ".parquet").paths))
        problems |= dict.fromkeys(chosen.problems)
        elsewhere = _Elsewhere(place, chosen)
        left = [file for file in chosen.left if elsewhere.has(file)]
        sources, missed = _sources(place, chosen, recent)
        problems |= dict.fromkeys(missed)
        by_form: dict[str, list[_Source]] = defaultdict(list)
        for source in sources:
            by_form[source.form].append(source)
        at_least = _ANY if is_over else AT_LEAST
        batches = [batch for several in by_form.values() for batch in _batches(several, at_least)]
        if not left and not batches:
            break
        for batch in batches:
            try:
                gone, written = _merge(place, folder, batch)
            except (ForeignFileError, UnsoundError, FileNotFoundError, *BROKEN) as error:
                problems[problem_of(batch[0].file.path, error)] = None
                batches = []
                break
            runs += sum(len(source.file.run_ids) for source in batch)
            size += sum(source.size for source in batch)
            now += written
            files += gone
        place.delete(file.path for file in left)
        files += len(left)
        if not batches:
            break
    if not files and not problems:
        return None
    return Merged(
        folder=folder[len(place.root) + 1 :], runs=runs, files=files, size=size, now=now, problems=tuple(problems)
    )


class _Elsewhere:
    """Tells whether the rows of a file can be read from others. Each of these is read whole, once."""

    def __init__(self, place: StoreLocation, chosen: Chosen) -> None:
        self._place = place
        self._own = {
            (file.folder, file.run_id): file for file in chosen.files if not file.is_compacted and not file.is_part
        }
        self._compacted = chosen.runs
        self._sound: dict[str, dict[str, int]] = {}

    def has(self, file: RunFile) -> bool:
        """Tell whether it is so. A file that cannot be read stays, to be named."""
        try:
            return all(self._has(file, run_id, rows) for run_id, rows in _rows_of(self._place, file).items())
        except (ForeignFileError, UnsoundError, FileNotFoundError, *BROKEN):
            return False

    def _has(self, file: RunFile, run_id: str, rows: int) -> bool:
        own = self._own.get((file.folder, run_id))
        others = [own] if own is not None else []
        others += [
            RunFile(path=path, run_id=run_id, is_part=False, is_compacted=True)
            for path, runs in self._compacted.items()
            if run_id in runs and path.rpartition("/")[0] == file.folder
        ]
        return any(self._rows(other).get(run_id, 0) >= rows for other in others if other.path != file.path)

    def _rows(self, file: RunFile) -> dict[str, int]:
        if file.path not in self._sound:
            try:
                self._sound[file.path] = _rows_of(self._place, file)
            except (ForeignFileError, UnsoundError, FileNotFoundError, *BROKEN):
                self._sound[file.path] = {}
        return self._sound[file.path]


def _rows_of(place: StoreLocation, file: RunFile) -> dict[str, int]:
    """Return how many rows a file has of each run, after all of it has been read."""
    if not file.is_compacted:
        return {file.run_id: OpenedFile(place, file.path, "records").raw().num_rows}
    opened = CompactedFile(place, file, "records")
    opened.check()
    return opened.runs


def _sources(place: StoreLocation, chosen: Chosen, recent: frozenset[str]) -> tuple[list[_Source], list[str]]:
    """Return the files that may be merged, oldest run first, and a sentence for each that cannot be read."""
    parts = {file.run_id for file in chosen.files if file.is_part}
    sources, problems = [], []
    for file in chosen.files:
        if file.is_part or file.run_id in parts or (not file.is_compacted and file.run_id in recent):
            continue
        try:
            opened = open_file(place, file, "records")
            whole = file.is_compacted and len(chosen.runs[file.path]) == len(file.among)
        except FileNotFoundError:
            continue
        except (ForeignFileError, UnsoundError, *BROKEN) as error:
            problems.append(problem_of(file.path, error))
            continue
        if SINCE <= opened.version <= SCHEMA_VERSION and opened.num_rows:
            sources.append(_Source(file=file, rows=opened.num_rows, size=opened.size, form=_form(opened), whole=whole))
    return sources, problems


def _batches(sources: Sequence[_Source], at_least: int) -> list[list[_Source]]:
    """Return what to merge, each into one file.

    Args:
        sources: The files that may be.
        at_least: How many runs' own files it takes to begin.
    """
    own = sum(not source.file.is_compacted for source in sources)
    torn = any(source.file.is_compacted and not source.whole for source in sources)
    small = [source for source in sources if not source.whole or source.rows <= MOST_ROWS / 2]
    joins = at_least == _ANY and own and len(small) > 1
    if not (torn or joins or own >= at_least or len(small) - own > 1):
        return []
    found: list[list[_Source]] = [[]]
    for source in small:
        batch = [*found[-1], source]
        too_much = (
            sum(one.rows for one in batch) > MOST_ROWS
            or sum(len(one.file.run_ids) for one in batch) > MOST_RUNS
            or sum(one.size for one in batch) > MOST_BYTES
        )
        if too_much and found[-1]:
            found.append([source])
        else:
            found[-1].append(source)
    return [batch for batch in found if len(batch) > 1 or any(not one.whole and one.file.is_compacted for one in batch)]


def _form(opened: OpenedFile) -> str:
    columns = [f"{field.name} {field.type}" for field in opened.metadata.schema.to_arrow_schema() if field.name != ROW]
    return f"{opened.version} {', '.join(columns)}"


def _merge(place: StoreLocation, folder: str, batch: Sequence[_Source]) -> tuple[int, int]:
    """Make one file of some, and return how many there are fewer and the bytes of the new one."""
    path, written = publish_runs(place, folder, [open_file(place, source.file, "records").raw() for source in batch])
    torn = {source.file.path for source in batch if source.file.is_compacted and not source.whole}
    stale = [source.file.path for source in batch if source.file.path not in {path, *torn}]
    place.delete(stale)
    gone = len(stale) - 1
    if torn:  # some of their runs are read from files that have not been looked at here
        now = choose(place, run_files(place.listing(folder[len(place.root) + 1 :], ".parquet").paths))
        elsewhere = _Elsewhere(place, now)
        removed = [source.file.path for source in batch if source.file.path in torn and elsewhere.has(source.file)]
        place.delete(removed)
        gone += len(removed)
    return gone, written


def publish_runs(place: StoreLocation, folder: str, tables: Iterable[pa.Table]) -> tuple[str, int]:
    """Put whole runs into one compacted file, read it back, and return its path and its bytes.

    Args:
        place: The store.
        folder: The full path of their device model and month.
        tables: As they were written, all with the same columns.

    Raises:
        UnsoundError: they are too much for one file.
        StoreFailedError: there is no space or permission, or what was written does not come back.
    """
    tables = list(tables)
    name, content, runs = compacted_content(tables)
    path = f"{folder}/{name}"
    place.publish(path, content)
    file = RunFile(path=path, run_id=max(runs), is_part=False, is_compacted=True, among=tuple(runs))
    try:
        back = pc.value_counts(CompactedFile(place, file, "records").read(["run_id"]).column("run_id")).to_pylist()
        CompactedFile(place, file, "records").check()
    except (ForeignFileError, UnsoundError, FileNotFoundError, *BROKEN) as error:
        raise StoreFailedError(f"store {place.name!r}: {path} cannot be read back: {error}") from error
    if {str(one["values"]): one["counts"] for one in back} != runs:
        raise StoreFailedError(
            f"store {place.name!r}: {path} does not come back as it was written; nothing was deleted"
        )
    return path, content.size
