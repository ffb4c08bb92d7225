"""A file with the records of many runs of one device model and month; a reader of one case reads only a part of it.

It is parquet with the columns of the runs' own files and one more, `row`: the index that a row had in its run's file. Rows are
sorted by case, so that one series over all runs is in one row group. The footer names the runs, with the number of rows of
each, and the cases of each group. Beside the checksum of the whole file it has one for the footer and for each group:

    groups | "pairbench:groups:", 4 bytes for each group, 4 bytes for these and the footer | the whole file's checksum | footer
"""

import hashlib
import itertools
import json
import mmap
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairbench.errors import StoreFailedError
from pairbench.model.plain import Value, grouped
from pairbench.store import opened
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.opened import BROKEN, CHANGED, WIDTH, OpenedFile, checksum_of, footer_of, problem_of, read_content
from pairbench.store.schema import UnsoundError, texts_of

ROW = "row"
GROUP_ROWS = 8192
"""Rows of a group. A reader of one case reads one group of a file and the footer, which has some 10 kB for each group."""
_KEY = b"pairbench.compacted"
_MARK = b"pairbench:groups:"
_ORDER = ("run_id", "mode", "implementation", "suite", "case")  # the sort keys, the most significant last
_STATISTICS = ["run_id", "suite", "case", "implementation"]
_TAIL = 2**19  # the bytes at the end of a file that are read first: nearly always they hold the footer


class CompactedFile(OpenedFile):
    """Some runs of a compacted file, all where `file` names none. Groups are read as they are asked for, and verified."""

    _decoded_at_once = ()

    def __init__(self, place: StoreLocation, file: RunFile, dataset: str) -> None:
        self._place = place
        super().__init__(place, file.path, dataset)
        content = _content_of(self.metadata)
        self.runs: dict[str, int] = content["runs"]  # the number of rows of each run in the file
        self._cases: list[list[str]] = content["cases"]
        if len(self._cases) != self.metadata.num_row_groups or sum(self.runs.values()) != self.metadata.num_rows:
            raise UnsoundError("does not hold the runs that it names")
        wanted = set(file.among) & self.runs.keys()
        self._wanted = None if not file.among or len(wanted) == len(self.runs) else wanted
        self._fetched: set[int] = set()

    @property
    def num_rows(self) -> int:
        return sum(self.runs.values() if self._wanted is None else (self.runs[run_id] for run_id in self._wanted))

    def raw(self) -> pa.Table:
        """Return the wanted runs as they were written, one after another, with the column `row`."""
        table = self.as_written(self._reader().read_row_groups(self.fetch(None), use_threads=False))
        metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != _KEY}
        return self._ordered(table).replace_schema_metadata(metadata)

    def _load(self, place: StoreLocation) -> tuple[pa.Buffer, bool, pq.FileMetaData | None]:
        with opened.read_errors(place, self.path):
            # The stream stays open: an object store is asked for its size once, and a local file can be deleted meanwhile.
            self._stream = place.filesystem.open_input_file(self.path)
            size = self._stream.size()
            opened.check_size(size)
            tail = self._stream.read_at(min(size, _TAIL), max(size - _TAIL, 0))
            needed = min(size, len(tail) - footer_of(tail) + _TAIL // 8)
            if needed > len(tail):
                tail = self._stream.read_at(needed, size - needed)
        metadata = pq.read_metadata(pa.BufferReader(tail))
        self._end, self._checksums = _checked_tail(tail, size, metadata.num_row_groups)
        self._memory = mmap.mmap(-1, size)  # only the pages that are written take memory
        self._memory[size - len(tail) :] = tail
        return pa.py_buffer(self._memory), True, metadata

    def _decoded(self, stored: Sequence[str], cases: Collection[object] | None) -> pa.Table:
        groups = self.fetch(cases)
        names = list(dict.fromkeys([*stored, "run_id", "case", ROW]))
        table = self._reader(names).read_row_groups(groups, columns=names, use_threads=False)
        if cases is not None:  # a group has many cases, and each row costs
            table = table.filter(pc.is_in(table.column("case"), pa.array(map(str, cases), pa.string())))
        return self._ordered(table).select(list(stored))

    def _ordered(self, table: pa.Table) -> pa.Table:
        """Return the rows of the wanted runs, oldest run first, in the order of the runs' own files."""
        if self._wanted is not None:
            table = table.filter(pc.is_in(table.column("run_id"), pa.array(sorted(self._wanted), pa.string())))
        if not table.num_rows:
            return table
        return table.take(pa.array(np.lexsort((table.column(ROW).to_numpy(), ranks(table.column("run_id"))))))

    def fetch(self, cases: Collection[object] | None) -> list[int]:
        """Read and verify the groups that may have some cases, or all, and return their numbers."""
        groups = [
            number
            for number, (first, last) in enumerate(self._cases)
            if cases is None or any(first <= str(case) <= last for case in cases)
        ]
        missing = [number for number in groups if number not in self._fetched]
        if missing:
            opened.check_footer(self.metadata, self.dataset, groups)
            starts = [*(_start(self.metadata.row_group(number)) for number in range(len(self._cases))), self._end]
            with opened.read_errors(self._place, self.path):
                # Groups beside one another are read at once: their numbers less their places in the list are the same.
                for _, pairs in itertools.groupby(enumerate(missing), key=lambda pair: pair[1] - pair[0]):
                    numbers = [number for _, number in pairs]
                    begin, end = starts[numbers[0]], starts[numbers[-1] + 1]
                    self._memory[begin:end] = self._stream.read_at(end - begin, begin)
        for number in missing:
            if checksum_of(memoryview(self._memory)[starts[number] : starts[number + 1]]) != self._checksums[number]:
                raise UnsoundError(CHANGED)
            self._fetched.add(number)
        return groups


def open_file(place: StoreLocation, file: RunFile, dataset: str) -> OpenedFile:
    return CompactedFile(place, file, dataset) if file.is_compacted else OpenedFile(place, file.path, dataset)


def compacted_name(runs: Mapping[str, int]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(runs.items())).encode()).hexdigest()[:16]
    return f"{max(runs)}.compact-{digest}.parquet"


