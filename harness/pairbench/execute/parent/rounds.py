"""Workers for rounds of timing, started before they are needed, so that nobody waits for each of them to load torch."""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from pairbench.execute.parent.pool import Workers, close_all, wait_for

_AHEAD = 8
"""Most processes that are started at once: each holds some 200 MB."""

Party = tuple[Workers, ...]
"""The workers of one round: one, or one for each of two commits."""


class RoundWorkers(AbstractContextManager["RoundWorkers"]):
    """Gives each round workers of its own. No process starts while something is timed, but for one that ended too early."""

    def __init__(self, make: Callable[[], Party], rounds: int, judge: Workers | None = None) -> None:
        """Start as many parties as may be at once; `judge` judges in all rounds, and rounds beyond `rounds` wait for their workers."""
        self._make = make
        self._judge = judge
        self._ready: deque[Party] = deque()
        self._left = rounds
        self.waited_s = 0.0
        """Seconds for which rounds had to wait for their workers so far."""
        self._fill()
        if judge is not None:
            judge.get()

    def __exit__(self, *_: object) -> None:
        close_all(self._all())

    def _all(self) -> list[Workers]:
        return [*itertools.chain(*self._ready), *([self._judge] if self._judge else [])]

    def _fill(self) -> None:
        while self._left and sum(map(len, self._ready)) < _AHEAD:
            party = self._make()
            self._ready.append(party)
            self._left -= 1
            for workers in party:
                workers.get()

    @contextlib.contextmanager
    def round(self) -> Iterator[Party]:
        """Give the workers of the next round, when all that were started have loaded torch; they end with the round."""
        self._left = max(self._left, 0 if self._ready else 1)
        began = time.monotonic()
        self._fill()
        wait_for(self._all())
        self.waited_s += time.monotonic() - began
        party = self._ready.popleft()
        try:
            yield party
        finally:
            close_all(party)
