"""Whether timed calls computed what they were asked for, each time anew: judged after the clock has stopped."""

import functools
import secrets
import statistics
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import Ended
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import Call
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.faults import SuiteFaultError
from pairbench.execute.worker.guard import attributed, guarded
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.ready import Ready
from pairbench.execute.worker.timing.remembering import remembers, suspicious
from pairbench.execute.worker.timing.rights import Right, Rights
from pairbench.execute.worker.trees import copy_tree, refill
from pairbench.execute.worker.trusted import left_running, replaced
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_RECHECK_SEED = 2
_APART = 100
_LONG_NS = 1e6
"""Latency in ns from which a call is long: so much longer than what surrounds it that one sample tells twice as long from as long."""
_LATER = 0.25
"""Chance that calls are judged on new values in a round after the first one: of a decoder's round that would be a third, of others a tenth."""
_MORE = 0.005
"""Part of the time of timing in which more than one of the outputs that were kept of an entry is judged."""
_PAIRS_AT_ONCE = 3
"""Number of pairs of calls that are made at once where one was slow on new values: any may have been slowed by something else."""


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
    ended = yield from _judge_kept(ready, _MORE * measuring_s / len(ready.timed), heartbeat)
    if not ready.job.round or secrets.SystemRandom().random() < _LATER:
        yield from _recheck(ready, heartbeat, [timed for timed in ready.timed if timed.entry not in ended])
    if why := ready.watch.changed_flags() or replaced() or left_running():
        raise SuiteFaultError(Status.FAILED, f"while they were judged, one of the implementations {why}")
    return ready.values.spent_s + trusted.perf_counter() - began


def _judge_kept(ready: Ready, more_s: float, heartbeat: Heartbeat) -> Generator[Ended, None, set[Entry]]:
    """Yield the ends of entries that gave a wrong output while they were timed, and return these.

    Of the outputs that were kept of an entry one is drawn when all is over, so that nobody could know which, and more are judged
    within `more_s` seconds. Of long calls none is, and of no call where the baseline's are long: `_recheck` judges a call on new values,
    and a call that does less work on known values than on new ones shows in its time.
    """
    ended: set[Entry] = set()
    sets = [{**ready.inputs, **values} for values in ready.values.sets]
    baselines = [timed for timed in ready.timed if _is_eager_baseline(timed)]
    right_s = max((statistics.median(timed.call_ns) / 1e9 for timed in baselines), default=0.0)
    rights = Rights([Right(ready, values, alone=True) for values in sets], more_s, right_s)
    takes_long = any(map(_is_long, baselines))
    for timed in ready.timed:
        kept = [] if _compares(ready) and (takes_long or _is_long(timed)) else list(timed.kept)
        timed.kept.clear()
        verdict = attributed(ready.job, timed.index, heartbeat, functools.partial(rights.contradict, kept))
        if verdict is not None:
            ended.add(timed.entry)
            reason = f"a timed call gave a wrong output: {verdict}; it was not finished when the call returned, or remembered"
            yield verdict if isinstance(verdict, Ended) else _mismatched(timed.entry, reason)
    return ended


def _compares(ready: Ready) -> bool:
    """Return whether calls on new values are compared with those on known ones: not where inputs take too long to make, or too much memory."""
    return len(ready.values.sets) > 1


def _recheck(ready: Ready, heartbeat: Heartbeat, entries: list[Timed]) -> Iterator[Ended]:
    """Time the very calls that were timed on values that no call has seen, at the same addresses, and judge them.

    The baseline's own call comes last, so that no other finds its outputs, and these are what the others' are judged by.
    """
    if not entries:
        return
    (new,) = _new_values(ready, 1)
    known = copy_tree(ready.inputs) if _compares(ready) else None
    again: list[tuple[Timed, _Again]] = []
    given: Any | None = None
    for timed in sorted(entries, key=_is_eager_baseline):
        made = guarded(ready.job, timed.index, heartbeat, functools.partial(_call_again, ready, timed, new, known))
        if isinstance(made, Ended):
            yield made
        else:
            again.append((timed, made))
            given = made.outputs[0] if _is_eager_baseline(timed) else None
    right = Right(ready, new, given=given)
    for timed, made in again:
        verdict = attributed(ready.job, timed.index, heartbeat, functools.partial(_contradicted, timed, made, right))
        if verdict is None and known is not None and _is_suspicious(ready, timed, made):
            verdict = guarded(ready.job, timed.index, heartbeat, functools.partial(_remembers, ready, timed, known))
        if verdict is not None:
            yield verdict if isinstance(verdict, Ended) else _mismatched(timed.entry, verdict)


