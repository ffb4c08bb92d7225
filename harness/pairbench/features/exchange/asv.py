"""Reads a folder of results that `asv run` wrote: one run for each commit, machine and environment."""

import datetime as dt
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.features.exchange import foreign
from pairbench.features.exchange.foreign import ImportFailedError
from pairbench.model.environment import Environment
from pairbench.model.plain import field_of

_TIME, _PEAK = "time", "peakmemory"
_PREFIXES = {"time": _TIME, "timeraw": _TIME, "peakmem": _PEAK}


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


EXPECTED = "a result file of asv (api version 2)"
_EXISTING = "existing"  # in such environments asv did not check the code out, which may differ from the commit's


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
    return foreign.ForeignRun(
        source=str(path),
        origin=foreign.Origin(
            run_id=foreign.run_id_of(started, content),
            started_at=foreign.moment_of(started),
            commit=foreign.optional(document, "commit_hash", str),
            commit_at=committed.isoformat(timespec="seconds"),
            dirty=None if existing else False,
        ),
        environment=_environment(document, path, measured if at_commit else None),
        results=kept,
        left_out=(*others, *twice),
    )


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
    return foreign.cpu_environment(
        cpu,
        torch=str(requirements.get("torch") or foreign.UNKNOWN),
        python=str(document.get("python") or foreign.UNKNOWN),
        hostname=str(params.get("machine") or path.parent.name),
        rest=rest,
    )
