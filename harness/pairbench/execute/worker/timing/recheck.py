"""Whether timed calls computed what they were asked for, each time anew: judged after the clock has stopped."""

import functools
import secrets
import statistics
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import Ended
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import Call, make_call
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.faults import SuiteFaultError
from pairbench.execute.worker.guard import guarded
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.ready import Ready
from pairbench.execute.worker.timing.remembering import remembers, suspicious
from pairbench.execute.worker.trees import copy_tree, refill
from pairbench.execute.worker.trusted import left_running, replaced
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.execute.worker.verify.judge import Known, clearly_right, judge
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_RECHECK_SEED = 2
_APART = 100
_LONG_NS = 1e6
"""Latency in ns from which a call is long: so much longer than what surrounds it that one sample tells twice as long from as long."""
_LATER = 0.25
"""Chance that calls are judged on new values in a round after the first one: of a decoder's round that would be a third, of others a tenth."""
_MORE = 0.005
"""Part of the time of timing in which more than one output of an entry is judged, of those that were kept and of those on new values."""
_NEW_CALLS = 3
"""Number of calls on new values that are compared: one or two may have been slowed by something else."""


def judge_timed(ready: Ready, measuring_s: float, heartbeat: Heartbeat) -> Generator[Ended, None, float]:
    """Judge the outputs that timed calls gave, then those of the very calls that were timed on values they have never seen.

    The right answers are computed afterwards: while calls were timed, none was in the process to be found.

    Args:
        ready: The case.
        measuring_s: Seconds that timing took.
        heartbeat: Of the worker.

    Returns:
        The seconds that this took, and those that were spent on values before.

    Raises:
        SuiteFaultError: something that all implementations share was replaced meanwhile, so no time can be believed.
    """
    began = trusted.perf_counter()
    if why := ready.watch.changed() or replaced() or left_running():
        raise SuiteFaultError(Status.FAILED, f"while they were timed, one of the implementations {why}")
    more_s = _MORE * measuring_s / len(ready.timed)
    ended = yield from _judge_kept(ready, more_s, heartbeat)
    if not ready.job.round or secrets.SystemRandom().random() < _LATER:
        yield from _recheck(ready, more_s, heartbeat, [timed for timed in ready.timed if timed.entry not in ended])
    return ready.values.spent_s + trusted.perf_counter() - began


def _judge_kept(ready: Ready, more_s: float, heartbeat: Heartbeat) -> Generator[Ended, None, set[Entry]]:
    """Yield the ends of entries that gave a wrong output while they were timed, and return these.

    Of the outputs that were kept of an entry one is drawn when all is over, so that nobody could know which, and more are judged
    within `more_s` seconds. Of long calls none is: `_recheck` judges a call on new values, and a call that does less
    work on known values than on new ones shows in its time.
    """
    ended: set[Entry] = set()
    sets = [{**ready.inputs, **values} for values in ready.values.sets]
    rights = _Rights(ready, sets, more_s, alone=True)
    for timed in ready.timed:
        kept = [] if _is_long(timed) and _compares(ready) else list(timed.kept)
        timed.kept.clear()
        verdict = guarded(ready.job, timed.index, heartbeat, functools.partial(rights.contradict, kept))
        if verdict is not None:
            ended.add(timed.entry)
            reason = f"a timed call gave a wrong output: {verdict}; it was not finished when the call returned, or remembered"
            yield verdict if isinstance(verdict, Ended) else _mismatched(timed.entry, reason)
    return ended


def _compares(ready: Ready) -> bool:
    """Return whether calls on new values are compared with those on known ones: not where inputs take too long to make, or too much memory."""
    return len(ready.values.sets) > 1


