"""Imports files of other tools as runs of the store, each once.

Puts imported runs into a store, each once.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pairbench.errors import StoreFailedError, UsageError
from pairbench.features.exchange.asv import find_results, read_asv_file
from pairbench.features.exchange.pytest_benchmark import read_benchmark_json
from pairbench.features.exchange.records import ImportedRun, Pairing, rows_of
from pairbench.features.exchange.values import ForeignRun, ImportFailedError, Origin, Result, inversions
from pairbench.model.environment import device_slug
from pairbench.model.record import Record, Samples
from pairbench.store.location import StoreLocation
from pairbench.store.reading import stored_files
from pairbench.store.writer import write_run

Row = TypeVar("Row", Record, Samples)

_IMPORTED = re.compile(r"\d{8}T\d{6}-([0-9a-f]{16})")


class Intake:
    """A store that takes runs in."""

    def __init__(self, store: str | Path) -> None:
        """Find out which runs are there."""
        self._place = StoreLocation.of(store)
        self._known: dict[str, str] = {}
        self._slugs: defaultdict[str, set[str]] = defaultdict(set)
        for file in stored_files(self._place, "records").files:
            for run_id in file.run_ids:
                self._add(run_id, file.device_slug)

    def take(self, run: ImportedRun) -> str | None:
        """Store what the store has not of a run, which may have been interrupted as it was imported."""
        run_id = self.run_id_of(run)
        kinds = {record.device_name: record.device_kind for record in run.records}
        slugs = {name: device_slug(name, kind) for name, kind in kinds.items()}
        # A device model's records are one file, the last that is written of it.
        missing = sorted(set(slugs.values()) - self._slugs[run_id])
        for slug in missing:
            names = {name for name in slugs if slugs[name] == slug}
            try:
                write_run(
                    self._place,
                    run_id=run_id,
                    device_slug=slug,
                    month=f"{run_id[:4]}-{run_id[4:6]}",
                    records=_own(run.records, names, run_id),
                    samples=_own(run.samples, names, run_id),
                )
            except TypeError as error:
                raise ImportFailedError(f"{run.source}: holds what a store does not take: {error}") from error
            self._add(run_id, slug)
        return None if missing else run_id

    def run_id_of(self, run: ImportedRun) -> str:
        """Return the id that a run has in the store: another one where its file was imported with another time."""
        return self._known.get(run.run_id) or self._known.get(_content(run.run_id)) or run.run_id

    def _add(self, run_id: str, slug: str) -> None:
        self._slugs[run_id].add(slug)
        self._known[run_id] = run_id
        if content := _content(run_id):
            self._known[content] = run_id


def _content(run_id: str) -> str:
    """Return what an id says of the file that a run was imported from: the same file at another time is the same run."""
    match = _IMPORTED.fullmatch(run_id)
    return match[1] if match else ""


def _own(rows: Sequence[Row], device_names: set[str], run_id: str) -> list[Row]:
    """Return the rows of some devices, under the id that the run has in the store."""
    return [replace(row, run_id=run_id) for row in rows if row.device_name in device_names]


ASV = "asv"
COMMITTED = "committed"
_NEW, _THERE = "imported", "in the store already"
NOT_IMPORTED = "not imported"


@dataclass(frozen=True, kw_only=True)
class WantedImport:
    """What to import, and how to read it."""

    tool: str
    """`asv` or `pytest-benchmark`."""
    paths: tuple[str, ...]
    """Files of pytest-benchmark, or results folders of asv."""
    implementation: str | None = None
    """`AXIS[:BASELINE]`: the parameter whose values are implementations; None where every benchmark stands alone."""
    when: str | None = None
    """`committed` or `measured`: what a run's time is; None for when it was measured, if that is the commits' order."""
    device_name: str | None = None
    """The GPU that was measured; None for the CPU that the files name."""


def import_runs(store: str, wanted: WantedImport) -> list[dict[str, Any]]:
    """Take runs into a store and return a row for each file: what became of it, and what was left out of it."""
    pairing = Pairing.parse(wanted.implementation) if wanted.implementation else None
    sources = list(_sources(wanted))
    _look(sources, pairing, order=wanted.tool == ASV and wanted.when is None)
    intake = Intake(store)
    return [_imported(source, pairing, intake) for source in sources]


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A file, and how to read it."""

    name: str
    """The path as messages show it."""
    read: Callable[[], ForeignRun]


def _sources(wanted: WantedImport) -> Iterator[_Source]:
    for path in dict.fromkeys(wanted.paths):
        if wanted.tool != ASV:
            read = partial(read_benchmark_json, path, at_commit=wanted.when == COMMITTED)
            yield _Source(name=path, read=partial(_on_device, read, wanted.device_name))
            continue
        try:
            folder = find_results(path)
        except ImportFailedError as error:
            yield _Source(name=path, read=partial(_fail, error))
            continue
        for file in folder.files:
            read = partial(read_asv_file, file, folder.benchmarks, at_commit=wanted.when == COMMITTED)
            yield _Source(name=str(file), read=partial(_on_device, read, wanted.device_name))


def _on_device(read: Callable[[], ForeignRun], device_name: str | None) -> ForeignRun:
    run = read()
    return run.on_gpu(device_name) if device_name else run


def _fail(error: Exception) -> ForeignRun:
    raise error


def _look(sources: Sequence[_Source], pairing: Pairing | None, *, order: bool) -> None:
    """Find out before anything is stored whether the options fit the files."""
    if pairing is None and not order:
        return
    series: defaultdict[tuple[str, str], list[Origin]] = defaultdict(list)

    def results() -> Iterator[Result]:
        for run in _readable(sources):
            series[run.environment.hostname, run.environment.hash].append(run.origin)
            yield from run.results

    if pairing:
        pairing.check(results())
    else:
        deque(results(), maxlen=0)
    if order and (count := sum(map(inversions, series.values()))):
        raise UsageError(
            f"{count} of {sum(map(len, series.values()))} runs were measured before one of an earlier commit, so nothing was "
            "imported: --when committed orders runs by their commits, as asv's own graphs do, --when measured by their clocks"
        )


def _readable(sources: Iterable[_Source]) -> Iterator[ForeignRun]:
    for source in sources:
        try:
            yield source.read()
        except ImportFailedError:
            continue  # it is read again, and then named


def _imported(source: _Source, pairing: Pairing | None, intake: Intake) -> dict[str, Any]:
    row: dict[str, Any] = {"source": source.name, "outcome": NOT_IMPORTED, "run_id": None, "commit": None}
    try:
        measurement = source.read()
        rows = rows_of(measurement, pairing)
        there = intake.take(rows)
    except (UsageError, StoreFailedError) as error:
        return row | {"reason": str(error)}
    return row | {
        "outcome": _THERE if there else _NEW,
        "run_id": intake.run_id_of(rows),
        "commit": measurement.origin.commit,
        "records": len(rows.records),
        "samples": sum(len(item.call_ns) for item in rows.samples),
        "left_out": dict(Counter(rows.left_out)),
    }
