"""`pairbench export`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.files import write_text
from pairbench.cli.options import StoreOption
from pairbench.workflow.setup import configure

if TYPE_CHECKING:
    from pairbench.model.record import Record
    from pairbench.workflow.compare.selectors import Picked


class Form(StrEnum):
    """What a run can be written as."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    CSV = "csv"


def export(
    form: Annotated[Form, typer.Argument(metavar="FORM", help="pytest-benchmark or csv.", show_default=False)],
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="Which run, named as in `pairbench compare`: latest, a run id or its beginning, a commit, branch or tag, "
            "a parquet file, or another store. csv takes several, too: last:N, or dates like 2026-11-01..2026-11-07.",
        ),
    ] = "latest",
    target: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to. Default: standard output.", show_default=False),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a run for pytest-benchmark, or as CSV. Its own compare reads the one; the other has every column.

    The statistics of a pytest-benchmark file are of the raw samples where the store has them, else of the medians of
    rounds; `extra_info.stats_of` says which. `pairbench import` restores such a file to the records that it was made of.

    Exit code: 2 where there is no such run, or the file cannot be written; else 0.

    Example: pairbench export pytest-benchmark latest --output run.json && pytest-benchmark compare run.json
    """
    config = configure(store=store)
    picked, records = _read(config.store, run, config.root)
    text = _as_csv(records) if form is Form.CSV else _as_benchmarks(picked, records)
    if target is None:
        typer.echo(text, nl=False)
    else:
        write_text(Path(target), text)


def _read(store: str, run: str, root: Path) -> "tuple[Picked, tuple[Record, ...]]":
    from pairbench.errors import StoreError
    from pairbench.workflow.compare.selectors import RunSelector

    selector = RunSelector.of_store(store, root)
    picked = selector.pick(run)
    found, problems = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    records = tuple(record for record in found if record.run_id in ids)
    problems = tuple(dict.fromkeys([*picked.index.problems, *problems, *selector.notes]))
    if not records:
        raise StoreError(f"nothing of {run!r} can be read: {'; '.join(problems) or 'it has no rows'}")
    for problem in problems:
        typer.echo(f"pairbench: {problem}", err=True)
    return picked, records


def _as_csv(records: "tuple[Record, ...]") -> str:
    from pairbench.integrations.export_csv import csv_of

    return csv_of(records)


def _as_benchmarks(picked: "Picked", records: "tuple[Record, ...]") -> str:
    from pairbench.errors import UsageError
    from pairbench.integrations.pytest_benchmark.write import benchmark_document
    from pairbench.report.render import to_json
    from pairbench.store.reader import read_samples

    # What measured a run's suspects again is a run of its own; it is exported by its own id.
    own = [head.run_id for head in picked.heads if head.confirms is None] or [head.run_id for head in picked.heads]
    if len(own) > 1:
        raise UsageError(
            f"{picked.asked!r} is {len(own)} runs ({', '.join(sorted(own)[:3])}, ...), and a file of pytest-benchmark holds "
            "one; name one of them"
        )
    samples = () if picked.index.is_file else read_samples(picked.index.place, own[0]).value
    found = benchmark_document([record for record in records if record.run_id == own[0]], samples)
    if found.not_measured:
        typer.echo(
            f"pairbench: {len(found.not_measured)} without a latency, which pytest-benchmark has no place for: "
            f"{', '.join(found.not_measured)}",
            err=True,
        )
    return to_json(found.document)
