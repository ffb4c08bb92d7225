"""`pairbench ab`: two commits with the same selection measured in turns, block by block, from their suites to a comparison.

Nothing is put into the store of runs: rows of a run are paired within that run, and these are paired across two commits. Both sides go
into a store of their own, if one is named.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairbench.analyze.compare.latency import suspicious
from pairbench.analyze.compare.runs import SEVERITY, compare, suspects
from pairbench.analyze.records import Run, broken_record, to_records, to_samples
from pairbench.config import Config
from pairbench.errors import InterruptedRunError, SelectionError, SuiteError, UsageError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.interleaving import Interleaving, SharedCase
from pairbench.execute.parent.lock import device_lock
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Survey
from pairbench.execute.parent.session import Observer
from pairbench.model.comparison import Attribution, Change, Comparison, GateOutcome, Judgement, Policy, Side, Verdict
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import Agreement, Outcome, OutputsCompared, Status
from pairbench.model.plain import Value, plain
from pairbench.model.plan import Entry, OperatorDescription, Plan, PlannedCase
from pairbench.model.record import Record, Series
from pairbench.plan import check_implementations, equipped, names_implementation, parse_selection
from pairbench.report.comparison import document
from pairbench.report.rows import expanded
from pairbench.store.location import StoreLocation
from pairbench.store.reading import stored_files
from pairbench.store.writer import write_runs
from pairbench.suite.modules import find_suites
from pairbench.suite.reached import reached_files
from pairbench.workflow.devices import HostWatch, plan_for, probe_device
from pairbench.workflow.git import Checkout, find_commit, open_checkouts, repository_of
from pairbench.workflow.progress import PlainProgress, open_progress
from pairbench.workflow.setup import Chosen, choose, default_places, moved_names, open_context, pick_devices, stamp

SIDES = ("reference", "current")  # the names of the two sides, which are also in the ids of their runs
Parts = list[tuple[Run, list[Outcome]]]  # the outcomes of each case of one side, and the run that they belong to
_ROUNDS = 5  # the default: a round is one pair of ratios, and few tell little of the spread of pairs


class Arguments(Value):
    repository: Path
    base: str
    head: str | None  # the commit that is judged; None for the working tree
    select: tuple[str, ...]
    implementations: tuple[str, ...]  # names or globs; empty for all

    def suites(self, config: Config) -> tuple[Path, ...]:
        """Return the suite files of the working tree; a commit may have others."""
        named = tuple(path for text in self.select if (path := _path_of(text)) is not None)
        return find_suites(tuple(path for path in named or _defaults(config) if path.exists()))


class LoadedSide(Value):
    checkout: Checkout
    context: WorkerContext
    chosen: Chosen
    nothing: UsageError | None = None  # the error, if the side has nothing of the selection


def read_arguments(config: Config, base: str, rest: list[str], implementations: tuple[str, ...]) -> Arguments:
    """Split HEAD from SELECT: the first argument after BASE is HEAD if git knows a commit of that name."""
    named = [path for text in rest if (path := _path_of(text)) is not None]
    repository = repository_of(named[0] if named else Path.cwd())
    for path in named or _defaults(config):
        if not path.is_relative_to(repository):
            why = "ab measures two of its commits; name one of its suites, or set `suites` in its pyproject.toml"
            raise UsageError(f"{path} is outside of the repository {repository}, expected suites in it: {why}")
    head = rest[0] if rest and _path_of(rest[0]) is None and find_commit(repository, rest[0]) else None
    select = tuple(rest[1:] if head else rest)
    return Arguments(repository=repository, base=base, head=head, select=select, implementations=implementations)


def load_side(config: Config, context: WorkerContext, arguments: Arguments, checkout: Checkout) -> LoadedSide:
    context = replace(context, cache=context.cache / checkout.name, stand_in=checkout.stand_in)
    root = config.root.resolve()
    inside = root.relative_to(arguments.repository) if root.is_relative_to(arguments.repository) else Path()
    folders = [_path_on_side(path, arguments, checkout) for path in _defaults(config)]
    suites = tuple(str(folder) for folder in folders if folder and folder.exists())
    ours = replace(config, root=checkout.root / inside, suites=suites, catalogue=False)
    moved = moved_names(config)
    here = {text: _text_on_side(text, arguments, checkout, root, moved) for text in arguments.select}
    whole_files = [text for text in here if _path_of(text) is not None and "::" not in text]
    if whole_files and not any(here[text] for text in whole_files):
        # Names without a file are looked for in these files, so that on this side there is nothing to look in.
        here = {text: found for text, found in here.items() if "::" in text}
    select = [text for text in here.values() if text is not None]
    chosen = Chosen(survey=Survey(devices=(), operators=(), broken=()), selections=())
    nothing: UsageError | None = None
    if arguments.select and not select:
        nothing = SuiteError(f"there is no {' and no '.join(arguments.select)}, expected suites of the repository")
    else:
        try:
            chosen = choose(ours, context, select, arguments.implementations)
        except (SuiteError, SelectionError) as error:
            nothing = error

    def renamed(values: Iterable[Any]) -> tuple[Any, ...]:
        """Return operators, broken suites or selections of an earlier commit with the present names of their suites, so that both sides have the same series."""
        return tuple(replace(one, suite=moved.get(one.suite, one.suite)) for one in values)

    survey = replace(chosen.survey, operators=renamed(chosen.survey.operators), broken=renamed(chosen.survey.broken))
    chosen = replace(chosen, survey=survey, selections=renamed(chosen.selections))
    return LoadedSide(checkout=checkout, context=context, chosen=chosen, nothing=nothing)


def plan_side(side: LoadedSide, device: Device) -> tuple[Plan, UsageError | None]:
    """Return a side's plan, and the error that explains an empty plan: another commit need not have all that is selected."""
    if side.nothing:
        return Plan(cases=()), side.nothing
    survey, selections = side.chosen.survey, side.chosen.selections
    broken = {suite.suite for suite in survey.broken}
    cases = [(operator, case) for operator in survey.operators for case in operator.cases]
    taking = tuple(one for one in selections if one.suite in broken or any(one.takes(*case) for case in cases))
    wanted = side.chosen.implementations
    known = {item.name for operator in survey.operators for item in operator.implementations}
    having = tuple(one for one in wanted if any(names_implementation((one,), name) for name in known))
    chosen = replace(side.chosen, selections=taking or selections, implementations=having or wanted)
    try:
        return plan_for(side.context, chosen, device, edge=False), None
    except SelectionError as error:
        return Plan(cases=()), error


