"""Reads little of many runs, fast: one series over all of them, and what each one is.

A few rows or columns of one run's file, without decoding the rest of it.

A run's file has some 80 columns, and most are the same in all its rows: these come out of the footer's statistics.

The raw latencies of a run, by series, and nothing else of its samples.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairbench.model.latency import CALL, DEVICE, RESULT_COLUMNS, STREAM
from pairbench.model.record import COLUMNS, Record, Series
from pairbench.store.files.opened import OpenedFile
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.reader import read_frame
from pairbench.store.reading import SUITE, Files, Reading, dataset_files, read_each, renamed_rows, with_old_names
from pairbench.store.schema import from_columns, plain_values, schema_of


class NarrowFile:
    """One run's file, of which little is wanted."""

    def __init__(self, opened: OpenedFile) -> None:
        """Take a file whose footer has been read."""
        self._opened = opened
        # Several row groups, or a part of the rows, are not one run's file; then nothing is taken from the statistics.
        alone = opened.metadata.num_row_groups == 1 and opened.metadata.num_rows == opened.num_rows
        self._group = opened.metadata.row_group(0) if alone else None

    def columns(
        self, names: Sequence[str], wanted: Mapping[str, Collection[object]], moved: Mapping[str, str]
    ) -> dict[str, list[Any]]:
        """Return some columns of the rows that have the wanted values; a column that the file lacks is None.

        Args:
            names: The columns, of which there is one.
            wanted: For each column of text the values that rows must have.
            moved: The new name of each old one of a suite.
        """
        wanted = with_old_names(wanted, moved)
        keys, sought = self._split(list(wanted))
        if any(value not in wanted[name] for name, value in keys.items()):
            return {name: [] for name in names}
        constants, varying = self._split([name for name in names if name not in wanted])
        constants |= keys
        table = None
        if sought or varying:
            table = self._opened.read([*sought, *varying], wanted.get("case"))
            if sought:
                match = [pc.is_in(table.column(name), pa.array(list(wanted[name]), pa.string())) for name in sought]
                table = table.filter(functools.reduce(pc.and_, match))
        count = self._opened.num_rows if table is None else table.num_rows
        values_of = plain_values if count >= _MANY else pa.ChunkedArray.to_pylist
        found = {
            name: [constants[name]] * count if name in constants or table is None else values_of(table.column(name))
            for name in names
        }
        if SUITE in found:
            found[SUITE] = [moved.get(name, name) for name in found[SUITE]]
        return found

    def distinct(self, names: Sequence[str], moved: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the combinations of values that some columns have; none where there are no rows."""
        if not self._opened.num_rows:
            return []
        constants, varying = self._split(names)
        rows = self._opened.read(varying).group_by(varying).aggregate([]).to_pylist() if varying else [{}]
        rows = [{name: constants[name] if name in constants else row[name] for name in names} for row in rows]
        return renamed_rows(rows, moved)

    def _split(self, names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        constants: dict[str, Any] = {}
        varying: list[str] = []
        for name in names:
            if name not in self._opened.places:
                constants[name] = self._opened.checked(name, None)
            elif (found := self._constant(name)) is not None:
                (constants[name],) = found
            else:
                varying.append(name)
        return constants, varying

    def _constant(self, name: str) -> tuple[Any] | None:
        """Return the one value of a column where the statistics show that it has no other."""
        if self._group is None:
            return None
        column = self._group.column(self._opened.places[name])
        # NaN is in no minimum, so floats that differ from it would pass for constant; a list has a minimum of its own kind.
        if column.physical_type != _PLAIN.get(name) or column.path_in_schema != name:
            return None
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        if statistics.null_count == self._group.num_rows:
            return (self._opened.checked(name, None),)
        if statistics.null_count or not statistics.has_min_max:
            return None
        try:
            least, most = statistics.min, statistics.max
        except ValueError:  # no UTF-8, which is said where it is decoded
            return None
        return (self._opened.checked(name, least),) if least == most else None


_MANY = 64
"""Rows from which on it pays to take a column's values all at once; a run has few of one case."""
_PHYSICAL = {"string": "BYTE_ARRAY", "int64": "INT64", "bool": "BOOLEAN"}
_PLAIN = {field.name: _PHYSICAL[str(field.type)] for field in schema_of(Record) if str(field.type) in _PHYSICAL}
"""What parquet has for the values of each column whose statistics can be believed."""


Floats = NDArray[np.float64]
LatencySamples = Mapping[str, Floats]
"""Samples in ns by the name of the latency, `device`, `stream` or `call`; without those that could not be taken."""


def latency_samples(store: str | Path | StoreLocation, run_id: str) -> Reading[dict[Series, LatencySamples]]:
    """Return the latencies of a run that its statistics rest on; none where its samples have been pruned.

    What was taken while the GPU throttled is left out of a round where it was measured again, as in the statistics.
    """
    place = StoreLocation.of(store)
    if not any(file.run_id == run_id for file in place.files("samples")):
        return Reading({}, ())
    wanted = [*COLUMNS, "throttled", "call_ns", "device_ns", "stream_ns"]
    frame, problems = read_frame(place, "samples", columns=wanted, run_ids=[run_id])
    found: dict[Series, dict[str, list[Floats]]] = {}
    for *key, throttled, call_ns, device_ns, stream_ns in frame.itertuples(index=False, name=None):
        good = ~np.asarray(throttled, dtype=bool)
        rounds = found.setdefault(Series(**dict(zip(COLUMNS, key, strict=True))), {})
        for name, taken in _taken(call_ns, device_ns, stream_ns):
            kept = taken[good] if 2 * good.sum() > len(good) else taken
            rounds.setdefault(name, []).append(kept[~np.isnan(kept)])
    joined: dict[Series, LatencySamples] = {
        series: {name: np.concatenate(several) for name, several in rounds.items()} for series, rounds in found.items()
    }
    return Reading(joined, problems)


def _taken(call_ns: object, device_ns: object, stream_ns: object) -> Iterator[tuple[str, Floats]]:
    yield CALL.name, np.asarray(call_ns, dtype=np.float64)
    # Null where the latency could not be taken in this round, and of a stream in most blocks.
    for latency, values in ((DEVICE, device_ns), (STREAM, stream_ns)):
        if isinstance(values, np.ndarray | list | tuple):
            yield latency.name, np.asarray(values, dtype=np.float64)


TREND_COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty"),
    *("suite", "operator", "definition_hash", "implementation_hash", "case", "tier", "implementation", "role", "mode"),
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "status", "reason"),
    *RESULT_COLUMNS,
)
"""What a history of one series needs; each column that varies within a run adds some 0.1 s for a thousand runs."""

