"""`pairbench import`: files of other tools become runs of a store, each once.

One file is one process, so one round: the independent unit, whatever number of samples it holds. The intervals say
how well the process knows its own median, by order statistics, and nothing of other processes. Those tools measure one
benchmark after the other, so there are no pairs of samples, and a speedup's interval is that of two independent medians.
"""

import contextlib
import datetime as dt
import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.analyze.records import environment_columns
from pairbench.errors import StoreFailedError, UsageError
from pairbench.features.exchange import foreign
from pairbench.features.exchange.foreign import Axes, ForeignRun, ImportFailedError, Origin, Result, Timing
from pairbench.features.exchange.pytest_benchmark import read_benchmark_json
from pairbench.model.case import Case, format_value
from pairbench.model.environment import Device, Environment, device_slug
from pairbench.model.plain import Value, field_of
from pairbench.model.plan import BASELINE
from pairbench.model.record import CALL, Record, Samples, interval_columns, p50_of
from pairbench.stats import FEWEST_ALONE, Interval, outliers, percentile, ratio_interval
from pairbench.store.location import StoreLocation
from pairbench.store.reading import stored_files
from pairbench.store.writer import write_run

_Z = 1.959964  # standard normal quantile of a 95 % interval
_LATEST_NS = 2**63 - 1  # the largest value of a column: a file may have means over any number of calls
_COPIED = ("suite", "operator", "definition_hash", "status", "reason", "peak_bytes")  # columns that a result has
_IMPORTED = re.compile(r"\A\d{8}T\d{6}-([0-9a-f]{16})\Z")  # the id of an imported run, with the hash of its file
ASV, COMMITTED = "asv", "committed"
NOT_IMPORTED = "not imported"
_Source = tuple[str, Callable[[], ForeignRun]]  # a file's name, and what reads it
_TIME, _PEAK = "time", "peakmemory"  # two kinds of benchmarks of asv
_PREFIXES = {"time": _TIME, "timeraw": _TIME, "peakmem": _PEAK}  # how the names of their functions begin
EXPECTED = "a result file of asv (api version 2)"
_EXISTING = "existing"  # in such environments asv did not check the code out, which may differ from the commit's


class Pairing(Value):
    """The parameter whose values are implementations of one operator."""

    axis: str
    baseline: str = BASELINE

    @classmethod
    def parse(cls, text: str) -> "Pairing":
        axis, colon, baseline = text.partition(":")
        if not axis or (colon and not baseline):
            expected = "expected AXIS or AXIS:BASELINE, such as implementation:reference"
            raise UsageError(f"--implementation {text!r}: {expected}")
        return cls(axis=axis, baseline=foreign.word(baseline) if baseline else BASELINE)

    def check(self, axes: Mapping[str, set[str]]) -> None:
        """Refuse an axis and a baseline that do not fit the values that each axis has."""
        values = axes.get(self.axis, set())
        if not values:
            expected = f"expected one of {', '.join(sorted(axes)) or 'none, for none has any'}"
            raise UsageError(f"--implementation {self.axis!r}: no benchmark has such a parameter, {expected}")
        given = f"--implementation {self.axis}"
        if self.baseline not in values:
            expected = f"expected {self.axis}:BASELINE with one of {', '.join(sorted(values))}"
            raise UsageError(f"{given}: it never is {self.baseline!r}, so there is no baseline; {expected}")
        if self.baseline != BASELINE and BASELINE in values:
            why = "which is what the baseline is called here; leave BASELINE out, or rename that value"
            raise UsageError(f"{given}:{self.baseline}: another of its values is called {BASELINE!r}, {why}")


def split(result: Result, pairing: Pairing | None) -> tuple[str, Axes]:
    """Return the implementation of a result and the axes of its case; without a pairing all results are baselines."""
    axes = dict(result.axes)
    if pairing is None or pairing.axis not in axes:
        return BASELINE, result.axes
    value = format_value(axes.pop(pairing.axis))
    return BASELINE if value == pairing.baseline else value, tuple(axes.items())


class ImportedRun(NamedTuple):
    source: str
    run_id: str
    records: tuple[Record, ...]
    samples: tuple[Samples, ...]
    left_out: tuple[str, ...]


