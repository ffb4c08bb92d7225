"""`pairbench bisect`: a search for the commit that moved a series, from its ends to its culprit. Nothing is put in the store."""

import contextlib
import math
import tempfile
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from pairbench.analyze.compare.attribute import percent
from pairbench.analyze.compare.exact import COUNTS, LAUNCHES
from pairbench.analyze.compare.exact import number as count_in
from pairbench.analyze.compare.rounds import round_values
from pairbench.config import Config
from pairbench.errors import InterruptedRunError, StoreError, UsageError
from pairbench.execute.parent.lock import device_lock
from pairbench.features.ab import Arguments, SideBySide, Turns, load_side, measure
from pairbench.features.bisect import posterior
from pairbench.features.bisect.loaded import LoadedCommit, LoadedCommits, UnmeasurableError, choose_series
from pairbench.features.bisect.posterior import Candidate, Posterior, Round, Spread
from pairbench.model.comparison import Bisection, Change, Comparison, HistoryCommit, Policy, Skipped, Suspect, Verdict
from pairbench.model.plain import plain
from pairbench.model.record import CALL, DEVICE, Latency, Series
from pairbench.report.comparison import document, render_comparison
from pairbench.report.render import clean, render_rows, to_json
from pairbench.store.documents import read_calibrations
from pairbench.workflow.devices import HostWatch, probe_device
from pairbench.workflow.git import commits_between, open_worktrees, skipped, touched_files
from pairbench.workflow.lookup import newest_calibrations
from pairbench.workflow.progress import open_progress
from pairbench.workflow.setup import open_context, store_of

AUTO, LATENCY = "auto", "latency"
TRIES = 3  # the most candidates that are held against their parents
_MORE = 3  # the factor of rounds for ends that the first rounds leave undecided
_FLOOR_ROUNDS = 3  # the rounds of a calibration's runs, which its floors do not record: the default of `run`


def render_bisection(found: Bisection, output: str) -> str:
    if output == "json":
        values = {name: plain(value) for name, value in vars(found).items() if name != "last"}
        last = document(found.last) if found.last else None
        return to_json({**values, "exit_code": found.exit_code, "probability": found.probability, "last": last})
    parts = [f"{clean(f'{found.series.name}: {found.ends}')}\n"]
    if found.suspects:
        parts.append(render_rows("the most probable commits", [_row(one) for one in found.suspects[:10]], output))
    parts.append(f"{clean(_sentence(found))}\n")
    for one in found.skipped:
        log = f" (log: {one.log})" if one.log else ""
        parts.append(f"{clean(f'Skipped: {_named(one.commit)}: {one.reason}{log}')}\n")
    if found.last is not None:
        parts.append(f"\n{render_comparison(found.last, output)}")
    return "".join(parts)


def _sentence(found: Bisection) -> str:
    rounds = f"{found.rounds} round{'' if found.rounds == 1 else 's'} beyond the {found.confirming} of the ends"
    rounds = rounds if found.confirming else f"{found.rounds + 2} commits counted"
    if not found.moved:
        return "No change is proven between the ends, so there is nothing to look for"
    if not found.found:
        undecided = "the last step does not show it" if found.last is not None else "not sure enough"
        why = "interrupted" if found.interrupted else undecided
        return f"Not found, {why}: {rounds}, {found.commits} commits"
    if len(found.found) > 1:
        first, last = found.found[0], found.found[-1]
        which = f"{_named(first)} to {_named(last)}, with {_percent(found.probability)}"
        why = f"those before the last cannot be measured ({rounds}, {found.commits} commits)"
        return f"One of {len(found.found)} commits, {which}: {why}"
    sure = f", with {_percent(found.probability)}" if found.confirming else ""
    return f"It was {_named(found.found[0])} by {found.found[0].author}{sure} ({rounds}, {found.commits} commits)"


def _row(one: Suspect) -> dict[str, object]:
    commit, changed = one.commit, {None: "", True: "changed", False: "the same"}[one.changed]
    row = {"commit": commit.sha[:10], "probability": _percent(one.probability), "date": commit.committed_at[:10]}
    row |= {"author": commit.author, "subject": commit.subject, "implementation": changed}
    return {**row, "": "skipped" if one.skipped else ""}


