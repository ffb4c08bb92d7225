"""A run that has a budget of time: whole cases as far as they fit, and what is left for those whose intervals are widest.

What a case is going to take is guessed from what verifying it took, and the guess is put right by the batches before.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.session import DeviceSession
from pairbench.model.environment import Settings
from pairbench.model.outcome import OUT_OF_BUDGET, Status

_CLOSING_PART = 0.02  # the part of the budget that is kept for the last statistics and files
_FIRST_PART = 0.5  # the part of the time that the first batch may take, by a guess that nothing has put right yet
_WIDEST_PART = 0.25
"""The part of the imprecise cases that a further round takes, the widest first: not a single case, for a round costs the start of a process."""


@dataclass(kw_only=True)
class Budget:
    """The time that is left, the seconds that cases take, and what is done of them."""

    deadline: float
    seconds: float
    settings: Settings
    width: Callable[[CaseState], float | None]
    """Returns the half-width of a case's log speedup, widest over its variants; up to the target a case is precise."""
    clock: Callable[[], float] = time.monotonic
    start_s: float = 5.0  # seconds until a batch's round workers are ready; a guess until the first batch
    verify_s: list[float] = field(default_factory=list)
    guessed_s: float = 0.0  # seconds guessed for all batches after verifying, without the correction
    spent_s: float = 0.0  # seconds that the batches took instead

    def left(self) -> float:
        return self.deadline - _CLOSING_PART * self.seconds - self.clock()

    def typical_verify_s(self) -> float:
        return sum(self.verify_s) / len(self.verify_s) if self.verify_s else self.settings.case_seconds

    def rest_s(self, verify_s: float) -> float:
        """Return the seconds that timing and profiling a case may take, given those of verifying it."""
        # A round makes the inputs and calls everything for the first time, as verifying does.
        return (self.settings.rounds * (verify_s + self.settings.case_seconds) + verify_s) * self._correction()

    def _correction(self) -> float:
        return min(10.0, max(0.1, self.spent_s / self.guessed_s)) if self.guessed_s else 1.0

    def __call__(self, session: DeviceSession) -> None:
        """Do whole cases while there is room, then further rounds; all that is left is out of budget."""
        waiting = deque(session.states)
        while waiting and self._batch(session, waiting):
            pass
        for state in waiting:
            _give_up(state)
        number, start_s = self.settings.rounds, self.start_s
        while states := self._widest(session, self.left() - start_s):
            with session.round_workers(1) as ahead, ahead.round() as (workers,):
                session.time_round(states, workers, number, f"round {number + 1}")
            number, start_s = number + 1, ahead.waited_s

    def _batch(self, session: DeviceSession, waiting: deque[CaseState]) -> bool:
        """Verify, time and profile the next cases that fit; return False if none fits."""
        first = not self.verify_s
        until = self.left() * (_FIRST_PART if first else 1.0) + self.clock()
        if not first and not self._fits(until, self.start_s, self.typical_verify_s()):
            return False
        with session.round_workers(self.settings.rounds) as ahead:
            batch = self._verified(session, waiting, until)
            began = self.clock()
            session.time(self.settings.rounds, ahead, batch)
        session.profile(batch.keys(), final=False)
        if batch:
            self.start_s = ahead.waited_s
            # This puts further guesses right.
            self.guessed_s += sum(map(self.rest_s, batch.values())) / self._correction()
            self.spent_s += self.clock() - began - ahead.waited_s
        return True

    def _verified(self, session: DeviceSession, waiting: deque[CaseState], until: float) -> dict[CaseState, float]:
        """Verify the next cases while all would be done by `until`, the very first in any case; return the verify seconds of those to time."""
        batch: dict[CaseState, float] = {}
        guesses: dict[CaseState, float] = {}  # seconds after verifying, of those that are being verified

        def coming_s() -> float:
            return self.start_s + sum(map(self.rest_s, batch.values())) + sum(guesses.values())

        def take() -> CaseState | None:
            typical_s = self.typical_verify_s()
            first = not self.verify_s and not guesses
            if not waiting or not (first or self._fits(until, coming_s(), typical_s)):
                return None
            guesses[waiting[0]] = self.rest_s(typical_s)
            return waiting.popleft()

        def verified(state: CaseState, took_s: float) -> None:
            first = not self.verify_s
            self.verify_s.append(took_s)
            del guesses[state]
            if not session.timed([state]):
                return
            if not first and coming_s() + self.rest_s(took_s) > self.left():
                _give_up(state)  # it was verified, and what it takes beyond that is too much for this time
            else:
                batch[state] = took_s

        session.verify(take, verified)
        return batch

    def _fits(self, until: float, coming_s: float, verify_s: float) -> bool:
        return self.clock() + coming_s + verify_s + self.rest_s(verify_s) <= until

    def _widest(self, session: DeviceSession, seconds: float) -> list[CaseState]:
        """Return the cases of a further round: the widest imprecise ones that fit into some seconds."""
        widths = {state: self.width(state) or 0.0 for state in session.timed() if state.rounds}
        imprecise = (state for state in widths if widths[state] > self.settings.target)
        wide = sorted(imprecise, key=lambda state: -widths[state])
        taken: list[CaseState] = []
        for state in wide:
            if len(taken) < math.ceil(_WIDEST_PART * len(wide)) and session.round_s[state] <= seconds:
                taken.append(state)
                seconds -= session.round_s[state]
        return taken


def _give_up(state: CaseState) -> None:
    for entry in state.planned.entries:
        state.end(entry, Status.SKIPPED, OUT_OF_BUDGET)