def publish_runs(place: StoreLocation, folder: str, tables: Iterable[pa.Table]) -> tuple[str, dict[str, int], int]:
    """Write whole runs, as `raw` returns them, to a compacted file in a folder, read it back, and return its path, its runs and its bytes."""
    table = pa.concat_tables(
        table if ROW in table.column_names else table.append_column(ROW, pa.array(np.arange(len(table)), pa.int64()))
        for table in tables
    )
    if len(table) > opened.MOST_ROWS["records"]:
        raise UnsoundError(f"{len(table):,} rows, expected at most {opened.MOST_ROWS['records']:,}")
    runs = _rows_by_run(table)
    table = table.take(pa.array(np.lexsort([ranks(table.column(name)) for name in _ORDER])))
    cases = table.column("case").to_pylist()
    bounds = _bounds(cases)
    named = {"runs": runs, "cases": [[cases[begin] or "", cases[end - 1] or ""] for begin, end in bounds]}
    metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(named).encode()}
    table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    options = {"compression": "lz4", "use_dictionary": texts_of(table.schema), "write_page_checksum": True}
    with pq.ParquetWriter(sink, table.schema, write_statistics=_STATISTICS, **options) as writer:
        for begin, end in bounds:
            writer.write_table(table.slice(begin, end - begin), row_group_size=end - begin)
    path, content = f"{folder}/{compacted_name(runs)}", _sealed_by_groups(sink.getvalue())
    this = f"store {place.name!r}: {path}"
    place.publish(path, content)
    (file,) = run_files([path])
    try:
        back = _rows_by_run(CompactedFile(place, file, "records").read(["run_id"]))
    except BROKEN as error:
        raise StoreFailedError(f"{this} cannot be read back: {error}") from error
    if back != runs:
        raise StoreFailedError(f"{this} does not come back as it was written; nothing was deleted")
    return path, runs, content.size


def _rows_by_run(table: pa.Table) -> dict[str, int]:
    counts = pc.value_counts(table.column("run_id")).to_pylist()
    return dict(sorted((str(count["values"]), int(count["counts"])) for count in counts))