def _recheck(ready: Ready, more_s: float, heartbeat: Heartbeat, entries: list[Timed]) -> Iterator[Ended]:
    """Time the very calls that were timed on values that no call has seen, at the same addresses, and judge them."""
    if not entries:
        return
    several = _compares(ready) and not all(_is_long(timed) for timed in entries)
    news = _new_values(ready, _NEW_CALLS if several else 1)
    known = copy_tree(ready.inputs) if _compares(ready) else None
    again: list[tuple[Timed, _Again]] = []
    for timed in entries:
        # Of long calls every further one costs: what was timed is what the call on new values is compared with.
        long = known is not None and _is_long(timed)
        step = functools.partial(_call_again, ready, timed, news[:1] if long else news, None if long else known)
        made = guarded(ready.job, timed.index, heartbeat, step)
        if isinstance(made, Ended):
            yield made
        else:
            again.append((timed, made))
    rights = _Rights(ready, news, more_s)
    for timed, calls in again:
        judgement = functools.partial(_judge_again, ready, timed, calls, rights, known)
        verdict = guarded(ready.job, timed.index, heartbeat, judgement)
        if verdict is not None:
            yield verdict if isinstance(verdict, Ended) else _mismatched(timed.entry, verdict)


def _new_values(ready: Ready, count: int, attempt: int = 0) -> list[dict[str, Any]]:
    first = _RECHECK_SEED + ready.job.round + attempt * count * _APART
    seeds = range(first, first + count * _APART, _APART)
    of_case = (ready.operator, ready.job.case, ready.device)
    return [build_inputs(*of_case, seed, like=ready.inputs) for seed in seeds]


@dataclass(frozen=True)
class _Again:
    outputs: list[tuple[int, Any]]
    """Outputs of each call, with the index of the new inputs that they are of."""
    known_ns: list[float]
    """Latencies of calls on inputs that came again and again; empty where none was made."""
    new_ns: list[float]
    """Latencies of the first call on each of the new inputs, each taken right behind one of the known ones."""


def _call_again(
    ready: Ready, timed: Timed, news: list[dict[str, Any]], known: dict[str, Any] | None, *, alike: bool = False
) -> _Again:
    """Call each capture, or once on each of the new inputs, behind a call on known ones.

    Args:
        ready: The case.
        timed: The entry.
        news: Inputs that no call has seen.
        known: Inputs that came again and again; None where calls on these are not compared.
        alike: Whether a call on new inputs, too, comes right behind one on known ones, with the processor's cores awake and memory
            for the outputs at hand. It takes half as long again.
    """
    call, outputs = ready.calls[timed.entry], list[tuple[int, Any]]()
    known_ns, new_ns = list[float](), list[float]()
    # One is enough to tell twice as long from as long, and seven would take most of the time.
    lead_in = 1 if alike else min(timed.lead_in, 1)

    def call_known() -> None:
        for _ in range(lead_in):
            call.reset()
            ready.timer.flush()
            call.run()

    for turn in range(max(call.captures, len(news))):
        if known is not None:
            _put(ready, call, known)
            call_known()
            ready.timer.flush()
            known_ns.append(ready.timer.sample(call.observe).call_ns)
            if alike:
                call_known()
        _put(ready, call, news[turn % len(news)])
        # As many as hid the host's work of the known call: with one alone, a call that the host limits would look slower.
        for _ in range(lead_in + 1):
            ready.timer.flush()
        sample = ready.timer.sample(call.observe, keep=copy_tree)
        outputs.append((turn % len(news), sample.kept))
        new_ns += [sample.call_ns] if turn < len(news) else []
    synchronize(ready.device)
    return _Again(outputs, known_ns, new_ns)


def _is_long(timed: Timed) -> bool:
    """Return whether a call takes so long that hardly anything else doubles it; making it many times would be most of a round."""
    return statistics.median(timed.call_ns) >= _LONG_NS


