"""Reads a file that pytest-benchmark saved: `--benchmark-json`, `--benchmark-save` or `--benchmark-autosave`.

What a record looks like in a pytest-benchmark JSON, both ways: nothing is lost, and that tool reads the file as its own.

    machine_info.pairbench           the environment's columns but the one that is different in every run
    pairbench.environment            that one: with it in machine_info no two files would come from equal machines
    benchmarks[].extra_info          all other columns of the record but those of the run, flat and by their names
    pairbench.run                    the run's columns, where they are not all in `datetime` and `commit_info`
    pairbench.not_measured[]         like extra_info: records without a latency, which that tool has no place for

Null columns are left out. A benchmark is taken for ours if its extra_info has `IDENTITY`.
"""

import datetime as dt
import itertools
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pairbench.analyze.records import environment_columns
from pairbench.features.exchange.values import (
    UNKNOWN,
    ForeignRun,
    ImportFailedError,
    Origin,
    Result,
    Timing,
    axis_value,
    count,
    cpu_environment,
    field,
    latencies_ns,
    latency_ns,
    moment_of,
    optional,
    read_document,
    run_id_of,
    told_apart,
    word,
)
from pairbench.model.environment import Environment
from pairbench.model.latency import DEVICE
from pairbench.model.plain import plain
from pairbench.model.record import Record
from pairbench.store.location import is_run_id
from pairbench.store.schema import UnsoundError, check_table, from_columns, to_table

KEY = "pairbench"  # name of pairbench's own fields in `machine_info`, and in the document
RUN_COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty"),
    *("commit_subject", "commit_author", "commit_number", "pull_request"),
)
ENVIRONMENT_COLUMNS = (
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "environment"),
)
IDENTITY = ("suite", "operator", "case", "implementation", "mode", "status")

ROUND_SIZES = "samples_by_round"
"""Name in extra_info of the number of samples in each round; without it all are of one round."""
SAMPLES_OF = "samples_of"
"""Name in extra_info of the latency behind `stats`, `device` or `call`; without it, the call's."""

_COLUMNS = tuple(item.name for item in fields(Record))
_OF_BENCHMARK = tuple(name for name in _COLUMNS if name not in (*RUN_COLUMNS, *ENVIRONMENT_COLUMNS))


def extra_info_of(record: Record) -> dict[str, Any]:
    """Return the columns of a record that belong neither to the run nor to the environment, as JSON values without nulls."""
    return _present({name: getattr(record, name) for name in _OF_BENCHMARK})