def _bounds(cases: Iterable[str | None]) -> list[tuple[int, int]]:
    """Return where groups begin and end: each case is in one group, unless it has more rows than a group."""
    bounds: list[tuple[int, int]] = []
    begin = end = 0
    for _, rows in itertools.groupby(cases):
        count = sum(1 for _ in rows)
        if end > begin and end + count - begin > GROUP_ROWS:
            bounds.append((begin, end))
            begin = end
        end += count
    return [*bounds, (begin, end)] if end > begin else bounds


def ranks(column: pa.ChunkedArray) -> Any:
    """Return the rank of each value of a column of text among all, in the order of UTF-8; nulls come first."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    ranks = pc.rank(whole.dictionary, tiebreaker="dense").take(whole.indices)
    return ranks.fill_null(0).to_numpy()


def _content_of(metadata: pq.FileMetaData) -> dict[str, Any]:
    try:
        content = json.loads((metadata.metadata or {})[_KEY])
        counts = content["runs"].items()
        sound = counts and all(isinstance(run, str) and isinstance(rows, int) and rows > 0 for run, rows in counts)
        if sound and all(first <= last for first, last in content["cases"]):
            return dict(content)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise UnsoundError("does not name the runs that it holds")


def _start(group: Any) -> int:
    column = group.column(0)
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)


def _sealed_by_groups(content: pa.Buffer) -> pa.Buffer:
    """Return the content of a parquet file with checksums of each group, of the footer, and of the whole file."""
    view = memoryview(content)
    footer = footer_of(view)
    metadata = pq.read_metadata(pa.BufferReader(content))
    starts = [*(_start(metadata.row_group(number)) for number in range(metadata.num_row_groups)), footer]
    checksums = b"".join(checksum_of(view[begin:end]) for begin, end in itertools.pairwise(starts))
    last = checksum_of(checksums, view[footer:])
    return opened.sealed(pa.py_buffer(b"".join((view[:footer], _MARK, checksums, last, view[footer:]))))


def _checked_tail(tail: bytes, size: int, groups: int) -> tuple[int, list[bytes]]:
    """Return the offset at which the groups end, and the checksum of each; raise UnsoundError where the footer has changed."""
    footer = footer_of(tail)
    last = footer - opened.SEAL - WIDTH
    begin = last - groups * WIDTH
    mark = begin - len(_MARK)
    if mark < 0 or tail[mark:begin] != _MARK:
        why = "it was not made by `pairbench store compact`, or has changed"
        raise UnsoundError(f"has no checksums of its parts: {why}")
    if checksum_of(tail[begin:last], tail[footer:]) != tail[last : last + WIDTH]:
        raise UnsoundError(CHANGED)
    checksums = [tail[place : place + WIDTH] for place in range(begin, last, WIDTH)]
    return size - len(tail) + mark, checksums


class Files(Value):
    """The files of a dataset from which each run is read once, oldest run first."""

    files: tuple[RunFile, ...]
    left: tuple[RunFile, ...] = ()  # files all of whose rows are in `files`, too
    runs: dict[str, dict[str, int]] = field(default_factory=dict)
    """The runs of each compacted file, by its path, with the number of rows of each."""
    problems: tuple[str, ...] = ()
    """A sentence for each entry that could not be listed, and each compacted file whose runs could not be read."""

    def is_indexed(self, place: StoreLocation) -> bool:
        return read_index(place) == self.runs

    def write_index(self, place: StoreLocation) -> None:
        if not self.is_indexed(place):
            names = {path[len(place.root) + 1 :]: of_file for path, of_file in self.runs.items()}
            place.publish(f"{place.root}/{INDEX}", pa.py_buffer(json.dumps(names, sort_keys=True).encode()))

    def of_runs(self, run_ids: Iterable[str]) -> "Files":
        wanted = set(run_ids)
        kept = (file.only(wanted) for file in self.files)
        return replace(self, files=tuple(file for file in kept if file is not None))

    @property
    def run_ids(self) -> list[str]:
        return sorted({run_id for file in self.files for run_id in file.run_ids})


def choose(place: StoreLocation, files: Sequence[RunFile]) -> Files:
    """Return which files of a dataset, or of some of its folders, to read for which run."""
    runs, problems = _compacted_runs(place, [file for file in files if file.is_compacted])
    # Of files with the same run the one with most rows, for rows are only ever added; of equal ones the compacted one with most runs.
    best: dict[tuple[str, str], tuple[int, str]] = {}
    for path in sorted(runs, key=lambda path: (-len(runs[path]), path)):
        folder = path.rpartition("/")[0]
        for run_id, rows in runs[path].items():
            if (folder, run_id) not in best or rows > best[folder, run_id][0]:
                best[folder, run_id] = (rows, path)
    for file in files:
        key = (file.folder, file.run_id)
        if key in best and file.path == file.whole:
            rows = sound_rows(place, file.path).get(file.run_id, 0)
            best[key] = max(best[key], (rows, file.path), key=lambda held: held[0])
    kept: list[RunFile] = []
    left: list[RunFile] = []
    for file in files:
        if not file.is_compacted:
            _, path = best.get((file.folder, file.run_id), (0, file.whole))  # a part goes with the run's own file
            (kept if path == file.whole else left).append(file)
        elif file.path in runs:
            of_file = runs[file.path]
            among = tuple(run_id for run_id in of_file if best[file.folder, run_id][1] == file.path)
            (kept if among else left).append(replace(file, run_id=max(among or of_file), among=among))
    kept.sort(key=lambda file: (file.run_id, file.path))
    return Files(files=tuple(kept), left=tuple(left), runs=runs, problems=tuple(problems))


def _compacted_runs(place: StoreLocation, files: Sequence[RunFile]) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return the runs of compacted files by their paths, from the index or the footer, and a sentence for each that cannot be read."""
    index = read_index(place) if files else {}
    runs: dict[str, dict[str, int]] = {}
    problems: list[str] = []
    for file in files:
        try:
            runs[file.path] = index.get(file.path) or CompactedFile(place, file, "records").runs
        except FileNotFoundError:  # its runs are in another by now
            continue
        except BROKEN as error:
            problems.append(problem_of(file.path, error))
    return runs, problems