def _judge_again(
    ready: Ready,
    timed: Timed,
    again: _Again,
    rights: "_Rights",
    known: dict[str, Any] | None,
) -> str | None:
    if wrong := rights.contradict(again.outputs):
        return f"its timed call is wrong on fresh inputs at the same addresses: {wrong}"
    least = 1 if _is_long(timed) else _NEW_CALLS
    # The quickest, for it alone may have been remembered.
    known_ns = again.known_ns or [min(timed.call_ns)]
    if known is None or not suspicious(known_ns, again.new_ns, device_type=ready.device.type, least=least):
        return None

    def more(attempt: int) -> list[tuple[float, float]]:
        made = _call_again(ready, timed, _new_values(ready, least, attempt), known, alike=True)
        # Where each of several captures is called, more calls are on known values.
        return list(zip(made.known_ns, made.new_ns, strict=False))

    return remembers(more, device_type=ready.device.type)


def _put(ready: Ready, call: Call, inputs: dict[str, Any]) -> None:
    refill(ready.inputs, inputs)
    call.refill(inputs)
    call.reset()  # outside of the clock, that of `observe` finds nothing to do: a backward's graph is not part of it


class _Rights:
    """What a case's calls should give for each of several sets of inputs."""

    def __init__(self, ready: Ready, sets: Sequence[dict[str, Any]], more_s: float, *, alone: bool = False) -> None:
        """Compute nothing yet.

        Args:
            ready: The case.
            sets: The inputs.
            more_s: Seconds in which more than one output of an entry is judged.
            alone: Whether outputs come without the state.
        """
        self._ready = ready
        self._sets = sets
        self._more_s = more_s
        self._alone = alone
        self._of = functools.cache(self._right)
        self._rank = secrets.SystemRandom().sample(range(len(sets)), len(sets))
        """The place of each set in the order in which sets are preferred, which nobody can know before."""

    def _right(self, number: int) -> "_Right":
        return _Right(self._ready, self._sets[number], alone=self._alone)

    def contradict(self, outputs: Sequence[tuple[int, Any]]) -> str | None:
        """Return what is wrong with some outputs of one entry, given with the index of their inputs, or None.

        One of them is judged, drawn now, and others within `more_s` seconds. The first is of the set that all entries prefer, so that what is
        right is computed once for them; the others are of any, for of one set a call may have remembered what is right.
        """
        until = trusted.perf_counter() + self._more_s
        drawn = secrets.SystemRandom().sample(outputs, len(outputs))
        preferred = min(drawn, key=lambda item: self._rank[item[0]], default=None)
        for place, (number, given) in enumerate(sorted(drawn, key=lambda item: item is not preferred)):
            if place and trusted.perf_counter() > until:
                break
            if wrong := self._of(number).contradicts(given):
                return wrong
        return None


class _Right:
    """What calls should give for some inputs, by the baseline and, where that leaves a doubt, by the oracle."""

    def __init__(self, ready: Ready, inputs: dict[str, Any], *, alone: bool) -> None:
        self._ready = ready
        self._inputs = inputs
        self._alone = alone
        call = make_call(ready.operator, ready.operator.baseline, "eager", copy_tree(inputs))
        self._expected = self._outputs(copy_tree(call.observe()))
        self._known = Known()

    def _outputs(self, observed: Any) -> Any:
        """Return the outputs alone of what was observed, where those to be judged come without the state."""
        return observed["output"] if self._alone and self._ready.operator.state and observed is not None else observed

    @functools.cached_property
    def _truth(self) -> Any:
        """What the oracle gives; None where there is none. It takes longer than all that was timed, so it is asked once."""
        return self._outputs(oracle_or_why(self._ready.operator, self._inputs)[0])

    def contradicts(self, outputs: Any) -> str | None:
        """Return what is wrong with outputs, or None."""
        tolerance_for = self._ready.operator.tolerance_for
        if clearly_right(outputs, self._expected, tolerance_for, self._known):
            return None
        if not judge(outputs, self._expected, None, tolerance_for, self._known).mismatch:
            return None
        # Strays are for the oracle to tell.
        return judge(outputs, self._expected, self._truth, tolerance_for, self._known).mismatch


def _mismatched(entry: Entry, reason: str) -> Ended:
    return Ended(entry=entry, status=Status.MISMATCHED, reason=reason)