def _named(commit: HistoryCommit) -> str:
    return f"{commit.sha[:10]} ({commit.subject})"


def _percent(probability: float) -> str:
    part = 100 * probability
    return f"{part:.1f} %" if part < 99.95 else "> 99.9 %"


def bisect_commits(
    config: Config, given: Arguments, device: str, implementation: str | None, metric: str, most: int, policy: Policy
) -> Bisection:
    """Search for the commit that moved a series, between the good end, which is `given.base`, and the bad one, its head."""
    # `metric` is a count, `latency`, or `auto`: a count that differs between the ends, else the latency.
    assert given.head is not None
    history = commits_between(given.repository, given.base, given.head)
    with (
        open_context(config, given.suites(config)) as context,
        open_worktrees(given.repository) as worktrees,
        open_progress() as progress,
    ):
        bad = load_side(config, context, given, worktrees.add("bad", given.head))
        wanted, path = choose_series(bad, device, implementation)
        select = (f"{given.repository / path}::{wanted.series.case}",)
        given = replace(given, select=select, implementations=(wanted.entry.implementation,))
        commits = LoadedCommits(config, context, given, worktrees, progress, wanted)
        commits.known[history[-1].sha] = commits.take(bad)
        search = _Search(commits, history, exact_first=metric == AUTO, most=most, policy=policy)
        return search.latency() if metric in (AUTO, LATENCY) else search.count(metric)


