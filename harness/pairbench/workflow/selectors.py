"""What the words for one side of a comparison mean: which runs, of which store."""

import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pairbench.errors import StoreError
from pairbench.model.comparison import Side
from pairbench.model.plain import Value, redacted
from pairbench.store.location import StoreLocation
from pairbench.store.reader import IndexedRun, RunIndex
from pairbench.workflow.git import Repository

AUTO = "auto"
# The number of runs in a reference, such as a branch or another store: more average out more noise, and reach further back.
WINDOW = 5
WORDS = (
    "auto, latest, latest~N, previous, last:N, a run id or its beginning, a commit, branch or tag, a date or range of dates such as "
    "2026-11-01..2026-11-07, a parquet file, or another store"
)

_AHEAD = dt.timedelta(hours=1)  # The largest lead of a clock before a run counts as one from the future
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?)?")
_ORDER = re.compile(r"auto|previous|latest(~(?P<behind>\d+))?|last:(?P<count>.*)")


class Picked(Value):
    asked: str
    index: RunIndex
    heads: tuple[IndexedRun, ...]  # the runs, newest first, with those that confirm them

    @property
    def side(self) -> Side:
        return side(self.asked, self.heads)


def side(asked: str, heads: Sequence[IndexedRun]) -> Side:
    ordered = sorted(heads, key=lambda head: head.run_id)
    commits = dict.fromkeys(head.commit + ("+" if head.dirty else "") for head in ordered if head.commit)
    return Side(asked=asked, runs=tuple(head.run_id for head in ordered), commits=tuple(commits))