def reached_paths(checkout: Checkout, operators: Iterable[OperatorDescription]) -> frozenset[str]:
    """Return the paths, in a checkout, of the files that the suites of some operators depend on."""
    root = checkout.root.resolve()
    reached = [reached_files(suite, root) for suite in {Path(one.path).resolve() for one in operators}]
    files = (file for suite in reached for file in (*suite.tree, *suite.packages) if file.is_relative_to(root))
    return frozenset(file.relative_to(root).as_posix() for file in files)


def _defaults(config: Config) -> tuple[Path, ...]:
    return tuple(path.resolve() for path in default_places(config))


def _path_of(text: str) -> Path | None:
    """Return the file or folder in a SELECT argument, or None."""
    selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
    return Path(selection.suite).resolve() if selection.suite is not None else None


def _path_on_side(path: Path, arguments: Arguments, checkout: Checkout) -> Path | None:
    """Return a path of the repository in a checkout of it; None for one outside."""
    inside = path.is_relative_to(arguments.repository)
    return checkout.root / path.relative_to(arguments.repository) if inside else None


def _text_on_side(text: str, asked: Arguments, checkout: Checkout, root: Path, moved: Mapping[str, str]) -> str | None:
    path = _path_of(text)
    if path is None:
        return text
    olds = [root / old for old, new in moved.items() if root / new == path]
    sides = [_path_on_side(one, asked, checkout) for one in (path, *olds)]
    _, separator, pattern = text.partition("::")
    return next((f"{side}{separator}{pattern}" for side in sides if side and side.exists()), None)


