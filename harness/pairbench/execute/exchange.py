"""The parent's side of comparing outputs between two workers, one case at a time; neither ever works beside the other."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbench.execute.case_state import CaseState
from pairbench.execute.protocol import AnyCaseJob, CompareOutputs, Fingerprint, SaveOutputs, TellOutputs
from pairbench.execute.side import LostError, Side
from pairbench.execute.steps import about
from pairbench.model.agreement import Agreement, OutputsCompared
from pairbench.model.plan import Entry, PlannedCase

_INPUTS = "the inputs of the two sides differ, so what `inputs` makes depends on more than its definition and the seed"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Two workers, the reference's first, and a folder for outputs on their way from one to the other."""

    sides: tuple[Side, Side]
    scratch: Path

    def outputs(
        self, cases: tuple[PlannedCase, PlannedCase], entries: tuple[Entry, ...]
    ) -> dict[Entry, OutputsCompared]:
        """Return how the entries' outputs compare. A failure here is not theirs: they were verified, and will be timed."""
        told = [self._fingerprints(place, case, entries) for place, case in enumerate(cases)]
        found = {}
        for entry in entries:
            before, now = (texts.get(entry) for texts in told)
            if told[0].get(None) != told[1].get(None):
                found[entry] = OutputsCompared(entry=entry, agreement=Agreement.UNKNOWN, reason=_INPUTS)
            elif before is not None and before == now:
                found[entry] = OutputsCompared(entry=entry, agreement=Agreement.EQUAL)
            else:
                found[entry] = self._element_by_element(cases, entry)
        return found

    def _fingerprints(self, place: int, case: PlannedCase, entries: tuple[Entry, ...]) -> dict[Entry | None, str]:
        state = CaseState(planned=case)
        found: dict[Entry | None, str] = {}
        while remaining := tuple(entry for entry in entries if entry not in found and entry not in state.ended):
            answers, _ = self._ask(place, state, TellOutputs(**about(state, remaining)))
            found.update({answer.entry: answer.text for answer in answers if isinstance(answer, Fingerprint)})
        return found

    def _element_by_element(self, cases: tuple[PlannedCase, PlannedCase], entry: Entry) -> OutputsCompared:
        file = self.scratch / "outputs.pt"
        states = tuple(CaseState(planned=case) for case in cases)
        jobs: tuple[AnyCaseJob, ...] = (
            SaveOutputs(**about(states[0], (entry,)), file=file),
            CompareOutputs(**about(states[1], (entry,)), file=file),
        )
        try:
            for place, (state, job) in enumerate(zip(states, jobs, strict=True)):
                answers, ended = self._ask(place, state, job)
                if ended:
                    return OutputsCompared(entry=entry, agreement=Agreement.UNKNOWN, reason=f"not compared: {ended}")
                if place:
                    (compared,) = answers
                    assert isinstance(compared, OutputsCompared)
                    return compared
        finally:
            file.unlink(missing_ok=True)
        raise AssertionError

    def _ask(self, place: int, state: CaseState, job: AnyCaseJob) -> tuple[list[Any], str | None]:
        """Return what came, and why an entry ended, if one did."""
        before = len(state.ended)
        try:
            answers = self.sides[place].ask(state, job)
        except LostError:
            answers = []
        return answers, next((reason for _, reason in itertools.islice(state.ended.values(), before, None)), None)