def rows_of(run: ForeignRun, pairing: Pairing | None = None) -> ImportedRun:
    """Return a file's results as rows, with speedups where the pairing finds a baseline."""
    shared = {**asdict(run.origin), **environment_columns(run.environment)}
    pairs = [(_record(result, pairing, shared), result.timing) for result in run.results]
    baselines = (record for record, _ in pairs if record.role == BASELINE)
    controls = {(one.suite, one.case): p50_of(one, CALL) for one in baselines}
    own: list[Record] = []
    samples: list[Samples] = []
    for record, timing in pairs:
        ours, theirs = p50_of(record, CALL), controls.get((record.suite, record.case))
        columns: dict[str, Any] = {}
        if record.role != BASELINE and ours is not None and theirs is not None:
            columns = interval_columns(CALL.speedup, ratio_interval(theirs, ours))
        own.append(replace(record, **columns))
        if timing and timing.samples_ns:
            samples += _samples(record, [timing.samples_ns], timing.calls_per_sample)
    for record, rounds in run.restored:
        samples += _samples(record, rounds)
    records = (*own, *(record for record, _ in run.restored))
    return ImportedRun(run.source, run.origin.run_id, records, tuple(samples), run.left_out)


def _record(result: Result, pairing: Pairing | None, shared: dict[str, Any]) -> Record:
    implementation, axes = split(result, pairing)
    case = Case(operator=result.operator, axes=axes, tier="")
    return Record(
        **shared,
        **{name: getattr(result, name) for name in _COPIED},
        case=case.key,
        axes=json.dumps(dict(axes)),
        dtype=case.dtype,
        implementation=implementation,
        role=BASELINE if implementation == BASELINE else "variant",
        mode="eager",
        **(_latency_columns(result.timing) if result.timing else {}),
    )


def _latency_columns(timing: Timing) -> dict[str, Any]:
    columns: dict[str, Any] = {"timer": timing.timer, "n_samples": timing.n_samples, "n_rounds": 1}
    columns |= {"call_p50_ns": timing.p50_ns, "round_p50_ns": (timing.p50_ns,)}
    if timing.samples_ns:
        for q in (50, 95) if timing.calls_per_sample == 1 else (50,):
            found = order_interval(timing.samples_ns, q)
            columns |= interval_columns(f"call_p{q}_ns", found) | {f"round_p{q}_ns": (found.estimate,)}
    return columns


def order_interval(samples: Sequence[float], q: float) -> Interval:
    """Return a percentile of one process' samples with its 95 % interval, two of the samples; fewer than six samples have none."""
    if len(samples) < FEWEST_ALONE:
        return Interval(percentile(samples, q), math.nan, math.nan)
    ordered = sorted(samples)
    last, part = len(ordered) - 1, q / 100
    reach = _Z * math.sqrt(len(ordered) * part * (1 - part))
    low = max(0, math.floor(len(ordered) * part - reach))
    high = min(last, math.ceil(len(ordered) * part + reach))
    return Interval(percentile(ordered, q), ordered[low], ordered[high])


def _samples(record: Record, rounds: Sequence[Sequence[float]], calls: int = 1) -> list[Samples]:
    """Return raw samples as rows. Other tools do not say when each was taken, so `at_ns` is the sum of the samples before."""
    names = ("operator", "case", "implementation", "mode", "timer")
    shared: dict[str, Any] = {name: getattr(record, name) or "" for name in names}
    shared |= {name: getattr(record, name) for name in ("run_id", "device_name", "device_uuid", "suite")}
    return [
        Samples(
            **shared,
            round=number,
            stop_reason=record.stop_reason or "unknown",
            block=tuple(range(len(values))),
            position=(0,) * len(values),
            at_ns=tuple(min(int(calls * taken), _LATEST_NS) for taken in itertools.accumulate([0.0, *values[:-1]])),
            call_ns=tuple(values),
            throttled=(False,) * len(values),
            outlier=tuple(bool(label) for label in outliers(values)),
        )
        for number, values in enumerate(rounds)
    ]


