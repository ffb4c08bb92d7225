"""The commits of a search, each loaded from a folder of its own: the series there, its hash, its rounds and its counts."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from pairbench.analyze.compare.exact import LAUNCHES, number
from pairbench.analyze.facts import sampled_rounds
from pairbench.analyze.records import Run, to_records
from pairbench.config import Config
from pairbench.errors import SelectionError, UsageError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.interleaving import Interleaving
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.session import DeviceSession, Observer
from pairbench.features.ab import Arguments, LoadedSide, load_side, plan_side, reached_paths, series_of
from pairbench.model.environment import Device, Environment
from pairbench.model.plan import BASELINE, Entry, Plan
from pairbench.model.record import CALL, DEVICE, Latency, Series
from pairbench.plan import equipped, names_implementation
from pairbench.stats import percentile
from pairbench.workflow.git import Worktrees
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.setup import pick_devices


class UnmeasurableError(Exception):
    """A commit cannot be measured: its suite cannot be loaded, lacks the case, or is wrong."""


class Wanted(NamedTuple):
    series: Series
    entry: Entry
    device: Device


@dataclass(kw_only=True)
class LoadedCommit:
    loaded: LoadedSide
    plan: Plan  # the one case, with the implementation and the baseline
    interleaving: Interleaving | None = None  # the turns of this commit with the good end; None before the first turn

    def hash(self, wanted: Wanted) -> str:
        return self.plan.cases[0].operator.implementation(wanted.entry.implementation).hash

    def reached(self) -> frozenset[str]:
        return reached_paths(self.loaded.checkout, [self.plan.cases[0].operator])


def choose_series(loaded: LoadedSide, wanted_device: str, implementation: str | None) -> tuple[Wanted, str]:
    """Return the one series that is selected, and the path of its suite in the repository."""
    if loaded.nothing:
        raise loaded.nothing
    survey = loaded.chosen.survey
    if wanted_device == "all":
        raise UsageError("--device 'all' is for runs; bisect measures on one device, so name it: cuda:0")
    device = pick_devices(wanted_device, survey.devices)[0]
    if survey.broken:
        raise UsageError(f"--bad {loaded.checkout.asked!r}: {survey.broken[0].reason}")
    plan, why = plan_side(loaded, device)
    if why is not None:
        raise why
    device = equipped(device, survey.devices, plan.cases)
    if len(plan.cases) > 1:
        listed = "".join(f"\n  {one.operator.suite}::{one.case.key}" for one in plan.cases[:20])
        raise SelectionError(f"SELECT takes {len(plan.cases)} cases, expected one; name one of{listed}")
    planned = plan.cases[0]
    patterns = () if implementation is None else (implementation,)
    of_role = [one for one in planned.entries if (one.role == BASELINE) == (implementation == BASELINE)]
    entries = [one for one in of_role if names_implementation(patterns, one.implementation)]
    key = planned.case.key
    if len(entries) != 1:
        listed = ", ".join(map(str, entries or planned.entries))
        asked = f"{key}: {len(entries)} implementations are asked for"
        raise SelectionError(f"{asked}, expected one; -i and --mode choose among {listed}")
    (entry,) = entries
    if reason := planned.skipped.get(entry) or planned.untimed.get(entry):
        raise SelectionError(f"{key}, {entry} cannot be measured on {device.selector}: {reason}")
    path = Path(planned.operator.path).resolve().relative_to(loaded.checkout.root.resolve()).as_posix()
    return Wanted(series_of(device, planned, entry), entry, device), path


@dataclass
class LoadedCommits:
    config: Config
    context: WorkerContext
    arguments: Arguments
    worktrees: Worktrees
    progress: PlainProgress
    wanted: Wanted
    known: dict[str, LoadedCommit | UnmeasurableError] = field(default_factory=dict)

    def commit(self, sha: str) -> LoadedCommit:
        if sha not in self.known:
            checkout = self.worktrees.add(sha[:16], sha)
            try:
                self.known[sha] = self.take(load_side(self.config, self.context, self.arguments, checkout))
            except UnmeasurableError as error:
                self.known[sha] = error
        if isinstance(found := self.known[sha], UnmeasurableError):
            raise found
        return found

    def take(self, loaded: LoadedSide) -> LoadedCommit:
        if loaded.chosen.survey.broken:
            raise UnmeasurableError(loaded.chosen.survey.broken[0].reason)
        wanted, entry = self.wanted, self.wanted.entry
        plan, why = plan_side(loaded, wanted.device)
        cases = [one for one in plan.cases if series_of(wanted.device, one, entry) == wanted.series]
        if not cases or entry not in cases[0].entries:
            raise UnmeasurableError(f"there is no {wanted.series.case}, {entry}{f': {why}' if why else ''}")
        names = (BASELINE, entry.implementation)
        kept = tuple(one for one in cases[0].entries if one.mode == entry.mode and one.implementation in names)
        return LoadedCommit(loaded=loaded, plan=Plan(cases=(replace(cases[0], entries=kept),)))

    def log_ratio(self, good: LoadedCommit, sha: str, latency: Latency) -> float:
        """Return log(latency of a commit / latency of the good end) of one more round of both in turns."""
        commit, wanted = self.commit(sha), self.wanted
        interleaving = commit.interleaving
        if first := interleaving is None:
            scratch = self.worktrees.folder / f"outputs-{sha[:16]}"
            scratch.mkdir()
            contexts, plans = (good.loaded.context, commit.loaded.context), (good.plan, commit.plan)
            # Without single steps, for the search reports each round.
            interleaving = commit.interleaving = Interleaving(contexts, wanted.device, plans, Observer(), scratch)
        if not interleaving.twins:
            why = "asks another question there: its definition is not that of the good end"
            raise UnmeasurableError(f"{wanted.series.case} {why}")
        twin = interleaving.twins[0]
        with interleaving.ahead(1) as ahead:
            if first:
                interleaving.prepare()
            interleaving.time(1, interleaving.twins, ahead, first=len(twin.current.rounds))
        if wanted.entry not in twin.comparable():
            ended = [reason for state in reversed(twin.states) if (reason := _ended(state, wanted.entry))]
            other = "it computes something else than the good end"
            raise UnmeasurableError(ended[0] if ended else f"{other}: {twin.outputs[wanted.entry].reason}")
        good_ns, own_ns = (_last_ns(state, wanted.entry, latency) for state in twin.states)
        return math.log(own_ns / good_ns)

    def count(self, sha: str, metric: str, environment: Environment) -> float:
        commit, wanted = self.commit(sha), self.wanted
        session = DeviceSession(commit.loaded.context, wanted.device, commit.plan, Observer())
        session.verify(impostors=False)
        session.profile()
        state = session.states[0]
        if ended := _ended(state, wanted.entry):
            raise UnmeasurableError(ended)
        run = Run(run_id="", started_at="", commit=commit.loaded.checkout.commit)
        (record,) = to_records(run, environment, [state.outcome(wanted.entry)])
        count = number(record, metric)
        if count is None or (metric in LAUNCHES and record.launch_status != "exact"):
            raise UnmeasurableError(f"{metric} is not known: launches are {record.launch_status or 'not counted'}")
        return count


def _ended(state: CaseState, entry: Entry) -> str | None:
    return ": ".join(state.ended[entry]) if entry in state.ended else None


def _last_ns(state: CaseState, entry: Entry, latency: Latency) -> float:
    outcome = state.outcome(entry)
    rounds = sampled_rounds(replace(outcome, rounds=outcome.rounds[-1:]))
    samples = rounds.get(DEVICE if latency is DEVICE else CALL)
    if not samples or not samples[-1]:
        raise UnmeasurableError(f"it has no {latency.name} latency, which the ends have")
    return percentile(samples[-1], 50)
