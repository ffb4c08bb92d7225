"""Reads many files of a store, each once, also while runs close; a file that cannot be read is named and costs only itself.

Suites may lie elsewhere now than when runs were made. Series go by the names of suites, so rows are read under the new names.

Columns that files of earlier versions lack are derived from their other columns, so that history goes on. Medians of the device and the
host are in the files of all versions, so ratios of them need nothing else. The device's rounds and intervals come from the raw samples,
where these have not been pruned; an interval is Student's t over the rounds alone, for a bootstrap would take minutes. The host's rounds are
not derived: its samples were taken in another way, behind a flush.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairbench.errors import EmptyStoreError
from pairbench.model.latency import DEVICE, ENDS, HOST
from pairbench.model.plan import BASELINE
from pairbench.model.record import Series
from pairbench.stats import percentiles, rounds_interval
from pairbench.store.compacted import Files, choose, open_file
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.opened import BROKEN, OpenedFile, doubled, problem_of
from pairbench.store.schema import SCHEMA_VERSION, TEXT

SUITE = "suite"


def with_old_names(where: Mapping[str, object], moved: Mapping[str, str]) -> dict[str, Any]:
    """Return a filter of columns by a value or a collection of values, in which suites have all their names."""
    if SUITE not in where or not moved:
        return dict(where)
    wanted = where[SUITE]
    assert isinstance(wanted, Collection), f"{wanted!r} filters suites, expected a name or a collection of names"
    names = {moved.get(name, name) for name in ([wanted] if isinstance(wanted, str) else wanted)}
    return {**where, SUITE: sorted(names | {old for old, new in moved.items() if new in names})}


def current_name(text: str, moved: Mapping[str, str]) -> str:
    """Return the name of a suite, or of something in it such as `file::operator`, with the suite's new name."""
    suite, separator, rest = text.partition("::")
    return f"{moved.get(suite, suite)}{separator}{rest}"


def renamed_table(table: pa.Table, moved: Mapping[str, str]) -> pa.Table:
    if SUITE not in table.column_names or not moved:
        return table
    place = table.column_names.index(SUITE)
    names = table.column(SUITE).cast(pa.string())
    known = pc.index_in(names, pa.array(list(moved), pa.string()))
    if known.null_count == len(known):
        return table
    names = pc.coalesce(pc.take(pa.array(list(moved.values()), pa.string()), known), names)
    return table.set_column(place, table.schema.field(SUITE), names.cast(TEXT))


def renamed_series(series: Series, moved: Mapping[str, str]) -> Series:
    return replace(series, suite=moved[series.suite]) if series.suite in moved else series


_THREADS, _THREADS_REMOTE = 4, 32  # files of an object store are waited for side by side
_ROW = 500  # about the bytes of a row of a few columns as a dict
_LISTINGS = 10
"""Listings in which a run is looked for whose files were gone as they were read; it closes once, so one is enough."""

Value = TypeVar("Value")


class Reading(NamedTuple, Generic[Value]):
    """A value, and a sentence for each file that could not be read."""

    value: Value
    problems: tuple[str, ...]


def stored_files(place: StoreLocation, dataset: str) -> Files:
    listing = place.listing(dataset, ".parquet")
    chosen = choose(place, run_files(listing.paths))
    return replace(chosen, problems=(*listing.problems, *chosen.problems))


def dataset_files(place: StoreLocation, dataset: str) -> Files:
    """Return a dataset's files; raise EmptyStoreError where there are none."""
    files = stored_files(place, dataset)
    if not files.files:
        problems = "".join(f"; {problem}" for problem in files.problems)
        raise EmptyStoreError(
            f"store {place.name!r} has no {dataset}: there is no parquet file below {place.root}/{dataset}; "
            f"make some with `pairbench run`, or name another store with --store{problems}"
        )
    return files