class RunSelector:
    """Finds the runs of a store that a word of the command line names."""

    def __init__(self, index: RunIndex, repository: Repository, *, now: dt.datetime) -> None:
        # Runs that began after `now` are left out of what is picked by time.
        self.index, self._repository, self._now = index, repository, now
        self._notes: list[str] = []
        self._future: dict[str, str] = {}

    @classmethod
    def of_store(cls, store: str | StoreLocation, folder: Path) -> "RunSelector":
        return cls(RunIndex.of_store(store), Repository(folder), now=dt.datetime.now(dt.UTC))

    def pick(self, text: str, *, against: Picked | None = None) -> Picked:
        """Return the runs that a text names, see `WORDS`."""
        # With `against`, the current side, a reference for it is picked: `last:N`, a branch or a store are several runs earlier than that. As
        # the current side, a branch or a store is its newest run.
        picked = self._pick(text, against)
        if against is None:
            return picked
        taken = {head.run_id for head in against.heads}
        heads = tuple(head for head in picked.heads if head.run_id not in taken)
        if not heads and picked.heads:
            itself = f"{text!r} is the current side itself ({', '.join(sorted(taken))})"
            raise StoreError(f"{itself}; name another reference")
        # A run that could load no suite is a reference for nothing; alone it stays, so that this can be said of it.
        return replace(picked, heads=tuple(head for head in heads if head.has_series) or heads)

    def _pick(self, text: str, against: Picked | None) -> Picked:
        if text.endswith(".parquet"):
            index = RunIndex.of_file(text, moved=self.index.place.moved)
            return Picked(asked=redacted(text), index=index, heads=tuple(index))
        is_store = "://" in text
        with contextlib.suppress(OSError, ValueError):  # a text that no path can be
            is_store = is_store or (Path(text) / "records").is_dir()
        if is_store:
            index = RunIndex.of_store(StoreLocation.of(text, moved=self.index.place.moved))
            # Another store has its own clock and may hold a later state of the code.
            return Picked(asked=redacted(text), index=index, heads=self._newest(index, WINDOW if against else 1))
        if text == AUTO and against is None:
            heads, known = self._newest_of_devices(), False
        elif ordered := _ORDER.fullmatch(text):
            heads = self._by_order(ordered, against)
            known = against is not None and bool(self.index.first(1))
        else:
            heads = self._by_time(text) or self._by_name(text, against)
            known = against is not None and any(head.branch == text for head in self.index)
        # What is there, though not before the current side, is nothing to compare with, and no mistake.
        if not heads and not known:
            nothing = f"{text!r} names no run of store {self.index.name!r}"
            raise StoreError(f"{nothing}; {self._there_is()}; expected {WORDS}")
        return Picked(asked="newest" if text == AUTO else text, index=self.index, heads=heads)

    def is_past(self, head: IndexedRun) -> bool:
        """Return whether a run lies in the past; the notes name one that does not."""
        started = max((moment for moment in (head.started, head.named) if moment), default=None)
        if started is None or started <= self._now + _AHEAD:
            return True
        self._future[head.run_id] = head.started_at
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._future:
            return tuple(self._notes)
        first = min(self._future)
        what = f"run {first} says" if len(self._future) == 1 else f"{len(self._future)} runs, {first} the first, say"
        future = f"{what} to have started in the future, at {self._future[first]}: a clock was wrong"
        return (*self._notes, f"{future}, and whatever is not named by its id is left out")

    def _by_order(self, asked: re.Match[str], against: Picked | None) -> tuple[IndexedRun, ...]:
        """Return runs by their position among all: `latest~N` counts from the newest, whatever it is compared with."""
        count, behind = asked["count"] or "1", asked["behind"]
        if asked["count"] == "" or not count.isdecimal() or int(count) < 1:
            raise StoreError(f"{asked[0]!r}: expected last:N with N of at least 1, such as last:5")
        if behind is not None or (asked[0] == "previous" and against is None):
            return self._newest(self.index, 1, behind=int(behind or "1"))
        return self._newest(self.index, int(count), against)

    def _newest_of_devices(self) -> tuple[IndexedRun, ...]:
        """Return the newest run of each device model that began within a day of the newest of all, with the runs that confirm them."""
        newest: list[IndexedRun] = []
        seen: set[str] = set()
        for head in self.index:
            if not head.has_series or head.confirms is not None or not self.is_past(head):
                continue
            if newest and newest[0].named and head.named and newest[0].named - head.named > dt.timedelta(days=1):
                break
            if not head.devices <= seen:
                newest.append(head)
                seen |= head.devices
        return _with_confirming(self.index, newest)

    def _newest(
        self, index: RunIndex, count: int, against: Picked | None = None, *, behind: int = 0, branch: str | None = None
    ) -> tuple[IndexedRun, ...]:
        """Return `count` runs after the newest `behind`, earlier than those of `against`, with the runs that confirm them."""
        # A run that could load no suite is left out: it says nothing of any series.
        before = min((head.run_id for head in against.heads), default=None) if against else None

        def wanted(head: IndexedRun) -> bool:
            earlier = before is None or head.run_id < before
            own = head.has_series and head.confirms is None
            return own and earlier and branch in (None, head.branch) and self.is_past(head)

        return _with_confirming(index, index.first(behind + count, wanted)[behind:])

    def _by_time(self, text: str) -> tuple[IndexedRun, ...]:
        begin, dots, end = text.partition("..")
        if not all(not word or _DATE.fullmatch(word) for word in (begin, end)) or not begin + end:
            return ()
        try:
            first = _span(begin)[0] if begin else dt.datetime.min.replace(tzinfo=dt.UTC)
            last = _span(end if dots else begin)[1] if not dots or end else dt.datetime.max.replace(tzinfo=dt.UTC)
        except ValueError as error:
            raise StoreError(f"{text!r}: {error}; expected a date like 2026-11-01") from error
        if not (heads := tuple(head for head in self.index if head.started and first <= head.started < last)):
            raise StoreError(f"no run of store {self.index.name!r} started in {text!r} (UTC); {self._there_is()}")
        return _with_confirming(self.index, heads)

    def _by_name(self, text: str, against: Picked | None) -> tuple[IndexedRun, ...]:
        named = self.index.beginning(text)
        if exact := tuple(head for head in named if head.run_id == text):
            return _with_confirming(self.index, exact)
        is_hash = re.fullmatch(r"[0-9a-f]{4,40}", text) is not None
        commits = {head.commit for head in self.index if is_hash and head.commit and head.commit.startswith(text)}
        if len(named) + len(commits) > 1:
            shown = [*(head.run_id for head in named[:4]), *(f"commit {sha[:12]}" for sha in sorted(commits)[:4])]
            several = f"{text!r} begins several in store {self.index.name!r}"
            raise StoreError(f"{several}: {', '.join(shown)}; give more of it")
        if named:
            return _with_confirming(self.index, named)
        if any(head.branch == text for head in self.index):
            return self._newest(self.index, WINDOW if against else 1, against, branch=text)
        if (sha := next(iter(commits), None) or self._repository.commit(text)) is None:
            return ()
        if not (heads := tuple(head for head in self.index if head.commit == sha)):
            nothing = f"no run of store {self.index.name!r} is of commit {sha[:12]} ({text})"
            raise StoreError(f"{nothing}; {self._there_is()}")
        # What lay uncommitted beside a commit is another state of the code.
        if clean := tuple(head for head in heads if not head.dirty):
            return _with_confirming(self.index, clean)
        self._notes.append(f"all runs of commit {sha[:12]} ({text}) had uncommitted changes")
        return heads

    def _there_is(self) -> str:
        runs = []
        for head in self.index.first(5):
            commit = ", ".join(filter(None, [head.branch, (head.commit or "")[:7]])) or "no commit"
            runs.append(f"{head.run_id} ({commit}{'' if head.has_series else ', which could load no suite'})")
        newest = f"the newest runs are {', '.join(runs)}" if runs else "no run of it can be read"
        return "; ".join([newest, *self.index.problems])


def _with_confirming(index: RunIndex, heads: Sequence[IndexedRun]) -> tuple[IndexedRun, ...]:
    if not heads:
        return ()
    ids = {head.run_id for head in heads}
    oldest = min(ids)
    later = itertools.takewhile(lambda head: head.run_id >= oldest, index)  # what confirms a run comes after it
    confirming = [head for head in later if head.confirms in ids and head.run_id not in ids]
    return tuple(sorted([*heads, *confirming], key=lambda head: head.run_id, reverse=True))


def _span(text: str) -> tuple[dt.datetime, dt.datetime]:
    """Return the begin and end of a month, a day, a minute or a second; in UTC unless the text says otherwise."""
    if len(text) == 7:
        begin = dt.datetime.fromisoformat(f"{text}-01").replace(tzinfo=dt.UTC)
        return begin, (begin + dt.timedelta(days=31)).replace(day=1)
    begin = dt.datetime.fromisoformat(text)
    begin = begin if begin.tzinfo else begin.replace(tzinfo=dt.UTC)
    clock = text[11:]
    length = dt.timedelta(days=1) if not clock else dt.timedelta(seconds=1 if clock.count(":") > 1 else 60)
    return begin, begin + length