def to_measure_again(changes: Sequence[Change]) -> frozenset[Series]:
    """Return the series that are slower or may be: further rounds tell. Counts are exact and need none."""
    worse, judged = set(suspects(changes)), ((one.series, item) for one in changes for item in one.judgements)
    return frozenset(
        series for series, item in judged if suspicious(item) or (item.verdict is Verdict.SLOWER and series in worse)
    )


def with_outputs(change: Change, compared: OutputsCompared | None) -> Change:
    """Return a change that also says whether both commits compute the same."""
    if compared is None or change.outcome is GateOutcome.INCOMPARABLE:
        return change
    correctness, why = compared.correctness, compared.reason
    left = f", with {100 * correctness.margin:.0f} % of it left" if correctness else ""
    differs = f"right by itself, and not the same as before for the same inputs: {why}"
    outcome, reason = {
        Agreement.EQUAL: (GateOutcome.UNCHANGED, "computes the same to the bit"),
        Agreement.WITHIN: (GateOutcome.UNCHANGED, f"computes the same within the tolerance{left}"),
        Agreement.DIFFERENT: (GateOutcome.FAILED, differs),
        Agreement.UNKNOWN: (GateOutcome.UNDECIDED, f"nobody knows whether it computes the same: {why}"),
    }[compared.agreement]
    judgement = Judgement(metric="outputs", outcome=outcome, current=compared.agreement.value, reason=reason)
    if SEVERITY.index(outcome) >= SEVERITY.index(change.outcome):
        return replace(change, judgements=(*change.judgements, judgement))
    # What it computes comes first: a latency of something else is no news of this.
    change = replace(change, outcome=outcome, judgements=(judgement, *change.judgements))
    if outcome is GateOutcome.FAILED:
        return replace(change, reason=reason, attribution=Attribution.CODE)
    return replace(change, reason=f"{reason}; {change.reason}")


@dataclass(frozen=True)
class SideBySide:
    comparison: Comparison
    records: tuple[tuple[Record, ...], tuple[Record, ...]]  # of each series, twice where it was measured again
    parts: tuple[Parts, Parts]
    environment: Environment
    outputs: dict[Series, OutputsCompared]
    broken: tuple[str, ...] = ()  # errors of suites of the current side that cannot be loaded

    def plain(self, *, strict: bool) -> dict[str, Any]:
        outputs = [{**plain(series), **plain(compared)} for series, compared in self.outputs.items()]
        records = {f"{name}_records": list(map(expanded, side)) for name, side in zip(SIDES, self.records, strict=True)}
        return {**document(self.comparison), "strict": strict, "outputs": outputs, **records}


@dataclass(frozen=True)
class Turns:
    context: WorkerContext
    sides: tuple[LoadedSide, LoadedSide]  # the reference, then the current side
    device: str
    scratch: Path  # a folder for outputs that one side passes to the other
    progress: PlainProgress
    policy: Policy


def compare_commits(config: Config, arguments: Arguments, device: str, policy: Policy) -> SideBySide:
    if config.settings.timer != "auto":
        raise UsageError("setting 'timer' is 'do_bench', which cannot take turns; ab needs 'auto'")
    if "rounds" not in config.given:
        config = replace(config, settings=replace(config.settings, rounds=_ROUNDS))
    with (
        open_context(config, arguments.suites(config)) as context,
        open_checkouts(arguments.repository, arguments.base, arguments.head) as (base, head, scratch),
        open_progress() as progress,
    ):
        named, against = (f"{side.asked} ({side.commit.sha[:7]})" for side in (head, base))
        progress.notify(f"pairbench: {named} against {against}")
        sides = (load_side(config, context, arguments, base), load_side(config, context, arguments, head))
        return measure(Turns(context, sides, device, scratch, progress, policy))