def read_each(
    place: StoreLocation,
    dataset: str,
    files: Files,
    read: Callable[[OpenedFile], Value],
    *,
    threads: int = _THREADS,
    key: Hashable = None,
) -> Reading[dict[RunFile, Value]]:
    """Call `read` with each file, and return the results with a sentence for each file that cannot be read."""
    # With a `key`, which has all that a result depends on beside the file, results are cached in the location's `tables`.
    # A run may close meanwhile, and then its parts are gone: it is listed again, and read from the one file that they became. A part
    # beside its sound one file has the same rows, and is left out. `threads` is for a local store.
    problems = list(files.problems)
    pending = list(files.files)
    results: dict[RunFile, Value | str] = {}
    newer: set[int] = set()
    for attempt in range(_LISTINGS + 1):
        with ThreadPoolExecutor(threads if place.is_local else _THREADS_REMOTE) as pool:
            tried = list(pool.map(lambda file: _attempt(place, dataset, file, read, newer, key), pending))
        gone = [file for file, result in zip(pending, tried, strict=True) if result is None]
        results |= {file: result for file, result in zip(pending, tried, strict=True) if result is not None}
        if not gone:
            break
        if attempt == _LISTINGS:
            problems += [f"{file.path}: was gone as it was read, left out" for file in gone]
            break
        run_ids = {run_id for file in gone for run_id in file.run_ids}
        # All of a run's own files are read again: parts may have become one file. The rows that were read of a compacted file stay.
        results = {file: result for file, result in results.items() if file.is_compacted or file.run_id not in run_ids}
        read_already = {(file.folder, run_id) for file in results if file.is_compacted for run_id in file.run_ids}
        pending = []
        for file in stored_files(place, dataset).of_runs(run_ids).files:
            unread = file.only({run_id for run_id in file.run_ids if (file.folder, run_id) not in read_already})
            pending += [unread] if unread is not None else []
    problems += [result for result in results.values() if isinstance(result, str)]
    problems += [
        f"store {place.name!r}: some files are of schema version {version}, which a newer pairbench wrote; this one knows {SCHEMA_VERSION}, and leaves out what is new; update it"
        for version in sorted(newer)
    ]
    values = {file: result for file, result in results.items() if not isinstance(result, str)}
    sound = {file.path for file in values}
    superfluous = {part for whole, parts in doubled(values).items() if whole in sound for part in parts}
    # Rows of compacted files are sorted by the caller; those of runs' own files come by device model.
    compacted = any(file.is_compacted for file in values)
    ordered = sorted(values, key=lambda file: ("" if compacted else file.run_id, file.path))
    return Reading({file: values[file] for file in ordered if file.path not in superfluous}, tuple(problems))


def _attempt(
    place: StoreLocation,
    dataset: str,
    file: RunFile,
    read: Callable[[OpenedFile], Value],
    newer: set[int],
    key: Hashable,
) -> Value | str | None:
    """Return the result of `read`, a sentence where the file cannot be read, or None where it is gone; add unknown versions to `newer`."""
    problem = ""
    if kept := place.tables and key and place.tables.get((dataset, file, key)):
        return cast(Value, kept[0])
    # A part of an object store may seem damaged: another round replaces it, and its size may be that of the earlier one.
    for _ in range(4 if file.is_part and not place.is_local else 1):
        try:
            opened = open_file(place, file, dataset)
            if opened.version > SCHEMA_VERSION:
                newer.add(opened.version)
            result = read(opened)
            if place.tables and key and opened.version <= SCHEMA_VERSION:  # of a newer one each reading has to tell
                rows: Any = result
                place.tables.put(
                    (dataset, file, key), (result,), rows.nbytes if isinstance(rows, pa.Table) else _ROW * len(rows)
                )
            return result
        except FileNotFoundError:
            return None
        except BROKEN as error:
            problem = problem_of(file.path, error)
    return problem


SINCE = 4
"""The first version whose files have all these columns."""

_KEYS = ("run_id", "device_uuid", "suite", "case", "mode", "implementation")
_MEDIANS = (DEVICE.p50, HOST.p50)
_HAS_DEVICE = "has_device"
_FROM_MEDIANS = ("bound", DEVICE.speedup, HOST.speedup)
_LISTS = {"call_round_p50_ns": "round_p50_ns", "call_round_p95_ns": "round_p95_ns"}
"""The names of columns in earlier versions."""
_INTERVALS = tuple(f"{name}{end}" for name in (DEVICE.p50, DEVICE.p95, DEVICE.speedup) for end in ENDS[1:])
_FROM_SAMPLES = (*_INTERVALS, *DEVICE.rounds)
DERIVED = frozenset((*_FROM_MEDIANS, *_LISTS, *_FROM_SAMPLES))

_Key = tuple[Any, ...]
_Values = dict[str, Any]


