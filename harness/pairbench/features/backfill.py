"""A history filled in: commits of the past are measured by this pairbench on this host, each from a worktree, and stored.

The commits are all of a range, every Nth, those with a tag, or those that are expected to tell most.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pairbench.analyze.compare.runs import compare
from pairbench.config import Config
from pairbench.errors import SuiteError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.features.ab import Arguments, LoadedSide, load_side, reached_paths
from pairbench.model.comparison import Filled, GateOutcome, HistoryCommit, Skipped
from pairbench.model.plain import plain
from pairbench.model.record import Record
from pairbench.report.render import render_rows, to_json
from pairbench.store.reader import read_frame, read_records
from pairbench.workflow import git
from pairbench.workflow.progress import PlainProgress, open_progress
from pairbench.workflow.record import record_run
from pairbench.workflow.setup import Request, open_context, pick_devices, store_of

_Made = TypeVar("_Made")
_MOVED = (GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT, GateOutcome.FAILED)


def every(commits: int, step: int) -> tuple[int, ...]:
    """Return the index of every `step`-th commit, oldest first, with the newest among them."""
    return tuple(range((commits - 1) % step, commits, step))


def next_step(
    changed: Sequence[bool], measured: Collection[int], skipped: Collection[int], differing: Collection[tuple[int, int]]
) -> int | None:
    """Return the index of the commit to measure next: an end, one with a new hash, or the middle of the widest gap that differs."""
    closed = {*measured, *skipped}
    ends = [0, len(changed) - 1]
    first = [index for index in (*ends, *(index for index, one in enumerate(changed) if one)) if index not in closed]
    if first:
        return first[0]
    for before, after in sorted(differing, key=lambda pair: (pair[0] - pair[1], pair)):
        if inside := [index for index in range(before + 1, after) if index not in closed]:
            return min(inside, key=lambda index: (abs(index - (before + after) / 2), index))
    return None


def render_backfilled(filled: Collection[Filled], skipped: Collection[Skipped], output: str) -> str:
    if output == "json":
        return to_json({"filled": [plain(one) for one in filled], "skipped": [plain(one) for one in skipped]})
    found = [(one.commit, one.records, one.run_id or "was there") for one in filled]
    left = [(one.commit, None, f"skipped: {one.reason}{f' (log: {one.log})' if one.log else ''}") for one in skipped]
    rows = []
    for commit, number, run in sorted([*found, *left], key=lambda row: row[0].committed_at):
        named = {"commit": commit.sha[:10], "date": commit.committed_at[:10], "subject": commit.subject}
        rows.append({**named, "records": number, "run": run})
    return render_rows("commits", rows, output)


def backfill(
    config: Config, arguments: Arguments, device: str, *, nth: int | None, tags: bool, steps: int | None
) -> "Backfill":
    """Measure commits of a range, oldest first, and leave out what the store has already."""
    # All commits, or every nth, or those with a tag, or the most that `steps` allows: where they change an implementation, then in between.
    repository = arguments.repository
    commits = git.list_commits(repository, "--first-parent", arguments.base)
    if tags:
        tagged = git.run_git(repository, "for-each-ref", "refs/tags", "--format=%(objectname) %(*objectname)")
        names = set(tagged.split())
        commits = tuple(commit for commit in commits if commit.sha in names)
    if nth is not None:
        commits = tuple(commits[index] for index in every(len(commits), nth))
    if not commits:
        what = f"range {arguments.base!r} has no commit{' with a tag' if tags else ''}"
        raise UsageError(f"{what}, expected one like v1.0..main; `git log {arguments.base}` lists it")
    end = arguments.base.rpartition("..")[2].lstrip(".") or "HEAD"
    branch = git.git(repository, "rev-parse", "--abbrev-ref", "--verify", "--quiet", end)
    with (
        open_context(config, arguments.suites(config)) as context,
        git.open_worktrees(repository) as worktrees,
        open_progress() as progress,
    ):
        branch = branch.removeprefix("origin/") if branch and branch != "HEAD" else None
        done = Backfill(config, arguments, device, commits, branch, context, worktrees, progress)
        for index in range(len(commits)) if steps is None else done.steps(steps):
            done.interrupted = done.interrupted or context.interrupted.is_set()
            if done.interrupted or done.not_in_store:
                break
            done.fill(index)
    return done


@dataclass
class Backfill:
    config: Config
    arguments: Arguments
    device: str
    commits: tuple[HistoryCommit, ...]
    branch: str | None
    context: WorkerContext
    worktrees: git.Worktrees
    progress: PlainProgress
    filled: dict[int, Filled] = field(default_factory=dict)  # by the index of the commit, as those that were skipped
    skipped: dict[int, Skipped] = field(default_factory=dict)
    interrupted: bool = False
    not_in_store: str | None = None  # the store's error that ended the backfill
    records: dict[int, tuple[Record, ...]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 130
        return 4 if self.not_in_store else 0 if self.filled else 2

    def fill(self, index: int) -> None:
        commit, all_ = self.commits[index], len(self.commits)
        self.progress.notify(f"pairbench: {commit.sha[:10]} ({commit.subject[:50]}), {index + 1} of {all_}")
        if filled := self._loaded(index, self._record):
            self.filled[index] = filled

    def _record(self, side: LoadedSide, index: int) -> Filled | None:
        identity = git.read_commit(side.checkout.root, variables={})
        if identity is None:
            raise SuiteError(f"commit {self.commits[index].sha[:10]} is gone from {self.arguments.repository}")
        devices = pick_devices(self.device, side.chosen.survey.devices)
        request = Request(self.config, side.context, side.chosen, devices, self.progress)
        done = record_run(request, skip_existing=True, filled=replace(identity, branch=self.branch))
        if done.error is not None:
            raise done.error
        self.interrupted = done.interrupted
        self.not_in_store = done.kept.why if done.kept else None
        if done.interrupted:
            return None
        run_id = done.run_id if done.records else None
        return Filled(commit=self.commits[index], run_id=run_id, records=len(done.records))

    def steps(self, most: int) -> Iterator[int]:
        changed = self._changed()
        for _ in range(most):
            judged = [(pair, compare(*map(self._stored, pair))) for pair in itertools.pairwise(sorted(self.filled))]
            differing = [pair for pair, changes in judged if any(one.outcome in _MOVED for one in changes)]
            index = next_step(changed, self.filled, self.skipped, differing)
            if index is None:
                return
            yield index
            if index not in self.filled and index not in self.skipped:
                return  # interrupted

    def _stored(self, index: int) -> tuple[Record, ...]:
        if index not in self.records:
            where, store = {"commit": [self.commits[index].sha]}, store_of(self.config)
            runs = set(read_frame(store, columns=("run_id",), where=where)[0]["run_id"])
            self.records[index] = read_records(store, runs, where=where).value
        return self.records[index]

    def _changed(self) -> list[bool]:
        """Return which commits change an implementation; only commits that touch a file of the newest commit's suites are loaded."""
        newest = len(self.commits) - 1
        files = self._loaded(newest, lambda one, _: reached_paths(one.checkout, one.chosen.operators())) or frozenset()
        touched = git.touched_files(self.arguments.repository, self.commits)
        before: set[tuple[str, ...]] | None = None
        changed = []
        for index, commit in enumerate(self.commits):
            if before is not None and files and not touched.get(commit.sha, files) & files:
                changed.append(False)
                continue
            hashes = self._loaded(
                index, lambda it, _: {(one.suite, one.name, *one.hashes) for one in it.chosen.operators()}
            )
            changed.append(before is not None and hashes is not None and hashes != before)
            before = before if hashes is None else hashes
        return changed

    def _loaded(self, index: int, use: Callable[[LoadedSide, int], _Made]) -> _Made | None:
        """Call `use` with a commit while it is checked out, and return the result; where the commit cannot be loaded, note that and return None."""
        commit = self.commits[index]
        checkout = self.worktrees.add(commit.sha[:16], commit.sha)
        try:
            side = load_side(self.config, self.context, self.arguments, checkout)
            survey, nothing = side.chosen.survey, side.nothing
            if nothing is None and not survey.operators:
                nothing = SuiteError("; ".join(one.reason for one in survey.broken) or "there is no operator")
            if nothing is not None:
                raise nothing
            return use(side, index)
        except (SuiteError, UsageError) as error:
            if index not in self.skipped:
                self.skipped[index] = git.skipped(self.arguments.repository, commit, str(error))
                self.progress.notify(f"pairbench: {commit.sha[:10]} is skipped: {error}")
            return None
        finally:
            self.worktrees.remove(commit.sha[:16])