def measure(loaded: Turns) -> SideBySide:
    """Measure two loaded commits in turns and compare them; cases that look slower are measured twice."""
    if loaded.device == "all":
        raise UsageError("--device 'all' is for runs; ab has two commits take turns on one device, so name it: cuda:0")
    known = [side.chosen.survey.devices for side in loaded.sides if not side.nothing]
    if not known and (why := loaded.sides[1].nothing):
        raise why
    device = pick_devices(loaded.device, known[-1])[0]
    plans = _plans(loaded.sides, device)
    device = equipped(device, known[-1], [case for plan in plans for case in plan.cases])
    interrupted = loaded.context.interrupted
    with device_lock(device, loaded.progress.notify, interrupted.is_set):
        done = _Measurement(loaded, plans, device).run()
    if interrupted.is_set():
        raise InterruptedRunError
    return done


def _plans(sides: tuple[LoadedSide, LoadedSide], device: Device) -> tuple[Plan, Plan]:
    surveys = [side.chosen.survey for side in sides]
    if not any(survey.broken for survey in surveys):
        # One side may be without, which then has nothing to compare; not both.
        operators = [operator for survey in surveys for operator in survey.operators]
        check_implementations({name for side in sides for name in side.chosen.implementations}, operators)
    (reference, no_reference), (current, no_current) = (plan_side(side, device) for side in sides)
    if no_reference and no_current:
        raise no_current
    return reference, current


class _Measurement:
    def __init__(self, loaded: Turns, plans: tuple[Plan, Plan], device: Device) -> None:
        self.loaded, self.plans, self.device = loaded, plans, device
        self.again: list[SharedCase] = []
        began = dt.datetime.now(dt.UTC)
        stem, at, sides = stamp(began), began.isoformat(timespec="milliseconds"), zip(SIDES, loaded.sides, strict=True)
        self.runs = [Run(run_id=f"{stem}-{name}", started_at=at, commit=one.checkout.commit) for name, one in sides]
        self.watch = HostWatch(device, loaded.progress.notify)
        self.environment = probe_device(loaded.context, device, self.watch)
        contexts = (loaded.sides[0].context, loaded.sides[1].context)
        observer = Observer(step=loaded.progress.step, stepped=loaded.progress.stepped)
        self.alternation = Interleaving(contexts, device, plans, observer, loaded.scratch)

    def run(self) -> SideBySide:
        rounds = self.loaded.context.settings.rounds
        alternation = self.alternation
        cases = sum(len(session.states) for session in alternation.sessions)
        self.loaded.progress.expect(self.device, 2 * cases + (1 + rounds) * len(alternation.twins))
        with alternation.ahead(rounds) as ahead:
            alternation.prepare()
            alternation.time(rounds, alternation.twins, ahead)
        alternation.profile()
        self._take_in_load()
        first = self._compare()
        slower = {(series.suite, series.case) for series in to_measure_again(first.comparison.changes)}
        self.again = [twin for twin in alternation.twins if (twin.current.planned.operator.suite, twin.key) in slower]
        if not self.again:
            return first
        slower_cases = f"{len(self.again)} case(s) look slower"
        self.loaded.progress.notify(f"pairbench: {slower_cases} and are measured again before anything fails")
        self.loaded.progress.expect(self.device, rounds * len(self.again))
        with alternation.ahead(rounds) as ahead:
            alternation.time(rounds, self.again, ahead, first=rounds)
        self._take_in_load()
        return self._compare()

    def _take_in_load(self) -> None:
        states = [state for session in self.alternation.sessions for state in session.states]
        load = self.watch.during(states, self.alternation.foreign_cores)
        self.environment = load.put_in(self.environment)
        self.watch.end(load)

    def _compare(self) -> SideBySide:
        parts = (self._parts(0), self._parts(1))
        records = (self._records(0, parts[0]), self._records(1, parts[1]))
        twins = self.alternation.twins
        found = [(shared.current.planned, *pair) for shared in twins for pair in shared.outputs.items()]
        outputs = {series_of(self.device, planned, entry): agreement for planned, entry, agreement in found}
        # The same round of both commits is a pair.
        compared = compare(*records, policy=self.loaded.policy, interleaved=True)
        # A suite that loads on neither side has no series: it is a problem, and no change.
        changes = tuple(with_outputs(one, outputs.get(one.series)) for one in compared if one.series.case)
        named = [(side.checkout.asked, side) for side in self.loaded.sides]
        reference, current = (Side(asked=name, runs=(), commits=(side.checkout.commit.sha,)) for name, side in named)
        problems = [f"{name}: {suite.reason}" for name, side in named for suite in side.chosen.survey.broken]
        problems += [f"{name}: {side.nothing}" for name, side in named if side.nothing]
        bare = [(name, side.checkout.submodules) for name, side in named if side.chosen.survey.broken]
        missing = "submodules are not there in a worktree"
        problems += [f"{name}: {missing} ({', '.join(folders)})" for name, folders in bare if folders]
        suites = {change.series.suite for change in changes}
        broken = tuple(suite.reason for suite in self.plans[1].broken if suite.suite not in suites)
        comparison = Comparison(reference=reference, current=current, changes=changes, problems=tuple(problems))
        return SideBySide(comparison, records, parts, self.environment, outputs, broken)

    def _parts(self, index: int) -> Parts:
        """Return the outcomes of a side; a case that was measured again is there twice, the second time in a run that confirms the first."""
        run, plan = self.runs[index], self.plans[index]
        states, rounds = self.alternation.sessions[index].states, self.loaded.context.settings.rounds
        measured_again = {shared.states[index] for shared in self.again}
        second = replace(run, run_id=f"{run.run_id}-again", confirms=run.run_id)
        parts: Parts = []
        for state in states:
            parts.append((run, _outcomes(state, range(rounds))))
            if state in measured_again:
                parts.append((second, _outcomes(state, range(rounds, 2 * rounds))))
        known = {(state.planned.operator.suite, state.planned.case.key) for state in states}
        # Of the reference: what is gone, or asks another question now.
        others = [case for case in plan.cases if (case.operator.suite, case.case.key) not in known]
        return [*parts, *((run, _outcomes(CaseState(planned=case), range(0))) for case in others)]

    def _records(self, index: int, parts: Parts) -> tuple[Record, ...]:
        rows = [broken_record(self.runs[index], self.environment, suite) for suite in self.plans[index].broken]
        for run, outcomes in parts:
            # Not timed for want of the other side: nothing that the implementation did.
            rows += [
                replace(row, status=Status.MEASURED.value, reason=None) if row.status == Status.VERIFIED else row
                for row in to_records(run, self.environment, outcomes)
            ]
        return tuple(rows)