def columns_needed(file: OpenedFile, names: Iterable[str]) -> tuple[str, ...]:
    """Return the further columns of a file from which those among `names` that it lacks are derived; none for a newer file."""
    wanted = [*names]
    if file.dataset != "records" or file.version >= SINCE or DERIVED.isdisjoint(wanted):
        return ()
    needed = (*_KEYS, *_MEDIANS, *(source for name, source in _LISTS.items() if name in wanted))
    return tuple(name for name in needed if name not in wanted)


def with_derived(
    table: pa.Table, place: StoreLocation, file: OpenedFile, names: Iterable[str], *, samples: bool = True
) -> pa.Table:
    """Return rows of a file of an old version with derived values in the columns that it lacks; those from raw samples only if `samples`."""
    wanted = DERIVED.intersection(names)
    if not len(table) or not columns_needed(file, wanted):
        return table
    values = _from_medians(file.read([*_KEYS, *_MEDIANS]))
    if samples and wanted.intersection(_FROM_SAMPLES):
        for key, derived in _from_samples(place, file.path.replace("/records/", "/samples/", 1)).items():
            # A record without a device latency has rounds without device samples.
            if key in values and values[key].pop(_HAS_DEVICE, None):
                values[key].update(derived)
    keys = list(zip(*(table.column(name).to_pylist() for name in _KEYS), strict=True))
    for name in DERIVED.intersection(table.column_names):
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        if name not in _LISTS:
            column = pa.array([values.get(key, {}).get(name) for key in keys], field.type)
            table = table.set_column(index, field, column)
        elif _LISTS[name] in table.column_names:
            table = table.set_column(index, field, table.column(_LISTS[name]))
    return table


def _from_medians(records: pa.Table) -> dict[_Key, _Values]:
    rows = {tuple(row[name] for name in _KEYS): row for row in records.select([*_KEYS, *_MEDIANS]).to_pylist()}
    values: dict[_Key, _Values] = {}
    for key, row in rows.items():
        device, host = (row[name] for name in _MEDIANS)
        of_key: _Values = {_HAS_DEVICE: bool(device)}
        if device and host:
            of_key["bound"] = "host" if host > device else "device"
        control = rows.get((*key[:-1], BASELINE))
        for latency, name in ((DEVICE, DEVICE.p50), (HOST, HOST.p50)):
            if control is not None and key[-1] != BASELINE and control[name] and row[name]:
                of_key[latency.speedup] = control[name] / row[name]
        values[key] = of_key
    return values


def _from_samples(place: StoreLocation, path: str) -> dict[_Key, _Values]:
    columns = [*_KEYS, "round", "device_ns", "throttled"]
    try:
        rows = OpenedFile(place, path, "samples").read(columns).to_pylist()
    except BROKEN:  # the samples were pruned, or are damaged: there are no rounds, and the medians stay
        return {}
    by_key: defaultdict[_Key, dict[int, tuple[float, ...]]] = defaultdict(dict)  # the percentiles of each round
    for row in rows:
        taken = without_throttled(row["device_ns"], row["throttled"])
        if taken.size:
            by_key[tuple(row[name] for name in _KEYS)][row["round"]] = percentiles(taken, (50, 95))
    return {key: _of_rounds(rounds, by_key.get((*key[:-1], BASELINE), {})) for key, rounds in list(by_key.items())}


def _of_rounds(rounds: Mapping[int, tuple[float, ...]], control: Mapping[int, tuple[float, ...]]) -> _Values:
    p50, p95 = (np.array([rounds[index][place] for index in sorted(rounds)]) for place in (0, 1))
    both = sorted(rounds.keys() & control.keys()) if control is not rounds else []
    return {
        **dict(zip(DEVICE.rounds, (p50.tolist(), p95.tolist()), strict=True)),
        **_ends(DEVICE.p50, np.log(p50)),
        **_ends(DEVICE.p95, np.log(p95)),
        **_ends(DEVICE.speedup, np.log([control[index][0] / rounds[index][0] for index in both])),
    }


def _ends(name: str, logs: Any) -> _Values:
    """Return the ends of the 95 % interval of the rounds' geometric mean; none for fewer than two."""
    if len(logs) < 2:
        return {}
    _, low, high = rounds_interval(logs)
    return {f"{name}_low": low, f"{name}_high": high}


def without_throttled(values: Any, throttled: Any) -> Any:
    """Return the samples of a round without those taken while the GPU throttled, where it was measured again."""
    if values is None:
        return np.empty(0)
    taken, good = np.asarray(values, dtype=np.float64), ~np.asarray(throttled, dtype=bool)
    return taken[good] if 2 * good.sum() > len(good) else taken