class Intake:
    def __init__(self, store: str | Path) -> None:
        self._place = StoreLocation.of(store)
        self._known: dict[str, str] = {}
        self._slugs: defaultdict[str, set[str]] = defaultdict(set)
        for file in stored_files(self._place, "records").files:
            for run_id in file.run_ids:
                self._add(run_id, file.device_slug)

    def take(self, run: ImportedRun) -> str | None:
        """Write the part of a run that the store lacks; return the run's id if the store has all of it already."""
        run_id = self.run_id_of(run)
        kinds = {record.device_name: record.device_kind for record in run.records}
        slugs = {name: device_slug(name, kind) for name, kind in kinds.items()}
        # A device model's records are one file, the last that is written of it.
        missing = sorted(set(slugs.values()) - self._slugs[run_id])
        for slug in missing:
            names = {name for name in slugs if slugs[name] == slug}
            records = [replace(one, run_id=run_id) for one in run.records if one.device_name in names]
            samples = [replace(one, run_id=run_id) for one in run.samples if one.device_name in names]
            where = {"run_id": run_id, "device_slug": slug, "month": f"{run_id[:4]}-{run_id[4:6]}"}
            try:
                write_run(self._place, **where, records=records, samples=samples)
            except TypeError as error:
                raise ImportFailedError(f"{run.source}: holds what a store does not take: {error}") from error
            self._add(run_id, slug)
        return None if missing else run_id

    def run_id_of(self, run: ImportedRun) -> str:
        """Return the id of a run in the store; it differs where the same file was imported with another time."""
        return self._known.get(run.run_id) or self._known.get(_content(run.run_id)) or run.run_id

    def _add(self, run_id: str, slug: str) -> None:
        self._slugs[run_id].add(slug)
        self._known[run_id] = self._known[_content(run_id)] = run_id


def _content(run_id: str) -> str:
    """Return the hash of the imported file in a run id, by which it is the same run with another time, else the id."""
    return _IMPORTED.sub(r"\1", run_id)


def import_runs(
    store: str,
    tool: str,
    paths: Iterable[str],
    *,
    implementation: str | None = None,
    when: str | None = None,
    device_name: str | None = None,
) -> list[dict[str, Any]]:
    """Import runs, and return a row for each file: its outcome, and what was left out. The arguments are those of `pairbench import`."""

    def on_device(read: Callable[..., ForeignRun]) -> ForeignRun:
        run = read(at_commit=when == COMMITTED)
        if device_name is None:
            return run
        device = Device(selector="cuda", kind="cuda", name=device_name)  # restored records keep their own device
        return run._replace(environment=replace(run.environment, device=device))

    pairing = Pairing.parse(implementation) if implementation else None
    sources = [(name, partial(on_device, read)) for path in dict.fromkeys(paths) for name, read in _sources(tool, path)]
    _look(sources, pairing, order=tool == ASV and when is None)
    intake = Intake(store)
    return [_imported(source, pairing, intake) for source in sources]


def _sources(tool: str, path: str) -> Iterator[tuple[str, Callable[..., ForeignRun]]]:
    if tool != ASV:
        yield path, partial(read_benchmark_json, path)
        return
    try:
        files, benchmarks = find_results(path)
    except ImportFailedError as error:
        yield path, partial(_fail, error)
    else:
        yield from ((str(file), partial(read_asv_file, file, benchmarks)) for file in files)


def _fail(error: Exception, **_: object) -> ForeignRun:
    raise error


def _look(sources: Sequence[_Source], pairing: Pairing | None, *, order: bool) -> None:
    """Raise before anything is stored where the options do not fit the files."""
    if pairing is None and not order:
        return
    series: defaultdict[tuple[str, str], list[Origin]] = defaultdict(list)
    axes: defaultdict[str, set[str]] = defaultdict(set)
    has_results = False
    for _, read in sources:  # one by one, for a history is long
        with contextlib.suppress(ImportFailedError):  # it is read again, and then named
            run = read()
            series[run.environment.hostname, run.environment.hash].append(run.origin)
            has_results = has_results or bool(run.results)
            for axis, value in (pair for result in run.results for pair in result.axes):
                axes[axis].add(format_value(value))
    if pairing and has_results:  # else nothing could be read, and that is what has to be said
        pairing.check(axes)
    if order and (count := sum(map(foreign.inversions, series.values()))):
        what = f"{count} of {sum(map(len, series.values()))} runs were measured before one of an earlier commit"
        how = "--when committed orders runs by their commits, as asv's own graphs do, --when measured by their clocks"
        raise UsageError(f"{what}, so nothing was imported: {how}")


