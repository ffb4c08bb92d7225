"""Files of pytest-benchmark, both ways: nothing of a record is lost, and that tool reads the file as its own.

Read are files that `--benchmark-json`, `--benchmark-save` or `--benchmark-autosave` saved, and written is a run of a store.

    machine_info.pairbench           the environment's columns but the one that is different in every run
    pairbench.environment            that one: with it in machine_info no two files would come from equal machines
    benchmarks[].extra_info          all other columns of the record but those of the run, flat and by their names
    pairbench.run                    the run's columns, where they are not all in `datetime` and `commit_info`
    pairbench.not_measured[]         like extra_info: records without a latency, which that tool has no place for

Null columns are left out. A benchmark is taken for ours if its extra_info has `IDENTITY`.
"""

import datetime as dt
import itertools
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from pairbench.analyze.records import environment_columns
from pairbench.errors import StoreError, UsageError
from pairbench.features.exchange import foreign
from pairbench.features.exchange.foreign import ImportFailedError
from pairbench.model.environment import Environment
from pairbench.model.plain import field_of, plain
from pairbench.model.record import CALL, DEVICE, STREAM, Latency, Record, Samples, Series, result_of, sampled_as
from pairbench.store.location import is_run_id
from pairbench.store.schema import UnsoundError, check_table, from_columns, to_table

if TYPE_CHECKING:
    from pairbench.config import Config
    from pairbench.workflow.lookup import Picked

KEY = "pairbench"  # name of pairbench's own fields in `machine_info`, and in the document
RUN_COLUMNS = tuple(item.name for item in fields(foreign.Origin))
ENVIRONMENT_COLUMNS = (
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "environment"),
)
IDENTITY = ("suite", "operator", "case", "implementation", "mode", "status")

# Names in extra_info: of the number of samples in each round, without which all are of one round, and of the latency behind
# `stats`, `device` or `call`; without it, the call's.
ROUND_SIZES, SAMPLES_OF = "samples_by_round", "samples_of"
# Name in extra_info of the kind of values behind the stats: `samples`, or `round_p50_ns` for medians of rounds.
STATS_OF = "stats_of"

_COLUMNS = tuple(item.name for item in fields(Record))
_OF_BENCHMARK = tuple(name for name in _COLUMNS if name not in (*RUN_COLUMNS, *ENVIRONMENT_COLUMNS))
# Of a suite that could not be loaded there are no more.
_REQUIRED = [name for name, hint in get_type_hints(Record).items() if hint is str]
EXPECTED = "a JSON file that pytest-benchmark saved"
_NO_COMMIT = ("unversioned", "unknown", "")
_NO_BRANCH = ("(unknown)", "(detached head)", "")
_RUN_ID = re.compile(r"\d{8}T\d{6}-.+")
_Restored = tuple[Record, tuple[tuple[float, ...], ...]]
FORMAT_VERSION = "5.0.0"
_S = 1e-9
_Timed = tuple[dict[str, Any], dict[str, Any]]  # what the stats are of, and the stats


def extra_info_of(record: Record) -> dict[str, Any]:
    """Return the columns of a record that belong neither to the run nor to the environment, as JSON values without nulls."""
    return _present({name: getattr(record, name) for name in _OF_BENCHMARK})


def machine_info_of(source: Record | Environment) -> dict[str, Any]:
    known = environment_columns(source) if isinstance(source, Environment) else vars(source)
    return _present({name: known.get(name) for name in ENVIRONMENT_COLUMNS})