def _new_values(ready: Ready, count: int, attempt: int = 0) -> list[dict[str, Any]]:
    first = _RECHECK_SEED + ready.job.round + attempt * count * _APART
    seeds = range(first, first + count * _APART, _APART)
    of_case = (ready.operator, ready.job.case, ready.device)
    return [build_inputs(*of_case, seed, like=ready.inputs) for seed in seeds]


@dataclass(frozen=True)
class _Again:
    outputs: list[Any]
    """Outputs on new inputs, of each capture."""
    new_ns: float
    """Latency of the first of these calls."""


def _call_again(ready: Ready, timed: Timed, new: dict[str, Any], known: dict[str, Any] | None) -> _Again:
    """Call each capture, or once, on new inputs.

    Args:
        ready: The case.
        timed: The entry.
        new: Inputs that no call has seen.
        known: Inputs that came again and again, for a call that goes before; None to make none.
    """
    call, outputs, new_ns = ready.calls[timed.entry], [], list[float]()
    # One is enough to tell twice as long from as long, and seven would take most of the time. A long call needs none.
    lead_in = 0 if known is None or _is_long(timed) else min(timed.lead_in, 1)
    for _ in range(call.captures):
        if known is not None and lead_in:
            _put(ready, call, known)
            _lead_in(ready, call)
        _put(ready, call, new)
        # As many as hide the host's work of a call between others: with one alone, a call that the host limits would look slower.
        for _ in range(lead_in + 1):
            ready.timer.flush()
        sample = ready.timer.sample(call.observe, keep=copy_tree)
        outputs.append(sample.kept)
        new_ns.append(sample.call_ns)
    synchronize(ready.device)
    return _Again(outputs, new_ns[0])


def _call_in_pairs(
    ready: Ready, timed: Timed, news: list[dict[str, Any]], known: dict[str, Any]
) -> list[tuple[float, float]]:
    """Return latencies in ns of a call on known inputs and of one on new ones right behind it, for each of the new inputs.

    Each comes right behind one on known inputs, with the processor's cores awake and memory for the outputs at hand.
    """
    call, pairs = ready.calls[timed.entry], list[tuple[float, float]]()
    for new in news:
        _put(ready, call, known)
        _lead_in(ready, call)
        ready.timer.flush()
        known_ns = ready.timer.sample(call.observe).call_ns
        _lead_in(ready, call)
        _put(ready, call, new)
        for _ in range(2):
            ready.timer.flush()
        pairs.append((known_ns, ready.timer.sample(call.observe, keep=copy_tree).call_ns))
    synchronize(ready.device)
    return pairs


def _lead_in(ready: Ready, call: Call) -> None:
    call.reset()
    ready.timer.flush()
    call.run()


def _is_long(timed: Timed) -> bool:
    """Return whether a call takes so long that hardly anything else doubles it; making it many times would be most of a round."""
    return statistics.median(timed.call_ns) >= _LONG_NS


def _is_eager_baseline(timed: Timed) -> bool:
    return timed.entry.role == "baseline" and timed.entry.mode == "eager"


def _contradicted(timed: Timed, again: _Again, right: Right) -> str | None:
    if _is_eager_baseline(timed) and right.vouched:
        return None
    wrong = next(filter(None, map(right.contradicts, again.outputs)), None)
    return wrong and f"its timed call is wrong on fresh inputs at the same addresses: {wrong}"


def _is_suspicious(ready: Ready, timed: Timed, again: _Again) -> bool:
    # Of few calls the quickest, for it alone may have been remembered.
    known_ns = sorted(timed.call_ns)[len(timed.call_ns) // 10]
    return suspicious(known_ns, again.new_ns, device_type=ready.device.type)


def _remembers(ready: Ready, timed: Timed, known: dict[str, Any]) -> str | None:
    count = 1 if _is_long(timed) else _PAIRS_AT_ONCE

    def more(attempt: int) -> list[tuple[float, float]]:
        return _call_in_pairs(ready, timed, _new_values(ready, count, attempt), known)

    return remembers(more, device_type=ready.device.type)


def _put(ready: Ready, call: Call, inputs: dict[str, Any]) -> None:
    refill(ready.inputs, inputs)
    call.refill(inputs)
    call.reset()  # outside of the clock, that of `observe` finds nothing to do: a backward's graph is not part of it


def _mismatched(entry: Entry, reason: str) -> Ended:
    return Ended(entry=entry, status=Status.MISMATCHED, reason=reason)