def _imported(source: _Source, pairing: Pairing | None, intake: Intake) -> dict[str, Any]:
    name, read = source
    row: dict[str, Any] = {"source": name, "outcome": NOT_IMPORTED, "run_id": None, "commit": None}
    try:
        measurement = read()
        rows = rows_of(measurement, pairing)
        there = intake.take(rows)
    except (UsageError, StoreFailedError) as error:
        return row | {"reason": str(error)}
    return row | {
        "outcome": "in the store already" if there else "imported",
        "run_id": intake.run_id_of(rows),
        "commit": measurement.origin.commit,
        "records": len(rows.records),
        "samples": sum(len(item.call_ns) for item in rows.samples),
        "left_out": dict(Counter(rows.left_out)),
    }


class AsvTable(NamedTuple):
    name: str
    kind: str
    started_at: object
    results: tuple[foreign.Result, ...]

    @classmethod
    def of(cls, name: str, row: object, columns: list[Any], benchmarks: Mapping[str, Any], where: str) -> "AsvTable":
        if not isinstance(row, list):
            raise ImportFailedError(f"{where} has {row!r:.60} for {name!r}, expected a list")
        cells = dict(zip(columns, row, strict=False))  # asv leaves nulls at the end out
        known = foreign.optional(benchmarks, name, dict) or {}
        params = cells.get("params") or []
        if not isinstance(params, list) or not all(isinstance(values, list) for values in params):
            raise ImportFailedError(f"{where} has the params {params!r:.60} for {name!r}, expected lists of values")
        points = tuple(itertools.product(*(map(str, values) for values in params)))
        names = foreign.optional(known, "param_names", list) or []
        names = [names[place] if place < len(names) else f"param{place + 1}" for place in range(len(params))]
        kind = str(known.get("type") or _PREFIXES.get(name.rpartition(".")[2].partition("_")[0], "another kind"))

        def each(column: str) -> list[object]:
            values = cells.get(column)
            values = values if isinstance(values, list) else [None] * len(points)
            if len(values) != len(points):
                expected = f"expected {len(points)}: one for each value of its parameters"
                raise ImportFailedError(f"{where} has {len(values)} of {column!r} for {name!r}, {expected}")
            return values

        # The module as a file, and the function in it with its class: names that begin with a capital are classes.
        *parts, function = name.split(".")
        modules = list(itertools.takewhile(lambda part: not part[:1].isupper(), parts))
        suite, operator = "/".join(modules or ["__init__"]) + ".py", ".".join([*parts[len(modules) :], function])
        results = []
        measures = zip(*map(each, ("result", "samples", "stats_number", "stats_repeat")), strict=True)
        for point, (value, samples, calls, repeats) in zip(points, measures, strict=True):
            status, reason = _status(value, kind)
            measured = status == "measured"
            timing = foreign.timing("asv", foreign.latency_ns(value) or 0.0, samples, repeats, calls)
            axes = ((foreign.word(str(name)), foreign.literal(text)) for name, text in zip(names, point, strict=True))
            results.append(
                foreign.Result(
                    suite=suite,
                    operator=operator,
                    axes=tuple(sorted(axes, key=str)),
                    label=", ".join(point),
                    status=status,
                    reason=reason,
                    timing=timing if measured and kind == _TIME else None,
                    peak_bytes=foreign.count(int(foreign.number(value))) if measured and kind == _PEAK else None,
                    definition_hash=foreign.optional(cells, "version", str),
                )
            )
        return cls(name, kind, cells.get("started_at"), tuple(results))


def _status(value: object, kind: str) -> tuple[str, str | None]:
    if value is None:
        return "failed", "asv has no result for it: it failed, or took too long"
    result = foreign.number(value)
    if math.isnan(result) and isinstance(value, float):
        return "skipped", "asv skipped it: its setup raised NotImplementedError"
    if not 0 < result < math.inf or (kind == _TIME and not foreign.latency_ns(value)):
        return "failed", f"asv has the result {value!r:.40}, expected a positive number"
    return "measured", None


def joined(tables: Iterable[AsvTable]) -> Iterator[foreign.Result]:
    """Yield the results; the peak memory of `peakmem_x` joins the latency of `time_x` where both exist."""
    tables = list(tables)
    memory = (result for table in tables if table.kind == _PEAK for result in table.results)
    peaks = {(result.suite, _stem(result.operator), result.axes): result for result in memory}
    for table in tables:
        if table.kind == _TIME:
            for result in table.results:
                peak = peaks.pop((result.suite, _stem(result.operator), result.axes), None)
                yield replace(result, peak_bytes=peak.peak_bytes) if peak else result
    for peak in peaks.values():
        measured = peak.status == "measured"
        reason = "asv measured its peak memory, and there is no time_* of the same name" if measured else peak.reason
        yield replace(peak, status="skipped" if measured else peak.status, reason=reason)


