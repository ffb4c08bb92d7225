"""What is known of a planned case while a session goes through its stages."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pairbench.execute.heartbeat import NOBODY
from pairbench.execute.protocol import CaseJob, Ended, InputsMade, VerifyCase
from pairbench.model.outcome import (
    NOT_PROFILED,
    NOT_REACHED,
    NOTHING_RIGHT,
    ImpostorResult,
    Launches,
    Outcome,
    Profile,
    Status,
    TimedRound,
    Verification,
)
from pairbench.model.plan import Entry, PlannedCase


@dataclass(kw_only=True, eq=False)
class CaseState:
    planned: PlannedCase
    ended: dict[Entry, tuple[Status, str]] = field(default_factory=dict)
    verified: dict[Entry, Verification] = field(default_factory=dict)
    refuted: dict[Entry, Verification] = field(default_factory=dict)
    profiles: dict[Entry, Profile] = field(default_factory=dict)
    rounds: list[TimedRound] = field(default_factory=list)
    impostors: list[ImpostorResult] = field(default_factory=list)
    reported: set[Entry] = field(default_factory=set)
    inputs_s: float = 0.0
    """Seconds of making its inputs, where that was long."""
    spent_s: float = 0.0

    def __post_init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Forget the results of verifying, none of which was reported."""
        for found in (self.ended, self.verified, self.refuted, self.impostors):
            found.clear()
        for entry, reason in self.planned.skipped.items():
            self.end(entry, Status.SKIPPED, reason)

    def unverified(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.planned.entries if entry not in self.ended and entry not in self.verified)

    def timed(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.planned.entries if entry not in self.ended and entry in self.verified)

    def wrong(self) -> tuple[Entry, ...]:
        """Return the entries that ended because they did not do what their declaration promises."""
        return tuple(entry for entry, (status, _) in self.ended.items() if status.bad)

    def leave_out_untimed(self) -> None:
        for entry, reason in self.planned.untimed.items():
            self.end(entry, Status.SKIPPED, reason)

    def leave_out_baselines(self) -> None:
        """End the baselines that nothing is to be compared with, for all their variants are wrong."""
        for baseline in self.timed():
            variants = [entry for entry in self.planned.entries if entry.mode == baseline.mode and entry != baseline]
            wrong = [entry for entry in variants if entry in self.ended and self.ended[entry][0].bad]
            # That a baseline no longer works as a graph is a regression, so there it is measured all the same.
            if baseline.role == "baseline" and baseline.mode != "graph" and wrong and not {*variants} & {*self.timed()}:
                self.end(baseline, Status.SKIPPED, NOTHING_RIGHT)

    def take(self, result: object, job: CaseJob, log_line: Callable[[str], str | None]) -> None:
        match result:
            case Ended(entry=None):
                self.blame(NOBODY, result.status, result.reason, job)
            case Ended(entry=Entry() as entry):
                # The device's own words on a failed assertion are on the worker's stderr only.
                detail = log_line("Assertion") if "assert" in result.reason else None
                self.end(entry, result.status, f"{result.reason} [{detail}]" if detail else result.reason)
            case Verification(status=Status.VERIFIED):
                self.verified[result.entry] = result
            case Verification():
                self.refuted[result.entry] = result
                self.end(result.entry, result.status, result.reason or "")
            case InputsMade():
                self.inputs_s += result.seconds
            case TimedRound():
                self.rounds.append(result)
            case Profile():
                self.profiles[result.entry] = result
            case ImpostorResult():
                self.impostors.append(result)

    def known(self) -> int:
        """Return the number of results so far, which tells whether a job added any."""
        parts = (self.ended, self.verified, self.refuted, self.profiles, self.rounds, self.impostors)
        return sum(len(part) for part in parts)

    def untried_impostors(self) -> tuple[str, ...]:
        tried = {result.impostor for result in self.impostors if result.declared}
        return tuple(impostor.name for impostor in self.planned.operator.impostors if impostor.name not in tried)

    def blame(self, index: int, status: Status, reason: str, job: CaseJob) -> tuple[Entry, ...]:
        """End the entry that ran, or all without a result, because a worker or a case ended; return the entries that this ended."""
        declared = job.declared_impostors if isinstance(job, VerifyCase) else ()
        if not NOBODY <= index < len(job.entries) + len(declared):
            index = NOBODY  # the worker's own memory said so, and a suite has written there
        if index >= len(job.entries):
            name = declared[index - len(job.entries)]
            self.impostors.append(ImpostorResult(impostor=name, declared=True, rejected=True, reason=reason))
            return ()
        blamed = job.entries if index == NOBODY else (job.entries[index],)
        if index == NOBODY and isinstance(job, VerifyCase):
            blamed = tuple(entry for entry in job.entries if entry not in self.verified)
            self.impostors += [
                ImpostorResult(impostor=name, declared=True, rejected=False, reason=f"not tried: {reason}")
                for name in (declared if not blamed else ())
            ]
        for entry in blamed:
            self.end(entry, status, reason)
        return blamed

    def interrupt(self, rounds: int) -> None:
        """Account for the entries that are not final yet when a run of so many rounds is interrupted."""
        done = len(self.rounds)
        for entry in self.planned.entries:
            if entry in self.ended or (not rounds and entry in self.verified):
                continue
            if not done or entry not in self.verified:
                self.end(entry, Status.SKIPPED, NOT_REACHED)
            elif done < rounds or entry not in self.profiles:
                found = self.verified[entry]
                note = f"the run was interrupted after {done} of {rounds} rounds" if done < rounds else NOT_PROFILED
                self.verified[entry] = replace(found, reason="; ".join(filter(None, (found.reason, note))))

    def end(self, entry: Entry, status: Status, reason: str) -> None:
        """Note the first end of an entry; later ones are consequences."""
        self.ended.setdefault(entry, (status, reason))

    def outcome(self, entry: Entry) -> Outcome:
        operator, case = self.planned.operator, self.planned.case
        verification = self.verified.get(entry) or self.refuted.get(entry)
        outcome = functools.partial(Outcome, operator=operator, case=case, entry=entry, verification=verification)
        if entry in self.ended:
            status, reason = self.ended[entry]
            return outcome(status=status, reason=reason)
        return outcome(
            status=Status.MEASURED if self.rounds else Status.VERIFIED,
            reason=verification.reason if verification else None,
            rounds=tuple(self.rounds),
            profile=self.profiles.get(entry),
        )


def unprofiled(entry: Entry, reason: str) -> Profile:
    return Profile(
        entry=entry, launches=Launches(status="unavailable", reason=reason), reason=f"not profiled: {reason}"
    )
