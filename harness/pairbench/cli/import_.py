"""`pairbench import`."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.workflow.setup import configure

if TYPE_CHECKING:
    from pairbench.integrations.foreign.into_store import Intake
    from pairbench.integrations.foreign.pairing import Pairing
    from pairbench.integrations.foreign.values import ForeignRun, Origin, Result


class Tool(StrEnum):
    """Whose results can be imported."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    ASV = "asv"


class When(StrEnum):
    """What a run's time is."""

    MEASURED = "measured"
    COMMITTED = "committed"


def import_(
    tool: Annotated[Tool, typer.Argument(metavar="TOOL", help="pytest-benchmark or asv.", show_default=False)],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="For pytest-benchmark, JSON files that it saved. For asv, its results_dir. Each file becomes one run.",
            show_default=False,
        ),
    ],
    implementation: Annotated[
        str | None,
        typer.Option(
            "--implementation",
            metavar="AXIS[:BASELINE]",
            help="The parameter whose values are implementations of one operator, and its value for the plain one "
            "(default: baseline). Without it every benchmark is a baseline of its own, and there are no speedups.",
            show_default=False,
        ),
    ] = None,
    when: Annotated[
        When | None,
        typer.Option(
            "--when",
            help="What a run's time is, by which runs are ordered: when it was measured (default), or when its commit was "
            "made. A history that asv measured in another order than its commits were made needs one of them.",
            show_default=False,
        ),
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name",
            help="Model of the GPU that the benchmarks ran on, which these files do not tell. Default: the CPU they name.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Take over what pytest-benchmark or asv measured. A run for each file, so that trend, compare and dashboard show it.

    A run that is in the store already is left as it is. P95 is kept where the file has samples of single calls; what is
    neither a latency nor a peak of memory is left out and named. Files in which pairbench's own pytest plugin or
    `pairbench export` put its columns are restored.

    Exit code: 1 where something could not be imported, while all the rest was; 2 for an --implementation that pairs
    nothing, or where --when is needed; else 0.

    Example: pairbench import pytest-benchmark .benchmarks/*/*.json --implementation backend:torch
    """
    from pairbench.integrations.foreign.into_store import Intake
    from pairbench.integrations.foreign.pairing import Pairing

    config = configure(output, store=store)
    pairing = Pairing.parse(implementation) if implementation else None
    sources = list(_sources(tool, paths, device_name, at_commit=when is When.COMMITTED))
    _look(sources, pairing, order=tool is Tool.ASV and when is None)
    intake = Intake(config.store)
    rows = [_imported(source, pairing, intake) for source in sources]
    typer.echo(_render(rows, output), nl=False)
    _tell(rows)
    if any(row["outcome"] == _NOT for row in rows):
        raise typer.Exit(1)


_NEW, _THERE, _NOT = "imported", "in the store already", "not imported"


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A file, and how to read it."""

    name: str
    read: "Callable[[], ForeignRun]"


def _sources(tool: Tool, paths: Iterable[str], device_name: str | None, *, at_commit: bool) -> Iterator[_Source]:
    from pairbench.integrations.asv.read import find_results, read_asv_file
    from pairbench.integrations.foreign.values import ImportFailedError
    from pairbench.integrations.pytest_benchmark.read import read_benchmark_json

    for path in dict.fromkeys(paths):
        if tool is Tool.PYTEST_BENCHMARK:
            read = partial(read_benchmark_json, path, at_commit=at_commit)
            yield _Source(name=path, read=partial(_on_device, read, device_name))
            continue
        try:
            folder = find_results(path)
        except ImportFailedError as error:
            yield _Source(name=path, read=partial(_fail, error))
            continue
        for file in folder.files:
            read = partial(read_asv_file, file, folder.benchmarks, at_commit=at_commit)
            yield _Source(name=str(file), read=partial(_on_device, read, device_name))


def _on_device(read: "Callable[[], ForeignRun]", device_name: str | None) -> "ForeignRun":
    run = read()
    return run.on_gpu(device_name) if device_name else run


def _fail(error: Exception) -> "ForeignRun":
    raise error


def _look(sources: "Sequence[_Source]", pairing: "Pairing | None", *, order: bool) -> None:
    """Find out before anything is stored whether the options fit the files.

    Raises:
        UsageError: the pairing pairs nothing, or the order of the runs is not clear.
    """
    from pairbench.errors import UsageError
    from pairbench.integrations.foreign.values import inversions

    if pairing is None and not order:
        return
    series: defaultdict[tuple[str, str], list[Origin]] = defaultdict(list)

    def results() -> "Iterator[Result]":
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


def _readable(sources: "Iterable[_Source]") -> "Iterator[ForeignRun]":
    from pairbench.integrations.foreign.values import ImportFailedError

    for source in sources:
        try:
            yield source.read()
        except ImportFailedError:
            continue  # it is read again, and then named


def _imported(source: _Source, pairing: "Pairing | None", intake: "Intake") -> dict[str, Any]:
    from pairbench.errors import UsageError
    from pairbench.integrations.foreign.records import rows_of

    row: dict[str, Any] = {"source": source.name, "outcome": _NOT, "run_id": None, "commit": None}
    try:
        found = source.read()
        rows = rows_of(found, pairing)
        there = intake.take(rows)
    except UsageError as error:
        return row | {"reason": str(error)}
    return row | {
        "outcome": _THERE if there else _NEW,
        "run_id": there or rows.run_id,
        "commit": found.origin.commit,
        "records": len(rows.records),
        "samples": sum(len(item.call_ns) for item in rows.samples),
        "left_out": dict(Counter(rows.left_out)),
    }


def _render(rows: list[dict[str, Any]], output: str) -> str:
    from pairbench.report.render import render_rows

    if output != "json":  # the names, and the reasons, are told on stderr
        rows = [
            {**row, "commit": (row.get("commit") or "")[:10], "left_out": sum(row.get("left_out", {}).values())}
            for row in rows
        ]
        rows = [{name: value for name, value in row.items() if name != "reason"} for row in rows]
    return render_rows("imports", rows, output)


def _tell(rows: list[dict[str, Any]]) -> None:
    """Say on stderr what was not imported, and in one line what was left out of all files."""
    left_out: Counter[str] = Counter()
    for row in rows:
        left_out.update(row.get("left_out", {}))
        if row["outcome"] == _NOT:
            typer.echo(f"pairbench: {row['reason']}", err=True)
    if left_out:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(left_out.items()))
        typer.echo(
            f"pairbench: {left_out.total()} values left out, neither a latency nor a peak of memory, or there twice: {names}",
            err=True,
        )
