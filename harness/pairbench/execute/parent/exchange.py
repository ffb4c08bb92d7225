"""The parent's side of comparing outputs between two workers, one case at a time; neither ever works beside the other."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.pool import WorkerEndedError, Workers
from pairbench.execute.parent.steps import about
from pairbench.execute.protocol import (
    CaseJob,
    CloseCase,
    CompareOutputs,
    Ended,
    Fingerprint,
    FingerprintOutputs,
    SaveOutputs,
    TakeBlock,
)
from pairbench.model.outcome import Agreement, OutputsCompared
from pairbench.model.plan import Entry, PlannedCase

_INPUTS = "the inputs of the two sides differ, so what `inputs` makes depends on more than its definition and the seed"


class LostError(Exception):
    """An entry ended, or with the worker the whole case did."""


def ask(workers: Workers, state: CaseState, opened: CaseJob, job: TakeBlock | CloseCase | None = None) -> list[Any]:
    """Return what a job gives, or `job` in the case that it opened, or raise LostError; the ends of entries go to the case."""
    worker = workers.get()
    results: list[Any] = []
    try:
        for result in worker.request(job or opened):
            if isinstance(result, Ended):
                state.take(result, opened, worker.log_line)
            else:
                results.append(result)
    except WorkerEndedError as error:
        state.blame(error.index, error.status, error.reason, opened)
        results = []
    if not results:
        raise LostError
    return results


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Two workers, the reference's first, and a folder for outputs on their way from one to the other."""

    sides: tuple[Workers, Workers]
    scratch: Path

    def outputs(
        self, cases: tuple[PlannedCase, PlannedCase], entries: tuple[Entry, ...]
    ) -> dict[Entry, OutputsCompared]:
        """Return how the entries' outputs compare. A failure here is not theirs: they were verified, and will be timed."""
        told = [self._fingerprints(place, case, entries) for place, case in enumerate(cases)]
        compared = {}
        for entry in entries:
            before, now = (texts.get(entry) for texts in told)
            if told[0].get(None) != told[1].get(None):
                compared[entry] = OutputsCompared(entry=entry, agreement=Agreement.UNKNOWN, reason=_INPUTS)
            elif before is not None and before == now:
                compared[entry] = OutputsCompared(entry=entry, agreement=Agreement.EQUAL)
            else:
                compared[entry] = self._element_by_element(cases, entry)
        return compared

    def _fingerprints(self, place: int, case: PlannedCase, entries: tuple[Entry, ...]) -> dict[Entry | None, str]:
        state = CaseState(planned=case)
        texts: dict[Entry | None, str] = {}
        while remaining := tuple(entry for entry in entries if entry not in texts and entry not in state.ended):
            answers, _ = self._ask(place, state, FingerprintOutputs(**about(state, remaining)))
            texts.update({answer.entry: answer.text for answer in answers if isinstance(answer, Fingerprint)})
        return texts

    def _element_by_element(self, cases: tuple[PlannedCase, PlannedCase], entry: Entry) -> OutputsCompared:
        file = self.scratch / "outputs.pt"
        before, now = (CaseState(planned=case) for case in cases)
        try:
            answers, ended = self._ask(0, before, SaveOutputs(**about(before, (entry,)), file=file))
            if not ended:
                answers, ended = self._ask(1, now, CompareOutputs(**about(now, (entry,)), file=file))
            if ended:
                return OutputsCompared(entry=entry, agreement=Agreement.UNKNOWN, reason=f"not compared: {ended}")
            (compared,) = answers
            assert isinstance(compared, OutputsCompared)
            return compared
        finally:
            file.unlink(missing_ok=True)

    def _ask(self, place: int, state: CaseState, job: CaseJob) -> tuple[list[Any], str | None]:
        """Return what came, and why an entry ended, if one did."""
        before = len(state.ended)
        try:
            answers = ask(self.sides[place], state, job)
        except LostError:
            answers = []
        return answers, next((reason for _, reason in itertools.islice(state.ended.values(), before, None)), None)
