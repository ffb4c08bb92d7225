"""One of two sides that share a device: a session, and the worker that answers for the case at hand."""

from typing import Any

from pairbench.execute.case_state import CaseState
from pairbench.execute.pool import WorkerEndedError, Workers
from pairbench.execute.protocol import AnyCaseJob, CloseCase, Ended, TakeTurn


class LostError(Exception):
    """An entry ended, or with the worker the whole case did."""


class Side:
    """Asks one side's worker about one case at a time."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def ask(self, state: CaseState, about: AnyCaseJob, job: TakeTurn | CloseCase | None = None) -> list[Any]:
        """Return what a job gives, without the ends of entries: those are the case's.

        Args:
            state: The case.
            about: What is asked, or the job that opened the case.
            job: What is asked of the open case.

        Raises:
            LostError: an entry ended, and nothing came for the others.
        """
        worker = self._workers.get()
        found: list[Any] = []
        try:
            for result in worker.request(job or about):
                if isinstance(result, Ended):
                    state.take(result, about, worker.log_line)
                else:
                    found.append(result)
        except WorkerEndedError as error:
            state.blame(error.index, error.status, error.reason, about)
            found = []
        if not found:
            raise LostError
        return found
