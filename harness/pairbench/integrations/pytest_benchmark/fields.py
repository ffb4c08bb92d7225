"""What a record looks like in a pytest-benchmark JSON, both ways: nothing is lost, and that tool reads the file as its own.

    machine_info.pairbench           the environment's columns but the one that is different in every run
    pairbench.environment            that one: with it in machine_info no two files would come from equal machines
    benchmarks[].extra_info          all other columns of the record but those of the run, flat and by their names
    pairbench.run                    the run's columns, where they are not all in `datetime` and `commit_info`
    pairbench.not_measured[]         like extra_info: records without a latency, which that tool has no place for

Null columns are left out. A benchmark is taken for ours if its extra_info has `IDENTITY`.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pairbench.analyze.records import environment_columns
from pairbench.model.environment import Environment
from pairbench.model.plain import plain
from pairbench.model.record import Record
from pairbench.store.files.conform import UnsoundError, check_table
from pairbench.store.schema import from_rows, to_table

KEY = "pairbench"
"""Name under which pairbench's own fields stand in `machine_info`, and in the document."""

RUN_COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty"),
    *("commit_subject", "commit_author", "commit_number", "pull_request"),
)
ENVIRONMENT_COLUMNS = (
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "environment"),
)
IDENTITY = ("suite", "operator", "case", "implementation", "mode", "status")
"""Columns that every benchmark of ours has."""

ROUND_SIZES = "samples_by_round"
"""Name in extra_info of how many of `stats.data` came from each round, in order; where it is not there, all are one round's."""

SAMPLES_OF = "samples_of"
"""Name in extra_info of the latency that `stats` are of, `device` or `call`; where it is not there, it is the call's."""

_COLUMNS = tuple(item.name for item in fields(Record))
_OF_BENCHMARK = tuple(name for name in _COLUMNS if name not in (*RUN_COLUMNS, *ENVIRONMENT_COLUMNS))


def extra_info_of(record: Record) -> dict[str, Any]:
    """Return the columns of a record that are neither the run's nor the environment's, as JSON values without nulls."""
    return _present({name: getattr(record, name) for name in _OF_BENCHMARK})


def machine_info_of(source: Record | Environment | Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's columns as JSON values without nulls."""
    if isinstance(source, Environment):
        source = environment_columns(source)
    elif isinstance(source, Record):
        source = vars(source)
    return _present({name: source.get(name) for name in ENVIRONMENT_COLUMNS})


def steady(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of `machine_info_of` is the same in every run on a machine as it is: what `machine_info[KEY]` holds."""
    return {name: value for name, value in machine.items() if name != "environment"}


def run_info_of(record: Record) -> dict[str, Any]:
    """Return the run's columns as JSON values without nulls; they belong into `run` of the document's `KEY`."""
    return _present({name: getattr(record, name) for name in RUN_COLUMNS})


def is_ours(extra_info: Mapping[str, Any], machine_info: Mapping[str, Any]) -> bool:
    """Return whether a benchmark's record can be restored: its own columns, and those of the environment, are there."""
    ours = machine_info.get(KEY)
    return isinstance(ours, dict) and all(extra_info.get(name) for name in IDENTITY)


def record_of(extra_info: Mapping[str, Any], machine: Mapping[str, Any], run: Mapping[str, Any]) -> Record:
    """Return the record that an extra_info was made of.

    Args:
        extra_info: As from `extra_info_of`; keys that are no column are ignored. Columns of the environment in it go
            before the machine's: a run on several devices has one `machine_info`.
        machine: As from `machine_info_of`.
        run: The run's columns; `run_id` and `started_at` must be there.

    Raises:
        ValueError: a column that every record has is missing, or a value is not of its column's type.
    """
    extra_info = {name: value for name, value in extra_info.items() if name not in RUN_COLUMNS}
    row = {name: {**machine, **extra_info, **run}.get(name) for name in _COLUMNS}
    missing = [name for name in _REQUIRED if row[name] is None]
    if missing:
        raise ValueError(f"has no {missing[0]}")
    try:
        (record,) = from_rows([row], Record)
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"has a value that does not fit its column: {error}") from error
    _check(record)
    return record


_REQUIRED = (
    *("run_id", "started_at", "device_kind", "device_name", "torch", "python", "hostname", "cpu"),
    *("environment_hash", "environment", "suite", "status"),  # and no more where the suite could not be loaded
)


def _check(record: Record) -> None:
    """Refuse what the store would refuse, with the column's name.

    Raises:
        ValueError: a value is not of its column's type.
    """
    try:
        check_table(to_table([record], Record), "records")
    except (TypeError, UnsoundError) as error:
        raise ValueError(f"has a value that does not fit its column: {error}") from error


def _present(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kept for name, value in columns.items() if (kept := plain(value)) is not None}
