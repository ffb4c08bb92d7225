"""Accepting the present level of series on purpose: which series a text names in a run, and what is stored of them."""

import contextlib
import datetime as dt
import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairbench.analyze.compare.accepted import acceptance_of
from pairbench.config import Config
from pairbench.errors import SelectionError, StoreError, UsageError
from pairbench.model.comparison import Acceptance
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.record import ANY, Record, Series, Wanted
from pairbench.plan import parse_selection
from pairbench.store.documents import write_acceptance
from pairbench.workflow.compare.selectors import RunSelector
from pairbench.workflow.setup import store_of

_NEWEST = 50
"""The number of newest runs that are gone through for one that has a series."""


@dataclass(frozen=True, kw_only=True)
class StoredAcceptances:
    """What was accepted, and where it lies."""

    acceptances: tuple[tuple[Acceptance, str], ...]
    """Each acceptance with the path of its file in the store."""
    problems: tuple[str, ...]
    """A sentence for each file that could not be read."""


def accept_level(
    config: Config,
    text: str,
    *,
    reason: str,
    run: str | None = None,
    device_name: str | None = None,
    wanted: Wanted = ANY,
) -> StoredAcceptances:
    """Accept the level that some series have in a run, and store that."""
    if not reason.strip():
        raise UsageError("--reason is empty, expected a sentence that a reviewer understands")
    selector = RunSelector.of_store(store_of(config), config.root)
    records, problems, run_id = _records_of(selector, run, text, device_name, wanted)
    at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    acceptances = [
        acceptance_of(series, several, run_id=run_id, at=at, reason=reason.strip())
        for series, several in named_series(records, text, device_name, run_id, wanted).items()
    ]
    return StoredAcceptances(
        acceptances=tuple((one, write_acceptance(config.store, one)) for one in acceptances),
        problems=tuple(dict.fromkeys([*selector.index.problems, *problems, *selector.notes])),
    )


def _records_of(
    selector: RunSelector, run: str | None, text: str, device_name: str | None, wanted: Wanted
) -> tuple[tuple[Record, ...], tuple[str, ...], str]:
    """Return the records of a run, a sentence for each file that cannot be read, and the run's id.

    Where no run is named, the newest ones are gone through: one that had no time for a series, or was of others, has no level of it.
    """
    first: tuple[tuple[Record, ...], tuple[str, ...], str] | None = None
    for back in range(1 if run else _NEWEST):
        try:
            picked = selector.pick(run or f"latest~{back}")
        except (SelectionError, StoreError):
            if first is None:
                raise
            break
        records, problems = picked.index.records(picked.heads)
        found = (tuple(records), tuple(problems), picked.side.runs[0])
        first = first or found
        measured = [record for record in records if record.reason != OUT_OF_BUDGET]
        with contextlib.suppress(SelectionError):
            named_series(measured, text, device_name, found[2], wanted)
            return found
    assert first is not None
    return first  # the newest run, to say what is wrong


def named_series(
    records: Iterable[Record], text: str, device_name: str | None, run_id: str, wanted: Wanted = ANY
) -> dict[Series, Sequence[Record]]:
    """Return the series that a text names, each with its records."""
    by_series: dict[Series, list[Record]] = {}
    for record in records:
        series = Series.of(record)
        if series is not None and wanted.takes(series.implementation, series.mode):
            by_series.setdefault(series, []).append(record)
    devices = sorted({series.device_name for series in by_series})
    if device_name is not None:
        part = device_name.lower()
        exact = [name for name in devices if name.lower() == part]
        here = exact or [name for name in devices if part in name.lower()]
        if not here:
            raise SelectionError(
                f"--device-name {device_name!r} is in no record of {run_id}; it has {', '.join(devices)}"
            )
        by_series = {series: several for series, several in by_series.items() if series.device_name in here}
    # A name holds brackets, which a glob would read as a set of characters.
    pattern = text.replace("[", "[[]")
    selection = parse_selection(text)
    named = (
        [series for series in by_series if series.name == text]
        or [series for series in by_series if fnmatch.fnmatchcase(series.name, pattern)]
        or [series for series in by_series if selection.takes_name(series.suite, series.operator, series.case)]
    )
    if not named:
        close = difflib.get_close_matches(text, sorted({series.name for series in by_series}), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else "`pairbench compare` names those that got worse"
        raise SelectionError(f"{text!r} is no series of run {run_id}; {hint}")
    models = sorted({series.device_name for series in named})
    if len(models) > 1 and len({series.name for series in named}) < len(named):
        raise SelectionError(f"{text!r} was measured on {', '.join(models)}; say which with --device-name")
    return {series: by_series[series] for series in named}