def _stem(operator: str) -> str:
    """Return the common part of `Norm.time_rms` and `Norm.peakmem_rms`."""
    owner, dot, function = operator.rpartition(".")
    prefix, _, rest = function.partition("_")
    return f"{owner}{dot}{rest}" if prefix in _PREFIXES else operator


def find_results(folder: str | Path) -> tuple[tuple[Path, ...], Mapping[str, Any]]:
    """Return the result files in asv's `results_dir`, or in one machine's folder of it, and descriptions of benchmarks by name."""
    root = Path(folder)
    documents = (file for file in root.rglob("*.json") if file.name not in ("machine.json", "benchmarks.json"))
    files = tuple(sorted(file for file in documents if (file.parent / "machine.json").is_file()))
    if not files:
        what = "holds no results" if root.is_dir() else "is no folder"
        expected = "expected asv's results_dir with MACHINE/machine.json and a file for each commit beside it"
        raise ImportFailedError(f"{folder}: {what}, {expected}")
    for file in (root / "benchmarks.json", root.parent / "benchmarks.json"):
        if file.is_file():
            return files, foreign.read_document(file, "the list of benchmarks that asv writes")[0]
    return files, {}


def read_asv_file(path: Path, benchmarks: Mapping[str, Any], *, at_commit: bool = False) -> foreign.ForeignRun:
    """Return the run in one result file; with `at_commit` its time is that of its commit, for a history that was measured afterwards."""
    document, content = foreign.read_document(path, EXPECTED)
    where = f"{path}:"
    if document.get("version") != 2 or not isinstance(document.get("result_columns"), list):
        what = f"is of version {document.get('version')!r}"
        raise ImportFailedError(f"{where} {what}, expected {EXPECTED}; `asv update` brings older ones up to date")
    rows = field_of(document, "results", dict, where, ImportFailedError)
    columns = [str(name) for name in document["result_columns"]]
    tables = [AsvTable.of(name, row, columns, benchmarks, where) for name, row in sorted(rows.items())]
    committed = _moment(document.get("date"), f"{where} 'date'")
    measured = min((_moment(table.started_at, where) for table in tables if table.started_at), default=committed)
    kept, twice = foreign.told_apart(list(joined(tables)))
    if not kept:
        raise ImportFailedError(f"{where} holds no time_* or peakmem_* benchmark, expected at least one")
    others = (table.name for table in tables if table.kind not in (_TIME, _PEAK) for _ in table.results)
    started = committed if at_commit else measured
    existing = str(document.get("env_name") or _EXISTING).startswith(_EXISTING)
    origin = foreign.Origin(
        run_id=foreign.run_id_of(started, content),
        started_at=foreign.moment_of(started),
        commit=foreign.optional(document, "commit_hash", str),
        commit_at=committed.isoformat(timespec="seconds"),
        dirty=None if existing else False,
    )
    environment = _environment(document, path, measured if at_commit else None)
    return foreign.ForeignRun(str(path), origin, environment, kept, left_out=(*others, *twice))


def _moment(value: object, where: str) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(foreign.number(value) * 1e-3, dt.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ImportFailedError(f"{where} is {value!r:.40}, expected milliseconds since 1970") from error


def _environment(document: dict[str, Any], path: Path, measured: dt.datetime | None) -> Environment:
    params = foreign.optional(document, "params", dict) or {}
    requirements = foreign.optional(document, "requirements", dict) or {}
    cpu = str(params.get("cpu") or params.get("arch") or params.get("machine") or path.parent.name).strip()
    rest: dict[str, Any] = {
        "environment": document.get("env_name"),
        "packages": requirements,
        "variables": document.get("env_vars"),
        "machine": {name: params.get(name) for name in ("os", "arch", "num_cpu", "ram")},
    }
    if measured is not None:
        rest["observed"] = {"measured_at": foreign.moment_of(measured)}
    versions = (requirements.get("torch"), document.get("python"))
    torch, python = (str(version or foreign.UNKNOWN) for version in versions)
    host = str(params.get("machine") or path.parent.name)
    return foreign.cpu_environment(cpu, torch=torch, python=python, hostname=host, rest=rest)
