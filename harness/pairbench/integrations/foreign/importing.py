"""Imports files of other tools as runs of the store, each once."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pairbench.errors import StoreFailedError, UsageError
from pairbench.integrations.asv.read import find_results, read_asv_file
from pairbench.integrations.foreign.into_store import Intake
from pairbench.integrations.foreign.pairing import Pairing
from pairbench.integrations.foreign.records import rows_of
from pairbench.integrations.foreign.values import ForeignRun, ImportFailedError, Origin, Result, inversions
from pairbench.integrations.pytest_benchmark.read import read_benchmark_json

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
    """Take runs into a store and return a row for each file: what became of it, and what was left out of it.

    Raises:
        UsageError: the pairing pairs nothing, or the order of the runs is not clear; nothing is stored then.
        StoreError: the store cannot be listed.
    """
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
    """Find out before anything is stored whether the options fit the files.

    Raises:
        UsageError: the pairing pairs nothing, or the order of the runs is not clear.
    """
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
