"""Reads many files of a store, each once, also while runs close; a file that cannot be read is named and costs only itself.

Columns that files of earlier versions lack are derived from their other columns, so that history goes on. Medians of the device and the
host are in the files of all versions, so ratios of them need nothing else. The device's rounds and intervals come from the raw samples,
where these have not been pruned; an interval is Student's t over the rounds alone, for a bootstrap would take minutes. The host's rounds are
not derived: its samples were taken in another way, behind a flush.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pairbench.errors import EmptyStoreError
from pairbench.model.plan import BASELINE
from pairbench.model.record import DEVICE, ENDS, HOST
from pairbench.stats import percentiles, rounds_interval
from pairbench.store.compacted import Files, choose, doubled, open_file
from pairbench.store.files import Reading, Value
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.opened import BROKEN, OpenedFile, problem_of
from pairbench.store.schema import SCHEMA_VERSION

_Read = Callable[[OpenedFile], Value]
_THREADS_REMOTE = 32  # files of an object store are waited for side by side
_ROW = 500  # about the bytes of a row of a few columns as a dict
_LISTINGS = 10  # listings in which a run is sought whose files were gone when read; it closes once, so one is enough


def stored_files(place: StoreLocation, dataset: str) -> Files:
    listing = place.listing(dataset, ".parquet")
    chosen = choose(place, run_files(listing.value))
    return replace(chosen, problems=(*listing.problems, *chosen.problems))


def dataset_files(place: StoreLocation, dataset: str) -> Files:
    """Return a dataset's files; raise EmptyStoreError where there are none."""
    files = stored_files(place, dataset)
    if not files.files:
        problems = "".join(f"; {problem}" for problem in files.problems)
        nothing = f"store {place.name!r} has no {dataset}: there is no parquet file below {place.root}/{dataset}"
        make = "make some with `pairbench run`, or name another store with --store"
        raise EmptyStoreError(f"{nothing}; {make}{problems}")
    return files


def read_each(
    place: StoreLocation, dataset: str, files: Files, read: _Read[Value], *, threads: int = 4, key: Hashable = None
) -> Reading[dict[RunFile, Value]]:
    """Call `read` with each file, and return the results with a sentence for each file that cannot be read."""
    # With a `key`, which has all that a result depends on beside the file, results are cached in the location's `tables`.
    # A run may close meanwhile, and then its parts are gone: it is listed again, and read from the one file that they became. A part
    # beside its sound one file has the same rows, and is left out. `threads` is for a local store.
    problems, pending = list(files.problems), list(files.files)
    results: dict[RunFile, Value | str] = {}
    newer: set[int] = set()
    for left in reversed(range(_LISTINGS + 1)):
        with ThreadPoolExecutor(threads if place.is_local else _THREADS_REMOTE) as pool:
            tried = list(pool.map(lambda file: _attempt(place, dataset, file, read, newer, key), pending))
        gone = [file for file, result in zip(pending, tried, strict=True) if result is None]
        results |= {file: result for file, result in zip(pending, tried, strict=True) if result is not None}
        if not gone or not left:
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
    superfluous = set(itertools.chain.from_iterable(doubled(values).values()))
    # Rows of compacted files are sorted by the caller; those of runs' own files come by device model.
    compacted = any(file.is_compacted for file in values)
    ordered = sorted(values, key=lambda file: ("" if compacted else file.run_id, file.path))
    return Reading({file: values[file] for file in ordered if file.path not in superfluous}, tuple(problems))


def _attempt(
    place: StoreLocation, dataset: str, file: RunFile, read: _Read[Value], newer: set[int], key: Hashable
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
                size = rows.nbytes if isinstance(rows, pa.Table) else _ROW * len(rows)
                place.tables.put((dataset, file, key), (result,), size)
            return result
        except FileNotFoundError:
            return None
        except BROKEN as error:
            problem = problem_of(file.path, error)
    return problem


SINCE = 4  # the first version whose files have all these columns

_KEYS = ("run_id", "device_uuid", "suite", "case", "mode", "implementation")
_LISTS = {"call_round_p50_ns": "round_p50_ns", "call_round_p95_ns": "round_p95_ns"}
"""The names of columns in earlier versions."""
_INTERVALS = tuple(f"{name}{end}" for name in (DEVICE.p50, DEVICE.p95, DEVICE.speedup) for end in ENDS[1:])
_FROM_SAMPLES = (*_INTERVALS, *DEVICE.rounds)
DERIVED = frozenset(("bound", DEVICE.speedup, HOST.speedup, *_LISTS, *_FROM_SAMPLES))

_Key = tuple[Any, ...]
_Values = dict[str, Any]
_Rounds = Mapping[int, tuple[float, ...]]


def with_derived(table: pa.Table, place: StoreLocation, file: OpenedFile, *, samples: bool = True) -> pa.Table:
    """Return all records of a file of an old version, with derived values in the columns that it lacks; those from raw samples only if `samples`."""
    if not (wanted := DERIVED.intersection(table.column_names)):
        return table
    rows = file.read([*_KEYS, DEVICE.p50, HOST.p50]).to_pylist()
    keys = [_key(row) for row in rows]
    by_key = dict(zip(keys, rows, strict=True))
    rounds: Mapping[_Key, _Rounds] = {}
    if samples and wanted.intersection(_FROM_SAMPLES):
        rounds = _rounds_of_samples(place, file.path.replace("/records/", "/samples/", 1))
    derived: list[_Values] = []
    for key, row in zip(keys, rows, strict=True):
        of_baseline = (*key[:-1], BASELINE)
        derived.append(_from_medians(row, by_key.get(of_baseline, row)))
        if key in rounds and row[DEVICE.p50]:  # a record without a device latency has rounds without device samples
            derived[-1] |= _of_rounds(rounds[key], rounds.get(of_baseline, {}))
    for name in wanted:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        if name in _LISTS:
            column = file.read([_LISTS[name]]).column(0)
        else:
            column = pa.array([values.get(name) for values in derived], field.type)
        table = table.set_column(index, field, column)
    return table


def _key(row: Mapping[str, Any]) -> _Key:
    return tuple(row[name] for name in _KEYS)


def _from_medians(row: Mapping[str, Any], baseline: Mapping[str, Any]) -> _Values:
    device, host = row[DEVICE.p50], row[HOST.p50]
    values: _Values = {"bound": "host" if host > device else "device"} if device and host else {}
    for latency in (DEVICE, HOST):
        if row["implementation"] != baseline["implementation"] and baseline[latency.p50] and row[latency.p50]:
            values[latency.speedup] = baseline[latency.p50] / row[latency.p50]
    return values


def _rounds_of_samples(place: StoreLocation, path: str) -> Mapping[_Key, _Rounds]:
    """Return the percentiles of the device's samples by series and round."""
    by_key: defaultdict[_Key, dict[int, tuple[float, ...]]] = defaultdict(dict)
    with suppress(*BROKEN):  # the samples were pruned, or are damaged: there are no rounds, and the medians stay
        for row in OpenedFile(place, path, "samples").read([*_KEYS, "round", "device_ns", "throttled"]).to_pylist():
            if (taken := without_throttled(row["device_ns"], row["throttled"])).size:
                by_key[_key(row)][row["round"]] = percentiles(taken, (50, 95))
    return by_key


def _of_rounds(rounds: _Rounds, control: _Rounds) -> _Values:
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
