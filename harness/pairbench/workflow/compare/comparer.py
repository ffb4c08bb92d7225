"""Comparisons of stored runs: the store is opened once, both sides are read, and every series gets its verdict."""

import datetime as dt
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from pairbench.analyze.compare.accepted import AcceptedLevel
from pairbench.analyze.compare.runs import compare
from pairbench.config import Config
from pairbench.errors import SelectionError, StoreError
from pairbench.model.acceptance import Acceptance
from pairbench.model.comparison import Calibration, Comparison
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.plan import parse_selection
from pairbench.store.accepted import read_acceptances
from pairbench.store.calibrations import read_calibrations
from pairbench.store.moved import current_name
from pairbench.store.reading import Reading
from pairbench.store.run_index import IndexedRun, RunIndex
from pairbench.workflow.compare.noise import accepted_levels, newest_calibrations, past_floors, quiet, widest
from pairbench.workflow.compare.reference import ReferenceRuns, covered, default_reference
from pairbench.workflow.compare.selectors import AUTO, Picked, RunSelector
from pairbench.workflow.git.repository import Repository
from pairbench.workflow.setup import store_of

_RUN_FILE = re.compile(r"\d{8}T\d{6}-.*\.parquet")


@dataclass(frozen=True, kw_only=True)
class ComparedRuns:
    """A comparison, and what a gate has to know beside it."""

    comparison: Comparison
    note: str | None = None
    """Why there was nothing to compare with; None where there was something."""
    newer: tuple[str, ...] = ()
    """A sentence for each run that is newer than the one that was judged as the newest, and could not be judged itself."""

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the contract's exit code; 4 where nothing else is wrong and the newest run could not be judged."""
        return self.comparison.exit_code(strict=strict) or (4 if self.newer else 0)


@dataclass(frozen=True, kw_only=True)
class Comparer:
    """A store that was opened once, with all that comparisons of its runs need; then any two sides can be compared."""

    index: RunIndex
    """The runs of the store as they were when it was opened: what is measured later needs another comparer."""
    repository: Repository
    """The checkout that is asked about branches and commits."""
    acceptances: Reading[dict[Series, Acceptance]]
    """The newest acceptance of each series."""
    calibrations: Reading[tuple[Calibration, ...]]
    """All calibrations, oldest first."""
    policy: Policy = DEFAULT
    """The thresholds of every comparison."""
    quiet_only: bool = False
    """Whether times on a CPU are judged only where a calibration found it quiet; hosted CI machines are not."""

    @classmethod
    def open(cls, config: Config, *, policy: Policy = DEFAULT, quiet_only: bool = False) -> "Comparer":
        """Open a store for comparisons.

        Args:
            config: Where the store is, and the checkout to ask about branches.
            policy: The thresholds.
            quiet_only: Whether to judge times on a CPU only where a calibration found it quiet.

        Raises:
            StoreError: there is no such store, or it is empty.
        """
        store = store_of(config)
        return cls(
            index=RunIndex.of_store(store),
            repository=Repository(config.root),
            acceptances=read_acceptances(store),
            calibrations=read_calibrations(store),
            policy=policy,
            quiet_only=quiet_only,
        )

    def compare(self, reference: str = AUTO, current: str = AUTO, *, select: Sequence[str] = ()) -> ComparedRuns:
        """Compare two sides as the command line names them.

        Args:
            reference: The runs to compare with, as `selectors.WORDS` says.
            current: The runs to judge, named in the same way.
            select: What of both sides to compare; everything if empty.

        Raises:
            StoreError: a side names no run, or nothing of the current one can be read.
            SelectionError: the selection leaves nothing.
        """
        selector = RunSelector(self.index, self.repository, now=dt.datetime.now(dt.UTC))
        picked = selector.pick(current)
        now, problems = _read(picked)
        if not now:
            why = "; ".join(dict.fromkeys([*picked.index.problems, *problems])) or "it has no rows"
            raise StoreError(f"nothing of {current!r} in store {picked.index.name!r} can be read: {why}")
        if select and not (now := _selected(now, select, self.index.place.moved)):
            raise SelectionError(f"{' '.join(select)!r} selects nothing of {', '.join(picked.side.runs)}")
        earlier = self._reference(selector, reference, picked, now)
        before, doubled = once(_selected(earlier.records, select, self.index.place.moved))
        calibrations, calibrated = newest_calibrations(self.calibrations.value, now)
        here = {series for record in now if (series := Series.of(record))}
        changes = compare(
            before,
            now,
            floors=widest(past_floors(self.index, picked.heads, here), calibrated),
            policy=self.policy,
            accepted=self.acceptances.value,
            trusted=self._trusted(now),
        )
        problems = (
            *(*problems, *earlier.problems, *doubled, *self.acceptances.problems, *self.calibrations.problems),
            *(*self.index.problems, *picked.index.problems, *selector.notes, *clocks(earlier.heads, picked.heads)),
        )
        return ComparedRuns(
            comparison=Comparison(
                reference=earlier.side,
                current=picked.side,
                changes=changes,
                problems=tuple(dict.fromkeys(problems)),
                calibrations=calibrations,
            ),
            note=earlier.note,
            newer=_newer(self.index, picked, current),
        )

    def accepted_levels(self, newest: Mapping[Series, Record]) -> dict[Series, AcceptedLevel]:
        """Return the accepted levels of series, as a comparison of these newest records would take them."""
        return accepted_levels(self.index, self.acceptances.value, self.calibrations.value, newest, self.policy)

    def _trusted(self, current: Sequence[Record]) -> Collection[Series] | None:
        """Return the series whose times are judged; None for all of them."""
        if not self.quiet_only:
            return None
        gpus = {series for record in current if record.device_kind != "cpu" and (series := Series.of(record))}
        return gpus | quiet(self.calibrations.value, current, self.policy)

    def _reference(self, selector: RunSelector, text: str, picked: Picked, current: Sequence[Record]) -> ReferenceRuns:
        if text == AUTO:
            return default_reference(selector, current, self.repository)
        asked = selector.pick(text, against=picked)
        records, problems = _read(asked)
        note = None
        if not records:
            note = f"nothing to compare with: there is no run of {text!r} earlier than the current one"
        elif all(Series.of(record) is None for record in records):
            note = f"nothing to compare with: {', '.join(asked.side.runs)} could load no suite, so nothing was measured"
        problems = tuple(dict.fromkeys([*asked.index.problems, *problems]))
        return ReferenceRuns(
            side=asked.side,
            heads=asked.heads,
            records=covered(records, current, self.index.place.moved),
            problems=problems,
            note=note,
        )


