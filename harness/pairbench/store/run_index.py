"""The runs of a store, newest first, opening no more files than a caller needs."""

import datetime as dt
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from pairbench.errors import StoreError
from pairbench.model.plain import Value
from pairbench.model.record import Record
from pairbench.model.text import redacted
from pairbench.store.compacted import Files
from pairbench.store.files import Reading
from pairbench.store.location import RunFile, Store, StoreLocation
from pairbench.store.reader import Names, read_columns, read_distinct, read_records
from pairbench.store.reading import dataset_files

_COLUMNS = ("run_id", "confirms", "started_at", "commit", "branch", "dirty", "device_name", "mode")
_AT_ONCE = 8


class IndexedRun(Value):
    """One run, without its measurements."""

    run_id: str
    names: frozenset[str] = field(repr=False)
    """The runs that its files are named after: a renamed file still holds its run."""
    started_at: str
    commit: str | None
    branch: str | None
    dirty: bool
    confirms: str | None
    devices: frozenset[str]
    has_series: bool = True
    """Whether it has a row of any series; False where no suite could be loaded."""

    @property
    def started(self) -> dt.datetime | None:
        try:
            moment = dt.datetime.fromisoformat(self.started_at)
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)

    @property
    def named(self) -> dt.datetime | None:
        return named_moment(self.run_id)


class RunIndex:
    """The runs of a store, or of one file, newest first by their ids; heads are read as they are asked for."""

    def __init__(self, place: StoreLocation, name: str, files: Files) -> None:
        self.place = place
        self.name = name
        self.problems: list[str] = []
        """A sentence for each file that was opened and cannot be read."""
        self._tell(files.problems)
        self._files = files
        self._heads: dict[str, IndexedRun] = {}
        by_run: dict[str, list[RunFile]] = defaultdict(list)
        for file in files.files:
            for run_id in file.run_ids:
                by_run[run_id].append(file)
        self._unread = {run_id: by_run[run_id] for run_id in sorted(by_run)}

    @classmethod
    def of_store(cls, store: Store) -> "RunIndex":
        place = StoreLocation.of(store)
        return cls(place, place.name, dataset_files(place, "records"))

    @classmethod
    def of_file(cls, path: str, *, moved: Mapping[str, str] | None = None) -> "RunIndex":
        """Return the runs in one parquet file; raise StoreError where there is none, or it cannot be read."""
        folder, _, name = path.rpartition("/")
        place = StoreLocation.of(folder or ".", moved=moved)
        path = redacted(path)
        file = RunFile(path=f"{place.root}/{name}", run_id=name.removesuffix(".parquet"), is_part=False)
        if not place.filesystem.get_file_info(file.path).is_file:
            raise StoreError(f"{path}: there is no such file, expected a parquet file of `pairbench run`")
        index = cls(place, path, Files(files=(file,)))
        if not list(index):
            raise StoreError("; ".join(index.problems) or f"{path}: holds no rows, expected some of `pairbench run`")
        return index

    @property
    def is_file(self) -> bool:
        return self.name.endswith(".parquet")

    def __iter__(self) -> Iterator[IndexedRun]:
        """Yield the heads, newest first, reading as they are asked for."""
        seen: set[str] = set()
        while True:
            # A head that was read out of turn waits for its turn.
            newest_unread = next(reversed(self._unread), "")
            for run_id in sorted(self._heads.keys() - seen, reverse=True):
                if run_id > newest_unread:
                    seen.add(run_id)
                    yield self._heads[run_id]
            if not self._unread:
                return
            self._read_heads(list(self._unread)[-_AT_ONCE:])

    def beginning(self, text: str) -> tuple[IndexedRun, ...]:
        self._read_heads([run_id for run_id in self._unread if run_id.startswith(text)])
        return tuple(self._heads[run_id] for run_id in sorted(self._heads, reverse=True) if run_id.startswith(text))

    def first(self, count: int, wanted: Callable[[IndexedRun], bool] = lambda _: True) -> tuple[IndexedRun, ...]:
        return tuple(itertools.islice(filter(wanted, self), count))

    def records(self, heads: Iterable[IndexedRun], *, cases: Names = None) -> Reading[tuple[Record, ...]]:
        where = None if cases is None else {"case": sorted(cases)}
        return read_records(self.place, files=self._files_of(heads), where=where)

    def keys(self, heads: Iterable[IndexedRun], columns: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        heads = list(heads)
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for name, row in self._distinct(columns, self._files_of(heads).files):
            rows[name].append(row)
        return {head.run_id: [row for name in sorted(head.names) for row in rows[name]] for head in heads}

    def columns(self, heads: Iterable[IndexedRun], columns: Sequence[str]) -> dict[str, list[Any]]:
        run_ids = {name for head in heads for name in head.names}
        rows, problems = read_columns(self.place, columns, run_ids=run_ids)
        self._tell(problems)
        return rows

    def _files_of(self, heads: Iterable[IndexedRun]) -> Files:
        return self._files.of_runs({name for head in heads for name in head.names})

    def _distinct(self, columns: Sequence[str], files: Iterable[RunFile]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the distinct rows of some columns in record files, each with the id of its run."""
        reading = read_distinct(self.place, list(dict.fromkeys([*columns, "run_id"])), files)
        self._tell(reading.problems)
        for file, rows in reading.value.items():
            for row in rows:
                yield row["run_id"] if file.is_compacted else file.run_id, row

    def _read_heads(self, run_ids: Iterable[str]) -> None:
        """Read the heads of some unread runs, and of all that were compacted into the same files, which cost nothing more."""
        pending = list(run_ids)
        files: dict[str, RunFile] = {}
        while pending:
            for file in self._unread.pop(pending.pop(), ()):
                if file.path not in files:
                    files[file.path] = file
                    pending += file.run_ids
        by_run: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for name, row in self._distinct(_COLUMNS, files.values()):
            by_run[row["run_id"]].append((name, row))
        for run_id, of_run in by_run.items():
            before = self._heads[run_id].names if run_id in self._heads else frozenset[str]()
            first = of_run[0][1]
            self._heads[run_id] = IndexedRun(
                run_id=run_id,
                names=before.union(name for name, _ in of_run),
                started_at=first["started_at"] or "",
                **{name: first[name] for name in ("commit", "branch", "confirms")},
                dirty=any(row["dirty"] for _, row in of_run),
                devices=frozenset(row["device_name"] for _, row in of_run),
                has_series=any(row["mode"] is not None for _, row in of_run),
            )

    def _tell(self, problems: Iterable[str]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]


def named_moment(run_id: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=dt.UTC)
    except ValueError:
        return None
