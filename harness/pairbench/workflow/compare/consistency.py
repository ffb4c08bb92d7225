"""What is wrong with runs that can be read: stored twice, or made under a clock that was wrong."""

import datetime as dt
from collections.abc import Iterable, Sequence

from pairbench.model.record import Record
from pairbench.store.run_index import IndexedRun

_NEAR = dt.timedelta(hours=1)
"""Between a run's id and its start; both are taken from one clock at about the same moment."""


def once(records: Iterable[Record]) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Return each row once, the first that was read, and a sentence for each run that has some more than once."""
    kept: dict[tuple[str | None, ...], Record] = {}
    copies: dict[str, int] = {}
    differing: dict[str, int] = {}
    for place, record in enumerate(records):
        key = (
            *(record.run_id, record.device_name, record.device_uuid),
            *(record.suite, record.case, record.implementation, record.mode),
            None if record.case else str(place),  # a suite that could not be loaded has no name for its rows
        )
        first = kept.setdefault(key, record)
        if first is not record:
            copies[record.run_id] = copies.get(record.run_id, 0) + 1
            differing[record.run_id] = differing.get(record.run_id, 0) + (repr(first) != repr(record))
    return tuple(kept.values()), tuple(_twice(run_id, number, differing[run_id]) for run_id, number in copies.items())


def _twice(run_id: str, number: int, differing: int) -> str:
    told = f"run {run_id} is in the store more than once: {number} of its rows are there again"
    if not differing:
        return f"{told}, the same, and were taken once; delete the copies"
    return (
        f"{told}, {differing} of them with other values, and the first was taken: two machines gave the same id, or a "
        "file was changed; keep one of the files"
    )


def clocks(reference: Sequence[IndexedRun], current: Sequence[IndexedRun]) -> tuple[str, ...]:
    """Return a sentence for each run whose start and id do not belong together, or whose sides are in the wrong order."""
    found = [
        f"run {head.run_id} started at {head.started_at} by its records, which is not what its id says: a clock or a file "
        "name is wrong; runs are in the order of their ids"
        for head in (*reference, *current)
        if head.started and head.named and abs(head.started - head.named) > _NEAR
    ]
    begun = min((head.started for head in current if head.started), default=None)
    first = min((head.run_id for head in current), default="")
    found += [
        f"run {head.run_id} of the reference started at {head.started_at}, after the current run, though its id comes before: a "
        "clock is wrong; runs are in the order of their ids"
        for head in reference
        if begun and head.started and head.started > begun and head.run_id < first
    ]
    return tuple(dict.fromkeys(found))