INDEX = "records/_compacted.json"
"""The runs of the compacted files, so that not each footer need be read. It may be deleted: `pairbench store compact` makes it again."""


def read_index(place: StoreLocation) -> dict[str, dict[str, int]]:
    """Return the runs of compacted files by the files' paths, as stored, without entries that do not fit their names."""
    with suppress(StoreFailedError, TypeError, AttributeError, *BROKEN):
        path = f"{place.root}/{INDEX}"
        content = place.held.get(path) or read_content(place, path)
        if not place.is_local:
            place.held.put(path, content)
        stored = json.loads(content.to_pybytes()).items()
        return {f"{place.root}/{name}": runs for name, runs in stored if compacted_name(runs) == name.split("/")[-1]}
    return {}


def doubled(files: Iterable[RunFile]) -> dict[str, list[str]]:
    """Return the parts that lie beside the one file that was made of them, by that file's path."""
    files = list(files)
    wholes = {file.path for file in files if not file.is_part}
    return grouped((file.whole, file.path) for file in files if file.is_part and file.whole in wholes)


def tidy(place: StoreLocation, files: Iterable[RunFile]) -> None:
    """Delete doubled parts where the one file is sound and holds as many rows: a run was killed while it closed. Safe beside readers."""
    for whole, parts in doubled(files).items():
        with suppress(StoreFailedError):
            rows = [sum(sound_rows(place, path).values()) for path in (whole, *parts)]
            if all(rows) and rows[0] >= sum(rows[1:]):
                place.delete(parts)


def sound_rows(place: StoreLocation, path: str) -> dict[str, int]:
    """Read a whole file, and return the number of rows of each run in it; empty for a damaged file."""
    (file,) = run_files([path])
    with suppress(*BROKEN):
        whole = open_file(place, file, path[len(place.root) + 1 :].partition("/")[0])
        if isinstance(whole, CompactedFile):
            whole.fetch(None)
            return whole.runs
        return {file.run_id: whole.num_rows if whole.sealed else len(whole.raw())}
    return {}
