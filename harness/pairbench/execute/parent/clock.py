"""The parent's view of how a worker times: samples as they left it, and the parent's own clock beside the worker's.

A worker's clock can be rewritten, its code can be, and so can samples that it still holds. None of that changes how much time passes outside. So the worker
tells of samples some milliseconds after they were taken, and the parent notes when; what the worker says of its calls must then explain the time that has passed.
"""

import dataclasses
import itertools
import statistics
import time
from typing import Any

from pairbench.execute.protocol import Taken, TimedCase
from pairbench.execute.wire import NoMessageError
from pairbench.model.outcome import EntrySamples, TimedRound

_PART, _BEYOND_NS = 0.01, 1e6
"""Part of the time, and ns, by which two clocks may differ. Late messages need none: see `check_clock`."""
_EXPLAINED, _BEYOND_TURN_NS = 0.5, 1e6
"""Part of the latency that an entry reports, and ns, by which its turns may be longer than its calls and the other entries' overhead."""
_FEWEST_TURNS = 5


class CulpritUnknownError(Exception):
    """An implementation disturbed the others, or the measurement, and it is not known which."""

    def __init__(self, of_entry: str, of_case: str) -> None:
        """Take the reason for the entry that is found to have done it, and the reason for all entries where none is."""
        super().__init__(of_entry)
        self.of_entry, self.of_case = of_entry, of_case


class ClocksDisagreeError(CulpritUnknownError):
    """The time that a worker reports is not the time that has passed."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"its clock and ours disagree: {why}",
            f"the clock in the process that timed it and ours disagree: {why}; no implementation alone does that",
        )


@dataclasses.dataclass
class _Asked:
    """A question of the worker: when it came and when the answer went by our clock, and when the worker asked by its own."""

    received_ns: float
    answered_ns: float
    now_ns: float
    since_ns: float | None = None
    """When it had the answer, by its clock; None until it says so."""


class OutsideClock:
    """Samples of one case in one round. Each left the worker milliseconds after it was taken, and is out of its reach since."""

    def __init__(self) -> None:
        self._taken: list[Taken] = []
        self._asked: list[_Asked] = []

    def take(self, taken: Taken, received_s: float) -> None:
        """Take notice of samples, and of when they came by the parent's clock; those that ask for an answer are to be answered at once."""
        if taken.asks and not taken.since_ns and not taken.call_ns:  # the worker begins to time, or does so anew
            self._taken.clear()
            self._asked.clear()
        if self._asked and self._asked[-1].since_ns is None:
            self._asked[-1].since_ns = taken.since_ns
        self._taken.append(taken)
        if taken.asks:
            self._asked.append(_Asked(received_s * 1e9, time.monotonic() * 1e9, taken.now_ns))

    def with_samples(self, told: TimedCase) -> TimedCase:
        """Return a worker's report of its calls with the samples that it sent before; other samples, or none, are a NoMessageError."""
        entries = [
            dataclasses.replace(entry, call_ns=self._of("call_ns", place, len(told.entries)))
            for place, entry in enumerate(told.entries)
        ]
        return dataclasses.replace(told, entries=tuple(entries))

    def as_taken(self, told: TimedRound, alone_ns: tuple[float, ...]) -> TimedRound:
        """Return a round with the samples that the worker sent while it took them; a round of other samples is a NoMessageError."""
        count = len(told.entries)

        def taken(place: int, samples: EntrySamples) -> EntrySamples:
            call_ns = self._of("call_ns", place, count)
            if len(call_ns) != len(samples.call_ns):
                raise NoMessageError("it tells of other samples at the end than while it took them")
            position, at_ns = self._of("position", place, count), self._of("at_ns", place, count)
            return dataclasses.replace(samples, call_ns=call_ns, host_ns=call_ns, position=position, at_ns=at_ns)

        entries = tuple(taken(place, samples) for place, samples in enumerate(told.entries))
        return dataclasses.replace(told, entries=entries, alone_ns=alone_ns)

    def check_calls(self, told: TimedCase, *, plain: bool) -> None:
        """Raise a ClocksDisagreeError where reported calls do not explain their turns; `plain` says that nothing long comes before a call."""
        count = len(told.entries)
        beyond: dict[int, float] = {}
        for place, entry in enumerate(told.entries):
            calls_ns, turns_ns = (self._of(name, place, count) for name in ("call_ns", "turn_ns"))
            overhead_ns = [turn - (1 + entry.lead_in) * call for call, turn in zip(calls_ns, turns_ns, strict=True)]
            if len(overhead_ns) >= _FEWEST_TURNS:
                beyond[place] = statistics.median(overhead_ns)
        for place, value in beyond.items():
            entry = told.entries[place]
            said_ns = (1 + entry.lead_in) * statistics.median(entry.call_ns)
            allowed_ns = _EXPLAINED * said_ns + _BEYOND_TURN_NS
            usual = max([0.0, *(beyond[other] for other in beyond if other != place)])
            if value < -allowed_ns:
                raise ClocksDisagreeError(f"calls take {-value / 1e3:.0f} us more than the turns that they are made in")
            if plain and value > usual + allowed_ns:
                raise ClocksDisagreeError(
                    f"calls take {said_ns / 1e3:.1f} us of a turn by what was recorded, and the turn {(value - usual) / 1e3:.1f} us more than that and than "
                    "what others need around theirs"
                )

    def check_clock(self) -> None:
        """Raise a ClocksDisagreeError where the worker's clock is not ours, a NoMessageError where it did not say when it had an answer."""
        # The worker says when it asked and when it had the answer; the parent knows when the question came and when the answer went.
        # From then until the next question came, no more time can have passed there than here; nor less from before it asked
        # until it had the next answer.
        if not self._asked or any(one.since_ns is None for one in self._asked):
            raise NoMessageError("it did not say when it had an answer")
        for one, other in (*itertools.pairwise(self._asked), (self._asked[0], self._asked[-1])):
            most_ns, least_ns = other.received_ns - one.answered_ns, other.answered_ns - one.received_ns
            without_ns, with_ns = other.now_ns - (one.since_ns or 0), (other.since_ns or 0) - one.now_ns
            for passed_ns, said_ns, wrong in (
                (least_ns, with_ns, with_ns < (1 - _PART) * least_ns - _BEYOND_NS),
                (most_ns, without_ns, without_ns > (1 + _PART) * most_ns + _BEYOND_NS),
            ):
                if wrong:
                    raise ClocksDisagreeError(
                        f"{passed_ns / 1e6:.1f} ms have passed while it says that {said_ns / 1e6:.1f} have"
                    )

    def _of(self, name: str, place: int, count: int) -> tuple[Any, ...]:
        """Return a column of an entry, by its place among so many, block after block."""
        if any(len(taken.call_ns) % count for taken in self._taken):
            raise NoMessageError("it tells of samples that are not of whole blocks")
        return tuple(value for taken in self._taken for value in getattr(taken, name)[place::count])
