"""Runs of a store for other tools: as a file of pytest-benchmark, or as CSV with every column."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pairbench.config import Config
from pairbench.errors import StoreError, UsageError
from pairbench.integrations.pytest_benchmark.write import benchmark_document
from pairbench.model.plain import plain
from pairbench.model.record import Record, columns
from pairbench.report.render import to_json
from pairbench.store.reader import read_samples
from pairbench.workflow.compare.selectors import Picked, RunSelector
from pairbench.workflow.setup import store_of


@dataclass(frozen=True, kw_only=True)
class PickedRuns:
    """The runs to export, with their records."""

    picked: Picked
    """Which runs these are, and where they lie."""
    records: tuple[Record, ...]
    """All records of the runs."""
    problems: tuple[str, ...]
    """What could not be read."""


def pick_runs(config: Config, name: str) -> PickedRuns:
    """Return the runs that a name stands for, as `pairbench compare` understands names.

    Raises:
        StoreError: there is no such run, or nothing of it can be read.
    """
    selector = RunSelector.of_store(store_of(config), config.root)
    picked = selector.pick(name)
    read, problems = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    records = tuple(record for record in read if record.run_id in ids)
    problems = tuple(dict.fromkeys([*picked.index.problems, *problems, *selector.notes]))
    if not records:
        raise StoreError(f"nothing of {name!r} can be read: {'; '.join(problems) or 'it has no rows'}")
    return PickedRuns(picked=picked, records=records, problems=problems)


def benchmarks_of(runs: PickedRuns) -> tuple[str, tuple[str, ...]]:
    """Return a run as a file of pytest-benchmark, and the names of what has no latency and so no part in it.

    Raises:
        UsageError: the runs are several.
    """
    picked = runs.picked
    # What measured a run's suspects again is a run of its own; it is exported by its own id.
    own = [head.run_id for head in picked.heads if head.confirms is None] or [head.run_id for head in picked.heads]
    if len(own) > 1:
        raise UsageError(
            f"{picked.asked!r} is {len(own)} runs ({', '.join(sorted(own)[:3])}, ...), and a file of pytest-benchmark holds "
            "one; name one of them"
        )
    samples = () if picked.index.is_file else read_samples(picked.index.place, own[0]).value
    exported = benchmark_document([record for record in runs.records if record.run_id == own[0]], samples)
    return to_json(exported.document), tuple(exported.not_measured)


def csv_of(records: Sequence[Record]) -> str:
    """Return records as CSV with a header; what is null is empty."""
    names = list(columns(Record))
    rows = [[_cell(getattr(record, name)) for name in names] for record in records]
    # Objects, so that counts beside nulls stay whole numbers.
    text: str = pd.DataFrame(rows, columns=names, dtype=object).to_csv(index=False, lineterminator="\n")
    return text


def _cell(value: Any) -> Any:
    return json.dumps(plain(value)) if isinstance(value, tuple) else value