def _read(picked: Picked) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    records, problems = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    unique, doubled = once(record for record in records if record.run_id in ids)
    return unique, (*problems, *doubled)


def _selected(records: Iterable[Record], select: Sequence[str], moved: Mapping[str, str]) -> tuple[Record, ...]:
    wanted = [parse_selection(current_name(text, moved)) for text in select]
    return tuple(
        record
        for record in records
        if not wanted or any(item.takes_name(record.suite, record.operator, record.case) for item in wanted)
    )


def _newer(index: RunIndex, picked: Picked, text: str) -> tuple[str, ...]:
    """Return a sentence for each newer run that was passed over, where the newest was asked for."""
    if text != AUTO and not text.startswith("la"):  # latest and last:N
        return ()
    newest = max((head.run_id for head in picked.heads), default="")
    newer = itertools.takewhile(lambda head: head.run_id > newest, index)
    passed = [head for head in newer if not head.has_series]
    names = {problem: PurePath(problem.partition(": ")[0]).name for problem in index.problems}
    return (
        *(
            f"run {head.run_id} is newer than the one that was judged, and could load no suite: nothing of it can be compared"
            for head in passed
        ),
        *(
            f"the newest run may be in a file that cannot be read: {problem}"
            for problem, name in names.items()
            if _RUN_FILE.fullmatch(name) and name > newest
        ),
    )


_NEAR = dt.timedelta(hours=1)
"""The most that a run's id and its start may differ; both are taken from one clock at about the same moment."""


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
    sentences = [
        f"run {head.run_id} started at {head.started_at} by its records, which is not what its id says: a clock or a file "
        "name is wrong; runs are in the order of their ids"
        for head in (*reference, *current)
        if head.started and head.named and abs(head.started - head.named) > _NEAR
    ]
    begun = min((head.started for head in current if head.started), default=None)
    first = min((head.run_id for head in current), default="")
    sentences += [
        f"run {head.run_id} of the reference started at {head.started_at}, after the current run, though its id comes before: a "
        "clock is wrong; runs are in the order of their ids"
        for head in reference
        if begun and head.started and head.started > begun and head.run_id < first
    ]
    return tuple(dict.fromkeys(sentences))
