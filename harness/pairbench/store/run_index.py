"""The runs of a store, newest first, opening no more files than a caller needs."""

import datetime as dt
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pairbench.errors import StoreError
from pairbench.model.record import Record
from pairbench.model.text import redacted
from pairbench.store.location import RunFile, Store, StoreLocation
from pairbench.store.reader import read_distinct, read_file, read_frame, read_records
from pairbench.store.reading import Reading, dataset_files

_COLUMNS = ("run_id", "confirms", "started_at", "commit", "branch", "dirty", "device_name", "mode")
_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class IndexedRun:
    """One run, without its measurements."""

    run_id: str
    files: tuple[RunFile, ...] = field(repr=False)
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

    def __init__(self, place: StoreLocation, name: str, files: Sequence[RunFile]) -> None:
        self.place = place
        self.name = name
        self.problems: list[str] = []
        """A sentence for each file that was opened and cannot be read."""
        self._heads: dict[str, IndexedRun] = {}
        by_run: dict[str, list[RunFile]] = defaultdict(list)
        for file in files:
            for run_id in file.run_ids:
                by_run[run_id].append(_of_run(file, run_id))
        self._unread = {run_id: by_run[run_id] for run_id in sorted(by_run)}

    @classmethod
    def of_store(cls, store: Store) -> "RunIndex":
        place = StoreLocation.of(store)
        files = dataset_files(place, "records")
        index = cls(place, place.name, files.files)
        index._tell(files.problems)
        return index

    @classmethod
    def of_file(cls, path: str, *, moved: Mapping[str, str] | None = None) -> "RunIndex":
        """Return the runs in one parquet file; raise StoreError where there is none, or it cannot be read."""
        folder, _, name = path.rpartition("/")
        place = StoreLocation.of(folder or ".", moved=moved)
        path = redacted(path)
        file = RunFile(path=f"{place.root}/{name}", run_id=name.removesuffix(".parquet"), is_part=False)
        if not place.filesystem.get_file_info(file.path).is_file:
            raise StoreError(f"{path}: there is no such file, expected a parquet file of `pairbench run`")
        index = cls(place, path, [file])
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
            newest = list(self._unread)[-_AT_ONCE:]
            paths = {file.path for run_id in newest for file in self._unread[run_id] if file.is_compacted}
            also = [name for name, files in self._unread.items() if not paths.isdisjoint(file.path for file in files)]
            self._read_heads(dict.fromkeys([*newest, *also]))  # runs compacted into the same files cost nothing more

    def beginning(self, text: str) -> tuple[IndexedRun, ...]:
        self._read_heads([run_id for run_id in self._unread if run_id.startswith(text)])
        return tuple(self._heads[run_id] for run_id in sorted(self._heads, reverse=True) if run_id.startswith(text))

    def first(self, count: int, wanted: Callable[[IndexedRun], bool] = lambda _: True) -> tuple[IndexedRun, ...]:
        return tuple(itertools.islice(filter(wanted, self), count))

    def records(
        self, heads: Iterable[IndexedRun], *, cases: Collection[str] | None = None
    ) -> Reading[tuple[Record, ...]]:
        files = [file for head in heads for file in head.files]
        if not files:
            return Reading((), ())
        if self.is_file:
            return read_file(self.place, files[0])
        # By the names of the files: a renamed file still holds its run.
        where = None if cases is None else {"case": sorted(cases)}
        return read_records(self.place, {file.run_id for file in files}, where=where)

    def keys(self, heads: Iterable[IndexedRun], columns: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        heads = list(heads)
        files = [file for head in heads for file in head.files]
        compacted = any(file.is_compacted for file in files)
        reading = read_distinct(self.place, [*columns, "run_id"] if compacted else columns, files)
        self._tell(reading.problems)
        # By the names of the files: a run that closed meanwhile has another one than its parts that were listed.
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for file, of_file in reading.value.items():
            for row in of_file:
                rows[row["run_id"] if file.is_compacted else file.run_id].append(row)
        names = {head.run_id: dict.fromkeys(file.run_id for file in head.files) for head in heads}
        return {run_id: [row for name in of_run for row in rows.get(name, ())] for run_id, of_run in names.items()}

    def columns(self, heads: Iterable[IndexedRun], columns: Sequence[str]) -> dict[str, list[Any]]:
        run_ids = {file.run_id for head in heads for file in head.files}
        frame, problems = read_frame(self.place, columns=columns, run_ids=run_ids)
        self._tell(problems)
        return {name: frame[name].tolist() for name in columns}

    def _read_heads(self, unread: Iterable[str]) -> None:
        reading = read_distinct(self.place, _COLUMNS, [file for run_id in unread for file in self._unread.pop(run_id)])
        self._tell(reading.problems)
        rows: dict[str, list[tuple[RunFile, dict[str, Any]]]] = defaultdict(list)
        for file, of_file in reading.value.items():
            for row in of_file:
                rows[row["run_id"]].append((_of_run(file, row["run_id"]), row))
        for run_id, of_run in rows.items():
            before = self._heads[run_id].files if run_id in self._heads else ()
            first = of_run[0][1]
            self._heads[run_id] = IndexedRun(
                run_id=run_id,
                files=(*before, *dict.fromkeys(file for file, _ in of_run)),
                started_at=first["started_at"] or "",
                commit=first["commit"],
                branch=first["branch"],
                dirty=any(row["dirty"] for _, row in of_run),
                confirms=first["confirms"],
                devices=frozenset(row["device_name"] for _, row in of_run),
                has_series=any(row["mode"] is not None for _, row in of_run),
            )

    def _tell(self, problems: Iterable[str]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]


def _of_run(file: RunFile, run_id: str) -> RunFile:
    return replace(file, run_id=run_id, among=(run_id,)) if file.is_compacted else file


def named_moment(run_id: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=dt.UTC)
    except ValueError:
        return None
