"""Reads a folder of results that `asv run` wrote: one run for each commit, machine and environment."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairbench.integrations.asv.table import AsvTable, foreign, joined
from pairbench.integrations.foreign.reading import field as field_of
from pairbench.integrations.foreign.reading import number, optional, read_document
from pairbench.integrations.foreign.values import (
    UNKNOWN,
    ForeignRun,
    ImportFailedError,
    Origin,
    moment_of,
    run_id_of,
    told_apart,
)
from pairbench.model.environment import Device, Environment

EXPECTED = "a result file of asv (api version 2)"

_VERSION = 2
_NOT_RESULTS = ("machine.json", "benchmarks.json")
_MS = 1e-3
_EXISTING = "existing"
"""Environments whose code asv did not check out itself, so that nothing tells whether it was that of the commit."""


@dataclass(frozen=True, kw_only=True)
class AsvFolder:
    """A folder of results: the files, and what the benchmarks in them are."""

    files: tuple[Path, ...]
    benchmarks: Mapping[str, Any] = field(default_factory=dict)
    """Descriptions of benchmarks by name; empty where `benchmarks.json` is not there."""


def find_results(folder: str | Path) -> AsvFolder:
    """Return the result files in a folder: what asv calls `results_dir`, or one machine's folder in it.

    Raises:
        ImportFailedError: there are none, or what the benchmarks are cannot be read.
    """
    root = Path(folder)
    files = tuple(
        sorted(
            file
            for file in root.rglob("*.json")
            if file.name not in _NOT_RESULTS and (file.parent / "machine.json").is_file()
        )
    )
    if not files:
        what = "holds no results" if root.is_dir() else "is no folder"
        raise ImportFailedError(
            f"{folder}: {what}, expected asv's results_dir with MACHINE/machine.json and a file for each commit beside it"
        )
    for place in (root, root.parent):
        if (place / "benchmarks.json").is_file():
            document, _ = read_document(place / "benchmarks.json", "the list of benchmarks that asv writes")
            return AsvFolder(files=files, benchmarks=document)
    return AsvFolder(files=files)


def read_asv_file(path: Path, benchmarks: Mapping[str, Any], *, at_commit: bool = False) -> ForeignRun:
    """Return what one result file holds.

    Args:
        path: The file.
        benchmarks: What is known of the benchmarks, by name.
        at_commit: Whether the run counts as made when its commit was, for a history that was measured afterwards.

    Raises:
        ImportFailedError: it is not what was expected.
    """
    document, content = read_document(path, EXPECTED)
    where = f"{path}:"
    if document.get("version") != _VERSION or not isinstance(document.get("result_columns"), list):
        raise ImportFailedError(
            f"{where} is of version {document.get('version')!r}, expected {EXPECTED}; `asv update` brings older ones up to date"
        )
    rows = field_of(document, "results", dict, where)
    columns = [str(name) for name in document["result_columns"]]
    tables = [AsvTable.of(name, row, columns, benchmarks, where) for name, row in sorted(rows.items())]
    committed = _moment(document.get("date"), f"{where} 'date'")
    measured = min((_moment(table.started_at, where) for table in tables if table.started_at), default=committed)
    kept, twice = told_apart(list(joined(tables)))
    if not kept:
        raise ImportFailedError(f"{where} holds no time_* or peakmem_* benchmark, expected at least one")
    return ForeignRun(
        source=str(path),
        origin=_origin(document, content, committed, measured, at_commit=at_commit),
        environment=_environment(document, path, measured if at_commit else None),
        results=kept,
        left_out=(*foreign(tables), *twice),
    )


def _moment(value: object, where: str) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(number(value) * _MS, dt.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ImportFailedError(f"{where} is {value!r:.40}, expected milliseconds since 1970") from error


def _origin(
    document: dict[str, Any], content: bytes, committed: dt.datetime, measured: dt.datetime, *, at_commit: bool
) -> Origin:
    started = committed if at_commit else measured
    existing = str(document.get("env_name") or _EXISTING).startswith(_EXISTING)
    return Origin(
        run_id=run_id_of(started, content),
        started_at=moment_of(started),
        commit=optional(document, "commit_hash", str),
        commit_at=committed.isoformat(timespec="seconds"),
        dirty=None if existing else False,
    )


def _environment(document: dict[str, Any], path: Path, measured: dt.datetime | None) -> Environment:
    params = optional(document, "params", dict) or {}
    requirements = optional(document, "requirements", dict) or {}
    cpu = str(params.get("cpu") or params.get("arch") or params.get("machine") or path.parent.name).strip()
    rest: dict[str, Any] = {
        "environment": document.get("env_name"),
        "packages": requirements,
        "variables": document.get("env_vars"),
        "machine": {name: params.get(name) for name in ("os", "arch", "num_cpu", "ram")},
    }
    if measured is not None:
        rest["observed"] = {"measured_at": moment_of(measured)}
    return Environment(
        device=Device(selector="cpu", kind="cpu", name=cpu),
        driver=None,
        cuda=None,
        cudnn=None,
        torch=str(requirements.get("torch") or UNKNOWN),
        triton=None,
        python=str(document.get("python") or UNKNOWN),
        hostname=str(params.get("machine") or path.parent.name),
        cpu=cpu,
        rest=rest,
    )
