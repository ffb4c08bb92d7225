"""Joins the rooms for a comparison: both sides from the store, what is known of their noise, the verdicts."""

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from pairbench.analyze.compare.runs import compare
from pairbench.config import Config
from pairbench.errors import SelectionError, StoreError
from pairbench.model.comparison import Comparison
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.plan import parse_selection
from pairbench.store.accepted import read_acceptances
from pairbench.store.calibrations import read_calibrations
from pairbench.store.run_index import IndexedRun
from pairbench.workflow.compare.noise import newest_calibrations, past_floors, quiet, widest
from pairbench.workflow.compare.reference import ReferenceRuns, covered, default_reference
from pairbench.workflow.compare.selectors import AUTO, Picked, Sides
from pairbench.workflow.git.repository import Repository

_RUN_FILE = re.compile(r"\d{8}T\d{6}-.*\.parquet")


@dataclass(frozen=True, kw_only=True)
class ComparedRuns:
    """A comparison, and what a gate has to know beside it."""

    comparison: Comparison
    note: str | None = None
    """Why there was nothing to compare with."""
    newer: tuple[str, ...] = ()
    """Files that cannot be read and that by their names hold a newer run than the one taken for the newest."""

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the contract's exit code; 4 where nothing else is wrong and the newest run cannot be read."""
        return self.comparison.exit_code(strict=strict) or (4 if self.newer else 0)


def judge(
    config: Config,
    reference: str = AUTO,
    current: str = AUTO,
    *,
    select: Sequence[str] = (),
    policy: Policy = DEFAULT,
    quiet_only: bool = False,
) -> ComparedRuns:
    """Compare two sides as the command line names them.

    Args:
        config: Where the store is, and the checkout to ask about branches.
        reference: As `sides.WORDS` says.
        current: The same.
        select: What of both sides to compare; everything if empty.
        policy: The thresholds.
        quiet_only: Judge times on a CPU only where a calibration found it quiet; hosted CI machines are not.

    Raises:
        StoreError: there is no such store or side, or nothing of the current one can be read.
        SelectionError: the selection leaves nothing.
    """
    repository = Repository(config.root)
    sides = Sides(config.store, repository, now=dt.datetime.now(dt.UTC))
    picked = sides.pick(current)
    now, problems = _read(picked)
    if not now:
        why = "; ".join(dict.fromkeys([*picked.index.problems, *problems])) or "it has no rows"
        raise StoreError(f"nothing of {current!r} in store {picked.index.name!r} can be read: {why}")
    if select and not (now := _selected(now, select)):
        raise SelectionError(f"{' '.join(select)!r} selects nothing of {', '.join(picked.side.runs)}")
    found = _reference(sides, reference, picked, now, repository)
    before, doubled = once(_selected(found.records, select))
    acceptances, calibrations = read_acceptances(config.store), read_calibrations(config.store)
    shown, calibrated = newest_calibrations(calibrations.value, now)
    here = {series for record in now if (series := Series.of(record))}
    floors = widest(past_floors(sides.index, picked.heads, here), calibrated)
    trusted = None
    if quiet_only:
        gpus = {series for record in now if record.device_kind != "cpu" and (series := Series.of(record))}
        trusted = gpus | quiet(calibrations.value, now, policy)
    changes = compare(before, now, floors=floors, policy=policy, accepted=acceptances.value, trusted=trusted)
    told = [
        *(*problems, *found.problems, *doubled, *acceptances.problems, *calibrations.problems),
        *(*sides.index.problems, *picked.index.problems, *sides.notes, *clocks(found.heads, picked.heads)),
    ]
    return ComparedRuns(
        comparison=Comparison(
            reference=found.side,
            current=picked.side,
            changes=changes,
            problems=tuple(dict.fromkeys(told)),
            calibrations=shown,
        ),
        note=found.note,
        newer=_newer(sides, picked, current),
    )


def _reference(
    sides: Sides, text: str, picked: Picked, current: Sequence[Record], repository: Repository
) -> ReferenceRuns:
    if text == AUTO:
        return default_reference(sides, current, repository)
    asked = sides.pick(text, against=picked)
    records, problems = _read(asked)
    note = None if records else f"nothing to compare with: there is no run of {text!r} earlier than the current one"
    problems = tuple(dict.fromkeys([*asked.index.problems, *problems]))
    return ReferenceRuns(
        side=asked.side, heads=asked.heads, records=covered(records, current), problems=problems, note=note
    )


def _read(picked: Picked) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    records, problems = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    found, doubled = once(record for record in records if record.run_id in ids)
    return found, (*problems, *doubled)


def _selected(records: Iterable[Record], select: Sequence[str]) -> tuple[Record, ...]:
    wanted = [parse_selection(text) for text in select]
    return tuple(
        record
        for record in records
        if not wanted or any(item.takes_name(record.suite, record.operator, record.case) for item in wanted)
    )


def _newer(sides: Sides, picked: Picked, text: str) -> tuple[str, ...]:
    if text != AUTO and not text.startswith("la"):  # latest and last:N
        return ()
    newest = max((head.run_id for head in picked.heads), default="")
    names = {problem: PurePath(problem.partition(": ")[0]).name for problem in sides.index.problems}
    return tuple(problem for problem, name in names.items() if _RUN_FILE.fullmatch(name) and name > newest)


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