def steady(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `machine_info_of` that are equal in all runs on a machine: the content of `machine_info[KEY]`."""
    return {name: value for name, value in machine.items() if name != "environment"}


def run_info_of(record: Record) -> dict[str, Any]:
    """Return the run's columns as JSON values without nulls: the content of `run` in the document's `KEY`."""
    return _present({name: getattr(record, name) for name in RUN_COLUMNS})


def is_ours(extra_info: Mapping[str, Any], machine_info: Mapping[str, Any]) -> bool:
    """Return whether a benchmark's record can be restored: its identity and the environment's columns are present."""
    return isinstance(machine_info.get(KEY), dict) and all(extra_info.get(name) for name in IDENTITY)


def record_of(extra_info: Mapping[str, Any], machine: Mapping[str, Any], run: Mapping[str, Any]) -> Record:
    """Return the record that a benchmark's `extra_info` was made from; its columns replace the machine's, for a run may have several devices."""
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


def _present(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kept for name, value in columns.items() if (kept := plain(value)) is not None}


def read_benchmark_json(path: str | Path, *, at_commit: bool = False) -> foreign.ForeignRun:
    """Return the run that a file of pytest-benchmark holds; with `at_commit` it starts at the time of its commit."""
    document, content = foreign.read_document(path, EXPECTED)
    kinds = {"benchmarks": list, "machine_info": dict}
    if missing := [name for name, kind in kinds.items() if not isinstance(document.get(name), kind)]:
        raise ImportFailedError(f"{path}: has no {' and '.join(map(repr, missing))}, expected {EXPECTED}")
    where = f"{path}:"
    started = _moment(field_of(document, "datetime", str, where, ImportFailedError), where)
    ours = foreign.optional(document, KEY, dict) or {}
    commit = foreign.optional(document, "commit_info", dict) or {}
    if at_commit and isinstance(commit.get("time"), str):
        started = _moment(commit["time"], where)
    origin = _origin(started, content, commit, foreign.optional(ours, "run", dict) or {})
    machine, environment = document["machine_info"], foreign.optional(ours, "environment", str)
    if environment and (columns := foreign.optional(machine, KEY, dict)):
        machine = machine | {KEY: {"environment": environment, **columns}}  # a column that is elsewhere in the document
    results, restored = [], []
    for place, benchmark in enumerate(document["benchmarks"]):
        here = f"{where} benchmark {place}"
        if not isinstance(benchmark, dict):
            raise ImportFailedError(f"{here} is {benchmark!r:.60}, expected an object")
        here = f"{where} benchmark {benchmark.get('fullname', place)!r}"
        if is_ours(foreign.optional(benchmark, "extra_info", dict) or {}, machine):
            restored.append(_restored(benchmark, machine, origin, here))
        else:
            results.append(_result(benchmark, here))
    for extra_info in foreign.optional(ours, "not_measured", list) or []:
        restored += [(_record(extra_info, machine, origin, f"{where} 'not_measured'"), ())]
    if not results and not restored:
        raise ImportFailedError(f"{path}: holds no benchmark, expected at least one")
    kept, twice = foreign.told_apart(results)
    return foreign.ForeignRun(str(path), origin, _environment(document, machine), kept, tuple(restored), twice)


def _moment(text: str, where: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ImportFailedError(f"{where} has the datetime {text!r:.60}, expected ISO 8601") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)  # old versions wrote UTC without saying so


def _origin(started: dt.datetime, content: bytes, commit: dict[str, Any], run: dict[str, Any]) -> foreign.Origin:
    sha = foreign.optional(commit, "id", str) or ""
    known = sha not in _NO_COMMIT
    branch = foreign.optional(commit, "branch", str) or ""
    columns: dict[str, Any] = {
        "run_id": foreign.run_id_of(started, content),
        "started_at": foreign.moment_of(started),
        "commit": sha if known else None,
        "commit_at": foreign.optional(commit, "time", str) if known else None,
        "branch": branch if known and branch not in _NO_BRANCH else None,
        "dirty": foreign.optional(commit, "dirty", bool) if known else None,
    }
    # A run that `pairbench export` wrote is the same run again, so that nothing is there twice.
    if isinstance(run_id := run.get("run_id"), str) and _RUN_ID.fullmatch(run_id) and is_run_id(run_id):
        kinds: dict[str, type] = {"dirty": bool, "commit_number": int, "pull_request": int}
        known_run = {name: foreign.optional(run, name, kinds.get(name, str)) for name in RUN_COLUMNS}
        columns = known_run | {"started_at": known_run["started_at"] or columns["started_at"]}
    return foreign.Origin(**columns)


def _environment(document: Mapping[str, Any], machine: dict[str, Any]) -> Environment:
    cpu = foreign.optional(machine, "cpu", dict) or {}
    names = (cpu.get("brand_raw"), cpu.get("brand"), machine.get("processor"), machine.get("machine"))
    model = next((name for name in names if isinstance(name, str) and name.strip()), "CPU").strip()
    rest = {
        "kernel": f"{machine.get('system', '')} {machine.get('release', '')}".strip() or None,
        "machine": machine.get("machine"),
        "cores": cpu.get("count"),
        "python": {"implementation": machine.get("python_implementation"), "compiler": machine.get("python_compiler")},
        "packages": {"pytest-benchmark": document.get("version")},
    }
    python, host = (foreign.optional(machine, name, str) or foreign.UNKNOWN for name in ("python_version", "node"))
    return foreign.cpu_environment(model, torch=foreign.UNKNOWN, python=python, hostname=host, rest=rest)


def _result(benchmark: dict[str, Any], where: str) -> foreign.Result:
    # pytest-benchmark saves null for a benchmark whose function raised.
    stats = {} if benchmark.get("stats", {}) is None else field_of(benchmark, "stats", dict, where, ImportFailedError)
    fullname = field_of(benchmark, "fullname", str, where, ImportFailedError)
    suite, *names = fullname.partition("[")[0].split("::")
    if not names:
        raise ImportFailedError(f"{where} is not named like a test, expected FILE::TEST")
    label, options = foreign.optional(benchmark, "param", str), foreign.optional(benchmark, "options", dict) or {}
    params = foreign.optional(benchmark, "params", dict) or ({} if label is None else {"id": label})
    median = foreign.latency_ns(stats.get("median"))
    timer = f"pytest-benchmark {foreign.optional(options, 'timer', str) or 'perf_counter'}"
    taken = (stats.get("data"), stats.get("rounds"), stats.get("iterations"))
    return foreign.Result(
        suite=suite,
        operator=".".join(names),
        axes=tuple(sorted((foreign.word(name), foreign.axis_value(value)) for name, value in params.items())),
        label=label or fullname.partition("[")[2].rstrip("]"),
        status="measured" if median else "failed",
        reason=None if median else f"its median latency is {stats.get('median')!r:.40} s, expected a positive number",
        timing=foreign.timing(timer, median, *taken) if median else None,
    )


def _restored(benchmark: dict[str, Any], machine: dict[str, Any], origin: foreign.Origin, where: str) -> _Restored:
    record = _record(benchmark["extra_info"], machine, origin, where)
    data = foreign.latencies_ns((foreign.optional(benchmark, "stats", dict) or {}).get("data"))
    sizes = foreign.optional(benchmark["extra_info"], ROUND_SIZES, list) or [len(data)]
    if not data or not record.timer or not all(map(foreign.count, sizes)):
        return record, ()
    if sum(sizes) != len(data) or len(sizes) != record.n_rounds:
        return record, ()  # nothing tells which round a sample is of
    if foreign.optional(benchmark["extra_info"], SAMPLES_OF, str) == DEVICE.name:
        return record, ()  # the store keeps samples of the device beside those of the call, which are not in the file
    ends = itertools.accumulate(sizes)
    return record, tuple(tuple(data[end - size : end]) for size, end in zip(sizes, ends, strict=True))


def _record(extra_info: object, machine: dict[str, Any], origin: foreign.Origin, where: str) -> Record:
    if not isinstance(extra_info, dict):
        raise ImportFailedError(f"{where} has {extra_info!r:.60}, expected an object with the columns of a record")
    try:
        return record_of(extra_info, machine[KEY], vars(origin))
    except (ValueError, KeyError, TypeError) as error:
        raise ImportFailedError(f"{where}: what pairbench wrote there {error}, expected a whole record") from error


def benchmark_document(records: Sequence[Record], samples: Sequence[Samples]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a run as a document, and the names of records without a latency, which are in it for `pairbench import` only."""
    first, rounds = records[0], _by_place(samples)
    machine = machine_info_of(first)
    several = len({record.device_uuid or record.device_name for record in records}) > 1
    benchmarks, rest = [], []
    for record in records:
        of_record = rounds.get((Series.of(record), record.device_uuid), {})
        timed = _timed(record, result_of(record), of_record.get(sampled_as(record, of_record), []))
        # The environment's columns in which it differs from the first record, for it ran on another device.
        own = machine_info_of(record)
        differing = {name: own.get(name) for name in ENVIRONMENT_COLUMNS if own.get(name) != machine.get(name)}
        extra = extra_info_of(record) | differing
        if timed is None:
            rest.append((record, extra))
        else:
            benchmarks.append(_benchmark(record, timed, extra, several=several))
    without = [extra for _, extra in rest]
    own = {"environment": machine["environment"], "run": run_info_of(first), "not_measured": without}
    host: dict[str, Any] = {"node": first.hostname, "processor": first.cpu, "python_version": first.python}
    host |= {"cpu": {"brand_raw": first.cpu}, KEY: steady(machine)}
    commit: dict[str, Any] = {"id": first.commit or "unversioned", "time": first.commit_at, "author_time": None}
    commit |= {"dirty": bool(first.dirty), "project": KEY, "branch": first.branch or "(unknown)"}
    document: dict[str, Any] = {"machine_info": host, "commit_info": commit, "benchmarks": benchmarks}
    document |= {"datetime": first.started_at, "version": FORMAT_VERSION, KEY: own}
    return document, tuple(f"{_name(record)} ({record.status})" for record, _ in rest)


def stats_of(seconds: Sequence[float]) -> dict[str, Any]:
    """Return the statistics that pytest-benchmark stores, by its definitions; there is at least one latency, in s."""
    ordered = sorted(seconds)
    mean = statistics.fmean(ordered)
    squares = math.fsum((value - mean) ** 2 for value in ordered)  # statistics.stdev takes a second for a large run
    deviation = math.sqrt(squares / (len(ordered) - 1)) if len(ordered) > 1 else 0.0
    # Medians of the halves; for odd numbers the mean of both ways to halve.
    q1, q3 = map(float, np.percentile(ordered, (25, 75), method="hazen"))
    reach = 1.5 * (q3 - q1)
    inside = [value for value in ordered if q1 - reach <= value <= q3 + reach]
    far = sum(not mean - deviation <= value <= mean + deviation for value in ordered)
    total, outside = math.fsum(ordered), len(ordered) - len(inside)
    stats = {"min": ordered[0], "max": ordered[-1], "mean": mean, "stddev": deviation, "rounds": len(ordered)}
    stats |= {"median": statistics.median(ordered), "iqr": q3 - q1, "q1": q1, "q3": q3}
    outliers = {"iqr_outliers": outside, "stddev_outliers": far, "outliers": f"{far};{outside}"}
    whole = {"ops": len(ordered) / total, "total": total, "iterations": 1}
    return {**stats, **outliers, "ld15iqr": inside[0], "hd15iqr": inside[-1], **whole}


def _timed(record: Record, latency: Latency, rounds: Sequence[Sequence[float]]) -> _Timed | None:
    """Return what the stats are of, a record's samples or else its medians of rounds, and the stats; None where it has no latency."""
    if record.status != "measured":
        return None
    if rounds:
        seconds = [value * _S for values in rounds for value in values]
        how = {STATS_OF: "samples", SAMPLES_OF: latency.name, ROUND_SIZES: list(map(len, rounds))}
        return how, {**stats_of(seconds), "data": seconds}
    p50 = getattr(record, latency.p50)
    medians = getattr(record, latency.rounds[0]) or (() if p50 is None else (p50,))
    medians = tuple(value for value in medians if value is not None and 0 < value < math.inf)
    if not medians:
        return None
    return {STATS_OF: "round_p50_ns", SAMPLES_OF: latency.name}, stats_of([value * _S for value in medians])


def _benchmark(record: Record, timed: _Timed, extra: dict[str, Any], *, several: bool) -> dict[str, Any]:
    how, stats = timed
    where = f" ({record.device_uuid or record.device_name})" if several else ""
    axes = (record.case or "").partition("[")[2].removesuffix("]")
    params, name = json.loads(record.axes or "{}"), f"{_name(record)}{where}"
    params = params if isinstance(params, dict) else {}
    params |= {"implementation": record.implementation, "mode": record.mode}
    named = {"group": record.case, "name": name, "fullname": f"{record.suite}::{name}", "params": params}
    named["param"] = f"{axes}-{record.implementation}-{record.mode}{where}"
    return {**named, "extra_info": extra | how, "options": {"timer": record.timer}, "stats": stats}


def _name(record: Record) -> str:
    return f"{record.case}-{record.implementation}-{record.mode}" if record.case else record.suite


def _by_place(samples: Sequence[Samples]) -> dict[tuple[Series | None, str | None], dict[str, list[tuple[float, ...]]]]:
    """Return the latencies in ns of each round by series, device and name; throttled samples that were measured again are left out."""
    latencies: dict[tuple[Series | None, str | None], dict[str, list[tuple[float, ...]]]] = {}
    for row in sorted(samples, key=lambda row: row.round):
        series = Series(**{item.name: getattr(row, item.name) for item in fields(Series)})
        for latency, taken in ((CALL, row.call_ns), (DEVICE, row.device_ns), (STREAM, row.stream_ns)):
            pairs = zip(taken or (), row.throttled, strict=False)
            known = [(value, throttled) for value, throttled in pairs if value is not None]
            good = [value for value, throttled in known if not throttled]
            if kept := good if 2 * len(good) > len(known) else [value for value, _ in known]:
                latencies.setdefault((series, row.device_uuid), {}).setdefault(latency.name, []).append(tuple(kept))
    return latencies


def pick_runs(config: "Config", name: str) -> "tuple[Picked, tuple[Record, ...], tuple[str, ...]]":
    """Return the runs that a text names, their records, and what could not be read."""
    from pairbench.workflow.lookup import RunSelector
    from pairbench.workflow.setup import store_of

    selector = RunSelector.of_store(store_of(config), config.root)
    picked = selector.pick(name)
    read, unread = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    records = tuple(record for record in read if record.run_id in ids)
    problems = tuple(dict.fromkeys([*picked.index.problems, *unread, *selector.notes]))
    if not records:
        raise StoreError(f"nothing of {name!r} can be read: {'; '.join(problems) or 'it has no rows'}")
    return picked, records, problems


def benchmarks_of(picked: "Picked", records: Sequence[Record]) -> tuple[str, tuple[str, ...]]:
    """Return a run as a file of pytest-benchmark, and the names of its records without a latency."""
    from pairbench.report.render import to_json
    from pairbench.store.reader import read_samples

    # What measured a run's suspects again is a run of its own; it is exported by its own id.
    own = [head.run_id for head in picked.heads if head.confirms is None] or [head.run_id for head in picked.heads]
    if len(own) > 1:
        named = f"{len(own)} runs ({', '.join(sorted(own)[:3])}{', ...' * (len(own) > 3)})"
        raise UsageError(f"{picked.asked!r} is {named}, and a file of pytest-benchmark holds one; name one of them")
    samples = () if picked.index.is_file else read_samples(picked.index.place, own[0]).value
    document, not_measured = benchmark_document([record for record in records if record.run_id == own[0]], samples)
    return to_json(document), not_measured


def csv_of(records: Sequence[Record]) -> str:
    import pandas as pd  # half a second, and an import does without

    cells = ([getattr(record, name) for name in _COLUMNS] for record in records)
    rows = [[json.dumps(plain(cell)) if isinstance(cell, tuple) else cell for cell in row] for row in cells]
    # Objects, so that counts beside nulls stay whole numbers.
    text: str = pd.DataFrame(rows, columns=_COLUMNS, dtype=object).to_csv(index=False, lineterminator="\n")
    return text