Rows = list[dict[str, Any]]
Columns = dict[str, list[Any]]

_KNOWN = frozenset(schema_of(Record).names)
_RUN = "run_id"
_THREADS = 2


def read_series(
    store: str | Path | StoreLocation,
    *,
    where: Mapping[str, object],
    columns: Collection[str] = TREND_COLUMNS,
    run_ids: Collection[str] | None = None,
) -> Reading[tuple[Record, ...]]:
    """Return what a store has of one series, or of a few, oldest run first.

    Args:
        store: A folder or a URL.
        where: For each column of text the value, or the collection of values, that rows must have.
        columns: What to read, besides the run's id; all others are None in the records. The fewer, the faster.
        run_ids: Files of other runs are not opened.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    wanted = {name: (value,) if isinstance(value, str) else tuple(_each(value)) for name, value in where.items()}
    if unknown := sorted({*columns, *wanted} - _KNOWN):
        raise ValueError(f"records have no column {unknown[0]!r}, expected one of {', '.join(sorted(_KNOWN))}")
    names = [item.name for item in fields(Record) if item.name in columns or item.name in wanted or item.name == _RUN]
    place = StoreLocation.of(store)
    files = dataset_files(place, "records")
    files = files if run_ids is None else files.of_runs(run_ids)
    return _records(place, files, lambda file: NarrowFile(file).columns(names, wanted, place.moved))


def read_file(place: StoreLocation, file: RunFile) -> Reading[tuple[Record, ...]]:
    """Return everything in one file."""
    names = [item.name for item in fields(Record)]
    return _records(place, [file], lambda opened: NarrowFile(opened).columns(names, {}, place.moved))


def read_distinct(
    store: str | Path | StoreLocation, columns: Sequence[str], files: Iterable[RunFile]
) -> Reading[dict[RunFile, Rows]]:
    """Return for each file the combinations of values that some columns have in it."""
    place = StoreLocation.of(store)
    return read_each(
        place, "records", list(files), lambda file: NarrowFile(file).distinct(columns, place.moved), threads=_THREADS
    )


def _records(
    place: StoreLocation, files: Files | list[RunFile], read: Callable[[OpenedFile], Columns]
) -> Reading[tuple[Record, ...]]:
    by_file, problems = read_each(place, "records", files, read, threads=_THREADS)
    several = [columns for columns in by_file.values() if columns[_RUN]]
    if not several:
        return Reading((), problems)
    whole = {name: list(itertools.chain.from_iterable(one[name] for one in several)) for name in several[0]}
    run_ids = whole[_RUN]
    if any(file.is_compacted for file in by_file) and any(map(operator.gt, run_ids, run_ids[1:])):
        # What is compacted lies by device model and month, and runs of other device models fall in between.
        order = sorted(range(len(run_ids)), key=run_ids.__getitem__)
        whole = {name: [values[row] for row in order] for name, values in whole.items()}
    return Reading(from_columns(whole, Record), problems)


def _each(values: object) -> Iterable[object]:
    if not isinstance(values, Collection):
        raise TypeError(f"where has {values!r}, expected a text or a collection of texts")
    return values