@dataclass
class _Search:
    loaded: LoadedCommits
    history: tuple[HistoryCommit, ...]  # the good end first, the bad end last: a commit's number is its index
    _: KW_ONLY
    exact_first: bool  # whether a count that differs between the ends is searched for before the latency
    most: int
    policy: Policy
    spread: Spread = field(default_factory=Spread.least)
    skipped: dict[int, Skipped] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    probes: int = 0  # the rounds of commits beside the good end, without those of the ends
    changed: list[bool | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last, self.progress = len(self.history) - 1, self.loaded.progress
        self.settings = self.loaded.config.settings

    def latency(self) -> Bisection:
        good = self._end(0)
        self.progress.notify(f"pairbench: {self.last} commits; the two ends are measured in turns first")
        ends = self._turns(0, self.last, self.settings.rounds)
        change = self._change(ends.comparison)
        if change.verdict is Verdict.UNDECIDED and change.p50 is not None:
            more = _MORE * self.settings.rounds
            self.progress.notify(f"pairbench: {change.p50.reason}; measured again with {more} rounds")
            ends = self._turns(0, self.last, more)
            change = self._change(ends.comparison)
        judged = change.p50
        result = self._nothing(judged.reason if judged else change.reason, judged.metric if judged else "latency")
        moved = judged is not None and judged.verdict in (Verdict.SLOWER, Verdict.FASTER)
        if metric := self._differing(ends):
            self.progress.notify(f"pairbench: {metric} differs between the ends, and is exact: it is looked for first")
            counted = self.count(metric)
            shown = counted.last is not None and self._change(counted.last).verdict is change.verdict
            if counted.interrupted or not moved or shown:
                return counted
            self.progress.notify("pairbench: the latency did not move there; it is looked for by itself")
            self.skipped.clear()
        if judged is None or not moved or judged.verdict is None:
            return result
        latency = DEVICE if judged.metric == DEVICE.p50 else CALL
        self.rounds = self._rounds(ends, 0, self.last, latency)
        confirming = len(self.rounds)
        self.progress.notify(f"pairbench: {judged.reason}: looking for the commit")
        self.spread = self._prior_spread(ends, latency)
        interrupted = confirmed = False
        last: Comparison | None = None
        try:
            self._read_hashes()
            for _ in range(TRIES):
                self._probe(good, latency)
                best = self._best()
                if not posterior.is_enough(best, self.changed):
                    break
                last, confirmed = self._last_step(best, judged.verdict, latency)
                if confirmed:
                    break
                self.progress.notify("pairbench: that does not show it; the search goes on, with that as evidence")
        except InterruptedRunError:
            interrupted = True
        best, probability = self._best(), self._posterior().probability
        suspects = (self._suspect(number, float(part)) for number, part in enumerate(probability, start=1))
        return replace(
            result,
            moved=True,
            change=judged.change,
            suspects=tuple(sorted(suspects, key=lambda one: -one.probability)),
            found=self.history[best.first : best.last + 1] if confirmed else (),
            parent=self.history[best.first - 1] if confirmed else None,
            rounds=self.probes,
            confirming=confirming,
            skipped=tuple(self.skipped.values()),
            interrupted=interrupted,
            last=last,
        )

    def _differing(self, ends: SideBySide) -> str | None:
        """Return a count that differs exactly between the ends; None where none does, or something else was asked for."""
        found = [[one for one in side if Series.of(one) == self.loaded.wanted.series] for side in ends.records]
        if not self.exact_first or not all(found):
            return None
        records = [side[0] for side in found]
        exact = all(record.launch_status == "exact" for record in records)
        for metric in [*COUNTS, *LAUNCHES] if exact else list(COUNTS):
            counts = {count_in(record, metric) for record in records}
            if len(counts) == 2 and None not in counts:
                return metric
        return None

    def _last_step(self, best: Candidate, verdict: Verdict, latency: Latency) -> tuple[Comparison, bool]:
        """Compare a candidate with its parent by `ab`, whose rounds count as evidence; return the comparison, and whether it shows the change between the ends."""
        parent = best.first - 1
        self._notify_last(parent, best.last)
        for rounds in (self.settings.rounds, _MORE * self.settings.rounds):
            turns = self._turns(parent, best.last, rounds)
            self.rounds += self._rounds(turns, parent, best.last, latency)
            found = self._change(turns.comparison).verdict
            if found is not Verdict.UNDECIDED:
                break
        return turns.comparison, found is verdict

    def count(self, metric: str) -> Bisection:
        device = self.loaded.wanted.device
        environment = probe_device(self.loaded.context, device, HostWatch(device, self.progress.notify))
        counts: dict[int, float] = {}

        def counted(number: int) -> None:
            with self._lock():
                counts[number] = self.loaded.count(self.history[number].sha, metric, environment)
            self.progress.notify(f"pairbench: {self._named(number)}: {metric} {counts[number]:g}")

        for number, end in ((0, "--good"), (self.last, "--bad")):
            try:
                counted(number)
            except UnmeasurableError as error:
                return self._nothing(f"{end} {self.history[number].sha[:10]} cannot be counted: {error}", metric)
        words = f"{metric} {counts[0]:g} -> {counts[self.last]:g}"
        if counts[0] == counts[self.last]:
            return self._nothing(f"{words}: no change between the ends", metric)
        interrupted = False
        good, bad = posterior.still_open(counts, self.last)
        try:
            while (middle := posterior.next_count(good, bad, self.skipped)) is not None:
                try:
                    counted(middle)
                except UnmeasurableError as error:
                    self._skip(middle, str(error))
                good, bad = posterior.still_open(counts, self.last)
        except InterruptedRunError:
            interrupted = True
        inside = range(good + 1, bad + 1)
        result = replace(
            self._nothing(words, metric),
            moved=True,
            suspects=tuple(self._suspect(number, 1 / len(inside)) for number in inside),
            found=() if interrupted else self.history[inside.start : inside.stop],
            parent=None if interrupted else self.history[good],
            rounds=len(counts) - 2,
            skipped=tuple(self.skipped.values()),
            interrupted=interrupted,
        )
        if interrupted:
            return result
        self._notify_last(good, bad)
        try:
            return replace(result, last=self._turns(good, bad, self.settings.rounds).comparison)
        except InterruptedRunError:
            return replace(result, interrupted=True)

    def _probe(self, good: LoadedCommit, latency: Latency) -> None:
        while self.probes < self.most:
            if posterior.is_enough(self._best(), self.changed):
                return
            number = posterior.next_probe(self._posterior(), self.skipped)
            try:
                with self._lock():
                    ratio = self.loaded.log_ratio(good, self.history[number].sha, latency)
            except UnmeasurableError as error:
                self._skip(number, str(error))
                continue
            self.rounds.append(Round(commit=number, log_ratio=ratio))
            self.probes += 1
            best = self._best()
            shown = f"{self._named(number)} {percent(math.exp(ratio))}"
            now = f"{self._named(best.last)} is it with {100 * best.probability:.0f} %"
            self.progress.notify(f"pairbench: round {self.probes}: {shown}; now {now}")

    def _posterior(self) -> Posterior:
        return posterior.posterior(posterior.prior_of(self.changed or [None] * self.last), self.rounds, self.spread)

    def _best(self) -> Candidate:
        return posterior.candidates(self._posterior().probability, self.skipped)[0]

    def _read_hashes(self) -> None:
        """Compare each commit's implementation hash with the one before; only commits that touch a file of its suite are loaded."""
        files = self._end(0).reached() | self._end(self.last).reached()
        touched = touched_files(self.loaded.arguments.repository, self.history[1:])
        before = self._end(0).hash(self.loaded.wanted)
        found: list[bool | None] = []
        for number, commit in enumerate(self.history[1:], start=1):
            if self.loaded.context.interrupted.is_set():
                raise InterruptedRunError
            if not touched.get(commit.sha, files) & files:
                found.append(False)
                continue
            try:
                earlier, before = before, self.loaded.commit(commit.sha).hash(self.loaded.wanted)
                found.append(before != earlier)
            except UnmeasurableError as error:
                self._skip(number, str(error))
                found.append(None)
        self.changed = found

    def _skip(self, number: int, reason: str) -> None:
        self.skipped[number] = skipped(self.loaded.arguments.repository, self.history[number], reason)
        self.progress.notify(f"pairbench: {self._named(number)} is skipped: {reason}")

    def _end(self, number: int) -> LoadedCommit:
        try:
            return self.loaded.commit(self.history[number].sha)
        except UnmeasurableError as error:
            name = "--bad" if number else "--good"
            raise UsageError(f"{name} {self.history[number].sha[:10]} cannot be measured: {error}") from error

    def _turns(self, base: int, head: int, rounds: int) -> SideBySide:
        context = self.loaded.context
        settings = replace(context.settings, rounds=rounds)
        loaded = [self._end(number).loaded for number in (base, head)]
        reference, current = (replace(one, context=replace(one.context, settings=settings)) for one in loaded)
        scratch = Path(tempfile.mkdtemp(prefix="outputs-", dir=self.loaded.worktrees.folder))
        context, selector = replace(context, settings=settings), self.loaded.wanted.device.selector
        return measure(Turns(context, (reference, current), selector, scratch, self.progress, self.policy))

    def _change(self, comparison: Comparison) -> Change:
        return next(change for change in comparison.changes if change.series == self.loaded.wanted.series)

    def _rounds(self, ends: SideBySide, base: int, head: int, latency: Latency) -> list[Round]:
        series = self.loaded.wanted.series
        sides = [
            [value for record in side if Series.of(record) == series for value in round_values(record, latency.p50)]
            for side in ends.records
        ]
        return [Round(commit=head, base=base, log_ratio=math.log(now / then)) for then, now in zip(*sides, strict=True)]

    def _prior_spread(self, ends: SideBySide, latency: Latency) -> Spread:
        try:
            calibrations = read_calibrations(store_of(self.loaded.config)).value
        except StoreError:
            calibrations = ()
        floor = newest_calibrations(calibrations, ends.records[1])[1].get(self.loaded.wanted.series)
        if floor is None or floor.latency != latency.name:
            return Spread.least()
        return Spread.of_floor(floor.p50, _FLOOR_ROUNDS)

    def _suspect(self, number: int, probability: float) -> Suspect:
        changed = self.changed[number - 1] if self.changed else None
        skipped = number in self.skipped
        return Suspect(commit=self.history[number], probability=probability, changed=changed, skipped=skipped)

    def _nothing(self, ends: str, metric: str) -> Bisection:
        series, (good, *_, bad) = self.loaded.wanted.series, self.history
        return Bisection(series=series, metric=metric, good=good, bad=bad, commits=self.last, ends=ends, moved=False)

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return device_lock(self.loaded.wanted.device, self.progress.notify, self.loaded.context.interrupted.is_set)

    def _notify_last(self, parent: int, culprit: int) -> None:
        self.progress.notify(f"pairbench: at last {self._named(culprit)} against {self._named(parent)}, in turns")

    def _named(self, number: int) -> str:
        commit = self.history[number]
        return f"{commit.sha[:10]} ({commit.subject[:50]})"
