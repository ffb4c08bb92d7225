"""What a worker says of its calls must explain the time that passes outside, however late its messages are."""

import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pairbench.execute.parent import judged as module
from pairbench.execute.parent.judged import ClocksDisagreeError, OutsideClock
from pairbench.execute.protocol import Taken, TimedCase, TimedEntry
from pairbench.execute.wire import NoMessageError

BASELINE_US, OVERHEAD_US = 400, 20


class Worker:
    """Times two entries in blocks, with a clock and samples that may be false, and tells a parent that may be late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: OutsideClock) -> None:
        self.us = 1.0
        """Time that has passed, by which the parent's clock goes too."""
        self._clock = clock
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.us / 1e6))

    def time(
        self,
        *,
        variant_us: float = 200,
        hidden: float = 0.0,
        said: float = 1.0,
        late: Callable[[], float] = lambda: 0.0,
        blocks: int = 120,
        asks: bool = True,
    ) -> None:
        """Time.

        Args:
            variant_us: What the variant's call takes.
            hidden: Part of that by which the clock goes slower meanwhile.
            said: What it says that its calls take, times what its clock does.
            late: How late a message is, in us.
            blocks: How many.
            asks: Whether it says when it had an answer.
        """
        behind, since = 0.0, 0

        def now() -> int:
            return int(1e3 * (self.us - behind))

        def tell(ask: bool, call_ns: tuple[float, ...] = (), turn_ns: tuple[int, ...] = ()) -> None:
            nonlocal since
            none = (0,) * len(call_ns)
            taken = Taken(
                call_ns=call_ns, position=none, at_ns=none, turn_ns=turn_ns, now_ns=now(), since_ns=since, asks=ask
            )
            delay = late()
            if ask:  # it waits
                self.us += delay
                self._clock.take(taken, self.us / 1e6)
                self.us += delay
                since = now()
            else:
                self._clock.take(taken, (self.us + delay) / 1e6)

        tell(True)
        call_ns, turn_ns = list[float](), list[int]()
        for block in range(blocks):
            calls, turns = [0.0, 0.0], [0, 0]
            for place, us in ((0, float(BASELINE_US)), (1, variant_us)):
                at = now()
                for _ in range(2):
                    began = now()
                    self.us += us
                    behind += hidden * us * place
                    calls[place] = (now() - began) * (said if place else 1.0)
                self.us += OVERHEAD_US
                turns[place] = now() - at
            call_ns += calls
            turn_ns += turns
            if block % 3 == 2:
                tell(block % 40 == 38, (*call_ns,), (*turn_ns,))
                call_ns.clear()
                turn_ns.clear()
        tell(True)
        if asks:
            tell(False)


def told(calls: int = 120) -> TimedCase:
    entries = [
        TimedEntry(index=index, call_ns=(1.0,), fresh_ns=(), lead_in=1, warm_up_ns=1.0, kept=(), began_on_new=False)
        for index in (0, 1)
    ]
    return TimedCase(entries=tuple(entries), measuring_s=1.0, sets=3)


@pytest.fixture
def clock() -> OutsideClock:
    return OutsideClock()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, clock: OutsideClock) -> Worker:
    return Worker(monkeypatch, clock)


def check(clock: OutsideClock, *, plain: bool = True) -> None:
    clock.check_clock()
    clock.check_calls(clock.with_samples(told()), plain=plain)


def test_an_honest_worker_is_believed_however_late_its_messages_are(worker: Worker, clock: OutsideClock) -> None:
    draw = random.Random(0)
    worker.time(late=lambda: draw.choice([50, 100, 300_000]))
    check(clock)


@pytest.mark.parametrize("late_us", [0, 400_000])
def test_a_clock_that_hides_time_is_found_however_late_messages_are(
    worker: Worker, clock: OutsideClock, late_us: float
) -> None:
    delays = itertools.cycle([0.0, 0.0, 0.0, late_us])
    worker.time(hidden=0.5, late=lambda: next(delays))
    with pytest.raises(ClocksDisagreeError, match="have passed while it says that"):
        check(clock)


def test_a_clock_that_adds_time_is_found(worker: Worker, clock: OutsideClock) -> None:
    worker.time(hidden=-0.5)
    with pytest.raises(ClocksDisagreeError, match="have passed while it says that"):
        check(clock)


def test_samples_that_do_not_explain_their_turns_are_found(worker: Worker, clock: OutsideClock) -> None:
    worker.time(variant_us=2000, said=0.25)
    with pytest.raises(ClocksDisagreeError, match=r"calls take 1000\.0 us of a turn by what was recorded"):
        check(clock)


def test_where_a_state_is_put_back_nobody_knows_how_long_a_turn_may_be(worker: Worker, clock: OutsideClock) -> None:
    worker.time(variant_us=2000, said=0.25)
    check(clock, plain=False)


def test_samples_longer_than_their_turns_are_found(worker: Worker, clock: OutsideClock) -> None:
    worker.time(variant_us=2000, said=3)
    with pytest.raises(ClocksDisagreeError, match="more than the turns that they are made in"):
        check(clock)


def test_who_does_not_say_when_it_had_an_answer_is_not_believed(worker: Worker, clock: OutsideClock) -> None:
    worker.time(asks=False)
    with pytest.raises(NoMessageError):
        check(clock)


def test_samples_are_those_that_were_told_at_once(worker: Worker, clock: OutsideClock) -> None:
    worker.time(blocks=3)
    found = clock.with_samples(told())
    assert [entry.call_ns for entry in found.entries] == [(BASELINE_US * 1e3,) * 3, (200e3,) * 3]


def test_a_worker_that_begins_anew_is_judged_by_its_newest_samples(worker: Worker, clock: OutsideClock) -> None:
    worker.time(hidden=0.5, blocks=30)
    worker.time()
    check(clock)
    assert {len(entry.call_ns) for entry in clock.with_samples(told()).entries} == {120}