def machine_info_of(source: Record | Environment | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(source, Environment):
        source = environment_columns(source)
    elif isinstance(source, Record):
        source = vars(source)
    return _present({name: source.get(name) for name in ENVIRONMENT_COLUMNS})


def steady(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `machine_info_of` that are equal in all runs on a machine: the content of `machine_info[KEY]`."""
    return {name: value for name, value in machine.items() if name != "environment"}


def run_info_of(record: Record) -> dict[str, Any]:
    """Return the run's columns as JSON values without nulls: the content of `run` in the document's `KEY`."""
    return _present({name: getattr(record, name) for name in RUN_COLUMNS})


def is_ours(extra_info: Mapping[str, Any], machine_info: Mapping[str, Any]) -> bool:
    """Return whether a benchmark's record can be restored: its identity and the environment's columns are present."""
    ours = machine_info.get(KEY)
    return isinstance(ours, dict) and all(extra_info.get(name) for name in IDENTITY)


def record_of(extra_info: Mapping[str, Any], machine: Mapping[str, Any], run: Mapping[str, Any]) -> Record:
    """Return the record behind an extra_info; columns of the environment in it go before the machine's, for a run may have several devices."""
    extra_info = {name: value for name, value in extra_info.items() if name not in RUN_COLUMNS}
    row = {name: {**machine, **extra_info, **run}.get(name) for name in _COLUMNS}
    if missing := [name for name in _REQUIRED if row[name] is None]:
        raise ValueError(f"has no {missing[0]}")
    try:
        (record,) = from_columns({name: [value] for name, value in row.items()}, Record)
        check_table(to_table([record], Record), "records")  # which refuses what the store would refuse
    except (TypeError, AttributeError, KeyError, UnsoundError) as error:
        raise ValueError(f"has a value that does not fit its column: {error}") from error
    return record


_REQUIRED = (
    *("run_id", "started_at", "device_kind", "device_name", "torch", "python", "hostname", "cpu"),
    *("environment_hash", "environment", "suite", "status"),  # and no more where the suite could not be loaded
)


def _present(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kept for name, value in columns.items() if (kept := plain(value)) is not None}


EXPECTED = "a JSON file that pytest-benchmark saved"

_NO_COMMIT = ("unversioned", "unknown", "")
_NO_BRANCH = ("(unknown)", "(detached head)", "")
_RUN_ID = re.compile(r"\d{8}T\d{6}-.+")

_Restored = tuple[Record, tuple[tuple[float, ...], ...]]


def read_benchmark_json(path: str | Path, *, at_commit: bool = False) -> ForeignRun:
    """Return the run in one file; with `at_commit` its time is that of its commit."""
    document, content = read_document(path, EXPECTED)
    kinds = {"benchmarks": list, "machine_info": dict}
    if missing := [name for name, kind in kinds.items() if not isinstance(document.get(name), kind)]:
        raise ImportFailedError(f"{path}: has no {' and '.join(map(repr, missing))}, expected {EXPECTED}")
    where = f"{path}:"
    started = _moment(field(document, "datetime", str, where), where)
    ours = optional(document, KEY, dict) or {}
    commit = optional(document, "commit_info", dict) or {}
    if at_commit and isinstance(commit.get("time"), str):
        started = _moment(commit["time"], where)
    origin = _origin(started, content, commit, optional(ours, "run", dict) or {})
    machine, environment = document["machine_info"], optional(ours, "environment", str)
    if environment and (columns := optional(machine, KEY, dict)):
        machine = machine | {
            KEY: {"environment": environment, **columns}
        }  # the column that is elsewhere in the document
    results, restored = [], []
    for place, benchmark in enumerate(document["benchmarks"]):
        here = f"{where} benchmark {place}"
        if not isinstance(benchmark, dict):
            raise ImportFailedError(f"{here} is {benchmark!r:.60}, expected an object")
        here = f"{where} benchmark {benchmark.get('fullname', place)!r}"
        if is_ours(optional(benchmark, "extra_info", dict) or {}, machine):
            restored.append(_restored(benchmark, machine, origin, here))
        else:
            results.append(_result(benchmark, here))
    for extra_info in optional(ours, "not_measured", list) or []:
        restored += [(_record(extra_info, machine, origin, f"{where} 'not_measured'"), ())]
    if not results and not restored:
        raise ImportFailedError(f"{path}: holds no benchmark, expected at least one")
    kept, twice = told_apart(results)
    return ForeignRun(
        source=str(path),
        origin=origin,
        environment=_environment(document, machine),
        results=kept,
        restored=tuple(restored),
        left_out=twice,
    )


def _moment(text: str, where: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ImportFailedError(f"{where} has the datetime {text!r:.60}, expected ISO 8601") from error
    # Old versions wrote UTC without saying so.
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _origin(started: dt.datetime, content: bytes, commit: dict[str, Any], run: dict[str, Any]) -> Origin:
    sha = optional(commit, "id", str) or ""
    known = sha not in _NO_COMMIT
    branch = optional(commit, "branch", str) or ""
    columns: dict[str, Any] = {
        "run_id": run_id_of(started, content),
        "started_at": moment_of(started),
        "commit": sha if known else None,
        "commit_at": optional(commit, "time", str) if known else None,
        "branch": branch if known and branch not in _NO_BRANCH else None,
        "dirty": optional(commit, "dirty", bool) if known else None,
    }
    # A run that `pairbench export` wrote is the same run again, so that nothing is there twice.
    run_id = run.get("run_id")
    if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) and is_run_id(run_id):
        names = ("commit", "commit_at", "branch", "confirms", "commit_subject", "commit_author")
        restored_run: dict[str, Any] = {name: optional(run, name, str) for name in names}
        restored_run |= {name: optional(run, name, int) for name in ("commit_number", "pull_request")}
        columns |= restored_run | {"run_id": run_id, "dirty": optional(run, "dirty", bool)}
        columns["started_at"] = optional(run, "started_at", str) or columns["started_at"]
    return Origin(**columns)


def _environment(document: Mapping[str, Any], machine: dict[str, Any]) -> Environment:
    cpu = optional(machine, "cpu", dict) or {}
    names = (cpu.get("brand_raw"), cpu.get("brand"), machine.get("processor"), machine.get("machine"))
    model = next((name for name in names if isinstance(name, str) and name.strip()), "CPU").strip()
    rest = {
        "kernel": f"{machine.get('system', '')} {machine.get('release', '')}".strip() or None,
        "machine": machine.get("machine"),
        "cores": cpu.get("count"),
        "python": {"implementation": machine.get("python_implementation"), "compiler": machine.get("python_compiler")},
        "packages": {"pytest-benchmark": document.get("version")},
    }
    return cpu_environment(
        model,
        torch=UNKNOWN,
        python=optional(machine, "python_version", str) or UNKNOWN,
        hostname=optional(machine, "node", str) or UNKNOWN,
        rest=rest,
    )


def _result(benchmark: dict[str, Any], where: str) -> Result:
    # pytest-benchmark saves null for a benchmark whose function raised.
    stats = {} if benchmark.get("stats", {}) is None else field(benchmark, "stats", dict, where)
    fullname = field(benchmark, "fullname", str, where)
    suite, *names = fullname.partition("[")[0].split("::")
    if not names:
        raise ImportFailedError(f"{where} is not named like a test, expected FILE::TEST")
    label = optional(benchmark, "param", str)
    params = optional(benchmark, "params", dict) or ({} if label is None else {"id": label})
    median = latency_ns(stats.get("median"))
    return Result(
        suite=suite,
        operator=".".join(names),
        axes=tuple(sorted((word(name), axis_value(value)) for name, value in params.items())),
        label=label or fullname.partition("[")[2].rstrip("]"),
        status="measured" if median else "failed",
        reason=None if median else f"its median latency is {stats.get('median')!r:.40} s, expected a positive number",
        timing=_timing(stats, optional(benchmark, "options", dict) or {}, median) if median else None,
    )


def _timing(stats: dict[str, Any], options: dict[str, Any], median_ns: float) -> Timing:
    samples = latencies_ns(stats.get("data"))
    return Timing(
        timer=f"pytest-benchmark {optional(options, 'timer', str) or 'perf_counter'}",
        p50_ns=median_ns,
        n_samples=len(samples) or count(stats.get("rounds")),
        samples_ns=samples,
        calls_per_sample=count(stats.get("iterations")) or 1,
    )


def _restored(benchmark: dict[str, Any], machine: dict[str, Any], origin: Origin, where: str) -> _Restored:
    record = _record(benchmark["extra_info"], machine, origin, where)
    data = latencies_ns((optional(benchmark, "stats", dict) or {}).get("data"))
    sizes = optional(benchmark["extra_info"], ROUND_SIZES, list) or [len(data)]
    if not data or not record.timer or not all(map(count, sizes)):
        return record, ()
    if sum(sizes) != len(data) or len(sizes) != record.n_rounds:
        return record, ()  # nothing tells which round a sample is of
    if optional(benchmark["extra_info"], SAMPLES_OF, str) == DEVICE.name:
        return record, ()  # the store keeps samples of the device beside those of the call, which are not in the file
    ends = itertools.accumulate(sizes)
    return record, tuple(tuple(data[end - size : end]) for size, end in zip(sizes, ends, strict=True))


def _record(extra_info: object, machine: dict[str, Any], origin: Origin, where: str) -> Record:
    if not isinstance(extra_info, dict):
        raise ImportFailedError(f"{where} has {extra_info!r:.60}, expected an object with the columns of a record")
    try:
        return record_of(extra_info, machine[KEY], vars(origin))
    except (ValueError, KeyError, TypeError) as error:
        raise ImportFailedError(f"{where}: what pairbench wrote there {error}, expected a whole record") from error
