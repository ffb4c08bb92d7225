"""Columns that files of earlier versions lack, derived as they are read from what these files hold, so that history goes on.

Medians of the device and the host are in the files of all versions, so ratios of them need nothing else. The device's rounds and
intervals come from the raw samples, where these have not been pruned; an interval is Student's t over the rounds alone, for a
bootstrap would take minutes. The host's rounds are not derived: its samples were taken in another way, behind a flush.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pairbench.model.latency import DEVICE, ENDS, HOST
from pairbench.stats import percentiles, rounds_interval
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile
from pairbench.store.location import StoreLocation

SINCE = 4
"""The first version whose files have all these columns."""

_KEYS = ("run_id", "device_uuid", "suite", "case", "mode", "implementation")
_MEDIANS = (DEVICE.p50, HOST.p50)
_BASELINE = "baseline"
_FROM_MEDIANS = ("bound", DEVICE.speedup, HOST.speedup)
_LISTS = {"call_round_p50_ns": "round_p50_ns", "call_round_p95_ns": "round_p95_ns"}
"""Columns that earlier versions have under another name."""
_FROM_SAMPLES = (
    *(f"{name}{end}" for name in (DEVICE.p50, DEVICE.p95, DEVICE.speedup) for end in ENDS[1:]),
    *DEVICE.rounds,
)
DERIVED = frozenset((*_FROM_MEDIANS, *_LISTS, *_FROM_SAMPLES))

_Key = tuple[Any, ...]
_Values = dict[str, Any]
_Rounds = dict[int, tuple[float, ...]]
"""The percentiles of each round."""


def columns_needed(names: Iterable[str]) -> tuple[str, ...]:
    """Return the further columns of records that it takes to derive those among some that can be."""
    wanted = [*names]
    if not DERIVED.intersection(wanted):
        return ()
    needed = (*_KEYS, *_MEDIANS, *(source for name, source in _LISTS.items() if name in wanted))
    return tuple(name for name in needed if name not in wanted)


def derived_values(
    records: pa.Table, place: StoreLocation, path: str, names: Iterable[str], *, samples: bool = True
) -> dict[_Key, _Values]:
    """Return the derived columns of each record of an old file.

    Args:
        records: The whole file, at least the keys and the medians.
        place: The store that it lies in.
        path: The file of records.
        names: The columns that are wanted.
        samples: Whether to look into the raw samples for what the medians do not tell.
    """
    wanted = DERIVED.intersection(names)
    if not wanted:
        return {}
    values = _from_medians(records)
    with_device = {
        key for key, median in zip(_keys(records), records.column(DEVICE.p50).to_pylist(), strict=True) if median
    }
    if samples and wanted.intersection(_FROM_SAMPLES):
        for key, of_key in _from_samples(place, path.replace("/records/", "/samples/", 1)).items():
            # A record without a device latency has rounds without device samples.
            if key in with_device:
                values[key].update(of_key)
    return values


def filled(table: pa.Table, values: Mapping[_Key, _Values]) -> pa.Table:
    """Return a table with derived values where it has none."""
    keys = _keys(table)
    for name in DERIVED.intersection(table.column_names):
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        if name not in _LISTS:
            column = pa.array([values.get(key, {}).get(name) for key in keys], field.type)
            table = table.set_column(index, field, column)
        elif _LISTS[name] in table.column_names:
            table = table.set_column(index, field, table.column(_LISTS[name]))
    return table


def _keys(table: pa.Table) -> list[_Key]:
    return list(zip(*(table.column(name).to_pylist() for name in _KEYS), strict=True))


def _from_medians(records: pa.Table) -> dict[_Key, _Values]:
    rows = {tuple(row[name] for name in _KEYS): row for row in records.select([*_KEYS, *_MEDIANS]).to_pylist()}
    values: dict[_Key, _Values] = {}
    for key, row in rows.items():
        device, host = (row[name] for name in _MEDIANS)
        of_key: _Values = {}
        if device and host:
            of_key["bound"] = "host" if host > device else "device"
        control = rows.get((*key[:-1], _BASELINE))
        for latency, name in ((DEVICE, DEVICE.p50), (HOST, HOST.p50)):
            if control is not None and key[-1] != _BASELINE and control[name] and row[name]:
                of_key[latency.speedup] = control[name] / row[name]
        values[key] = of_key
    return values


def _from_samples(place: StoreLocation, path: str) -> dict[_Key, _Values]:
    columns = [*_KEYS, "round", "device_ns", "throttled"]
    try:
        rows = OpenedFile(place, path, "samples").read(columns).to_pylist()
    except (
        ForeignFileError,
        UnsoundError,
        *BROKEN,
    ):  # pruned, or damaged: then there are no rounds, and the medians stay
        return {}
    by_key: defaultdict[_Key, _Rounds] = defaultdict(dict)
    for row in rows:
        taken = _without_throttled(row["device_ns"], row["throttled"])
        if taken.size:
            by_key[tuple(row[name] for name in _KEYS)][row["round"]] = percentiles(taken, (50, 95))
    return {key: _of_rounds(rounds, by_key.get((*key[:-1], _BASELINE), {})) for key, rounds in list(by_key.items())}


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
    """Return the ends of the 95 % interval of the mean of some rounds' logarithms; none for fewer than two."""
    if len(logs) < 2:
        return {}
    _, low, high = rounds_interval(logs)
    return {f"{name}_low": low, f"{name}_high": high}


def _without_throttled(values: Any, throttled: Any) -> Any:
    """Return samples without those taken while the GPU throttled, where these were measured again."""
    if values is None:
        return np.empty(0)
    taken, good = np.array(values, dtype=np.float64), ~np.array(throttled, dtype=bool)
    return taken[good] if 2 * good.sum() > len(good) else taken