def series_of(device: Device, planned: PlannedCase, entry: Entry) -> Series:
    where = {"device_name": device.name, "suite": planned.operator.suite, "case": planned.case.key}
    return Series(**where, implementation=entry.implementation, mode=entry.mode)


def _outcomes(state: CaseState, rounds: range) -> list[Outcome]:
    outcomes = (state.outcome(entry) for entry in state.planned.entries)
    return [replace(one, rounds=tuple(timed for timed in one.rounds if timed.round in rounds)) for one in outcomes]


def open_store(config: Config, history: Config) -> StoreLocation:
    """Return a store for the sides of comparisons: it can be written, and it is not the history's."""
    location = StoreLocation.of(config.store)
    run_ids = [file.run_id for file in stored_files(location, "records").files]
    others = [run_id for run_id in run_ids if not any(f"-{side}" in run_id for side in SIDES)]
    if others or location.root == StoreLocation.of(history.store).root:
        what = f"holds run {others[0]}" if others else "is where runs go"
        why = "in a history the two sides of ab would pass for runs; name a store of their own"
        raise UsageError(f"--store {location.name!r} {what}: {why}")
    location.make_folder(f"{location.root}/records")
    location.probe(f"{location.root}/records")
    return location


def keep(found: SideBySide, location: StoreLocation) -> None:
    """Write both sides, each as a run, with a second run for cases that were measured again."""
    for records, parts in zip(found.records, found.parts, strict=True):
        samples = [row for run, outcomes in parts for row in to_samples(run, found.environment, outcomes)]
        write_runs(location, records, samples)
