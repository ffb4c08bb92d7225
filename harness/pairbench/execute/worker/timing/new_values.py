"""Calls on values that no call has seen, and whether these take so much longer than others that results must be remembered."""

import math
import secrets
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pairbench.execute.protocol import Ended
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import Call, build_inputs, synchronize
from pairbench.execute.worker.judge.elsewhere import Again, Elsewhere
from pairbench.execute.worker.timing.measure import Timed, of_entry
from pairbench.execute.worker.timing.ready import Ready
from pairbench.execute.worker.timing.timers import Sample
from pairbench.execute.worker.trees import has_room, named_tensors, put, refill, refilling, same_form
from pairbench.model.outcome import Status
from pairbench.stats import quick

_SEED_BITS = 60
"""Seeds of new values are drawn by the operating system at their use: a seed known before would allow computing the outputs ahead."""
_LONG_NS = 1e6  # latency in ns from which a call is long: one sample tells twice as long from as long
_PAIRS_AT_ONCE = 3  # pairs of calls made at once after a slow call on new values: any may have been slowed otherwise
_FACTOR, _BEYOND_NS = 2.0, 5e3
"""How much slower a call that is not short has to be on new values than on known values to be suspected: a factor, and a time in ns."""


class _Short(NamedTuple):
    """Short calls on one kind of device: more of them on known values cost next to nothing, and can tell small differences."""

    below_ns: float
    part: float
    beyond_ns: float
    """How much slower a call that remembers is on new values than on known ones: this part of its latency and these ns."""


_SHORT = {"cpu": _Short(300e3, 0.25, 300.0), "cuda": _Short(_LONG_NS, 0.1, 2e3)}
_KNOWN, _KNOWN_DOUBTED = 6, 18
"""Calls on known values that tell how quick they can be now; the second number holds where the call on new values took more than twice as long as the timed ones, on a busy machine perhaps."""
_SLOWED = 2  # so many calls on known values that are twice as quick as any on new ones are no chance
_LEAST, _MOST, _MOST_S = 9, 24, 5.0
"""Least and most pairs of calls before a call is said to remember; beyond the least, none begins after these seconds."""
_DOUBTED, _DOUBTED_S = 60, 15.0  # most pairs, and seconds, where two calls on known values were that quick
_CERTAIN, _SURE = 1e-6, 1e-4  # chance below which a call is said to remember at once, and in the end
UNLIKE = "calls take {:.1f} us as they are timed, and {:.1f} us or more afterwards, on the same values too: it does less where it is timed"
_BEFORE = (2, 3)
"""Untimed calls on known values before each timed one of a pair, drawn: who remembers the last one or two calls alone is as quick in pairs as when it was timed."""

Pairs = list[tuple[float, float]]  # latencies in ns of a call on known values and of one on new values beside it


class NewInputs(dict[str, Any]):
    def __init__(self, made: dict[str, Any], ready: "Ready | Elsewhere", seed: int = 0) -> None:
        super().__init__(made)
        self.seed = seed
        # Not as they are put: a call behind such a search is slower, and would look as though it remembered the values that came before.
        here = {} if isinstance(ready, Elsewhere) else ready.inputs
        self._copies = refilling(here, made) if here and same_form(here, made) else []

    def put(self, call: Call) -> None:
        call.refill(self)  # first, for it prepares weights, which must not see the other inputs
        put(self._copies)


def draw_seed() -> int:
    return secrets.randbits(_SEED_BITS)


def new_values(ready: Ready | Elsewhere) -> NewInputs:
    seed = draw_seed()
    like = ready.like if isinstance(ready, Elsewhere) else ready.inputs
    return NewInputs(build_inputs(ready.operator, ready.job.case, ready.device, seed, like=like), ready, seed)


def call_again(ready: Ready | Elsewhere, timed: Timed, new: NewInputs, known: NewInputs | None) -> Again | Ended:
    """Call once on new inputs, wherever the case was timed, after calls on `known` ones, which came again and again; None makes none."""
    if isinstance(ready, Elsewhere):
        return ready.call_again(timed, new.seed)
    known_ns = tuple[float, ...]()
    if known is not None and _is_short(timed, ready.device.type):
        # Before the one on new values: an entry's first call here is slower than its next ones, whatever its values.
        known_ns = tuple(_sample(ready, timed, known, known, in_place=nth > 0).call_ns for nth in range(_PAIRS_AT_ONCE))
    first = _sample(ready, timed, new, known, in_place=bool(known_ns))
    synchronize(ready.device)
    return Again(first.kept, first.call_ns, known_ns)


def call_in_pairs(ready: Ready, timed: Timed, news: list[NewInputs], known: NewInputs) -> Pairs:
    """Return latencies in ns of a call on known inputs and of one on new inputs beside it, for each of the new inputs."""
    # Both after as many calls, and in an order that is drawn: on a busy host, calls that follow one another are quick together.

    def time_on(inputs: NewInputs) -> float:
        return _sample(ready, timed, inputs, known, before=secrets.choice(_BEFORE)).call_ns

    def pair(new: NewInputs) -> tuple[float, float]:
        if secrets.randbits(1):
            return time_on(known), time_on(new)
        new_ns = time_on(new)
        return time_on(known), new_ns

    pairs = list(map(pair, news))
    synchronize(ready.device)
    return pairs


def renew(ready: Ready, draw: Callable[[], int] = draw_seed) -> bool:
    """Put values in place that no call has seen, constants and state included, and return whether that was possible: it needs several sets of values and memory."""
    if not compares(ready) or not has_room(named_tensors(ready.inputs)):
        return False
    began = trusted.perf_counter()
    new = build_inputs(ready.operator, ready.job.case, ready.device, draw(), like=ready.inputs)
    renewed = same_form(ready.inputs, new)
    if renewed:
        others = [name for name in new if name not in ready.values.shared]
        refill({name: ready.inputs[name] for name in others}, {name: new[name] for name in others})
        for timed in ready.timed:
            with of_entry(timed, ready.heartbeat):
                ready.calls[timed.entry].refill(new)
        ready.values.replace_first(new)
        synchronize(ready.device)
        ready.watch.begin()
    ready.values.spent_s += trusted.perf_counter() - began
    return renewed


def compares(ready: Ready | Elsewhere) -> bool:
    """Return whether calls on new values are compared with those on known ones: not where inputs take too long to make, or too much memory."""
    return len(ready.values.sets) > 1


Known = NewInputs | None


def _sample(
    ready: Ready, timed: Timed, inputs: NewInputs, known: Known, *, in_place: bool = False, before: int | None = None
) -> Sample:
    """Time a call on `inputs` right after calls on `known` ones, with cores awake and memory for the outputs at hand.

    `in_place` says that the known inputs are in place already; `before` is the number of calls on them, if not one for a short call and none for others.
    """
    call = ready.calls[timed.entry]
    # One is enough to tell twice as long from as long, and seven would take most of the time. A long call needs none.
    lead_in = 0 if known is None or is_long(timed) else min(timed.lead_in, 1)
    for place in range(lead_in if before is None else before):
        if not (known is None or in_place or place):
            known.put(call)
        call.reset()
        ready.timer.flush()
        call.run()
    inputs.put(call)
    call.reset()
    # As many as hide the host's work of a call between others: with one alone, a call that the host limits would look slower.
    for _ in range(lead_in + 1):
        ready.timer.flush()
    return ready.timer.sample(call.run, keep=lambda outputs: _kept(timed, call.observed(outputs)))


def _kept(timed: Timed, outputs: Any) -> Any:
    """Return a copy of outputs to judge, or where there is no room for one the outputs themselves, which are judged before any other call is made."""
    copied = timed.copied(outputs)
    return outputs if copied is None else copied


def is_long(timed: Timed) -> bool:
    """Return whether a call takes so long that hardly anything else doubles it; making it many times would be most of a round."""
    return statistics.median(timed.call_ns) >= _LONG_NS


def has_become_quick(timed: Timed) -> bool:
    """Return whether calls that were too long for a lead-in became so much quicker since that they may remember results by now."""
    return not timed.lead_in and timed.warm_up_ns > _twice_ns(quick(timed.call_ns))


def is_quicker_on_old_values(timed: Timed) -> bool:
    """Return whether calls on the values of the call before were so much quicker that they may remember that call."""
    return bool(timed.fresh_ns) and min(timed.fresh_ns) > _twice_ns(quick(timed.call_ns))


def is_quicker_than_before(ready: Ready | Elsewhere, timed: Timed) -> bool:
    """Return whether calls are so much quicker than in each earlier round that verdicts on those say nothing of these."""
    earlier_ns = ready.job.earlier_ns
    return bool(earlier_ns) and earlier_ns[timed.index] > _twice_ns(quick(timed.call_ns))


def _is_short(timed: Timed, device_type: str) -> bool:
    return quick(timed.call_ns) < _SHORT[device_type].below_ns


def is_suspicious(timed: Timed, again: Again, device_type: str) -> bool:
    """Return whether a call took so much longer on new values than on others that pairs of both must tell."""
    quick_ns = quick(timed.call_ns)
    # A busy machine may have slowed each of the few calls on known values.
    return again.new_ns > min(limit_ns(timed, device_type)(min(again.known_ns, default=quick_ns)), _twice_ns(quick_ns))


def remembers(ready: Ready | Elsewhere, timed: Timed, again: Again, known: NewInputs) -> Ended | str | None:
    """Return a sentence where calls on new values are so much slower than those on known ones that their results must be remembered, or an unsure `Ended` where all of these calls are slower than the timed ones; else None."""

    def more(attempt: int) -> Pairs:
        # The first pair clears most honest calls that something else has slowed.
        count = 1 if is_long(timed) or attempt == 1 else _PAIRS_AT_ONCE
        if isinstance(ready, Elsewhere):
            return ready.call_in_pairs(timed, [draw_seed() for _ in range(count)])
        return call_in_pairs(ready, timed, [new_values(ready) for _ in range(count)], known)

    limit = limit_ns(timed, ready.device.type)
    why = judge_pairs(more, known_ns=again.known_ns, quick_ns=quick(timed.call_ns), limit=limit)
    if why is None or not why.startswith(UNLIKE.partition("{")[0]):
        return why
    # The machine may have become slower, which is known only of a CPU, and only where another process judges.
    unsure = Ended(entry=timed.entry, status=Status.MISMATCHED, reason=why, unnamed=why)
    return unsure if isinstance(ready, Elsewhere) and ready.device.type == "cpu" else None


def judge_pairs(
    more: Callable[[int], Pairs], *, known_ns: Sequence[float], quick_ns: float, limit: Callable[[float], float]
) -> str | None:
    """Return a sentence where pairs of calls tell that results are remembered, or None; docs/decisions/new-values.md says why that needs no quiet machine.

    Nothing is remembered if one call on new values is as quick as the quick timed calls (`quick_ns`), or as the quicker
    quarter of enough calls on known values, of which not two are twice as quick as any on new ones. Something is if so many
    calls on known values are quicker than all on new ones (by `limit`) that chance does not explain it. `more` takes some
    pairs, given the number of the attempt from 1 on.
    """
    known, new = list(known_ns), list[float]()
    began = trusted.perf_counter()
    attempt, chance, most, most_s = 0, 1.0, _MOST, _MOST_S
    while len(new) < _LEAST or (len(new) < most and trusted.perf_counter() < began + most_s):
        attempt += 1
        for one_known, one_new in more(attempt):
            known.append(one_known)
            new.append(one_new)
        quickest = min(new)
        if quickest <= limit(quick_ns):
            return None
        doubted = sum(quickest > _twice_ns(one) for one in known) >= _SLOWED
        enough = _KNOWN if quickest <= _twice_ns(quick_ns) else _KNOWN_DOUBTED
        if len(known) >= enough and not doubted and quickest <= limit(sorted(known)[len(known) // 4]):
            now_ns = min(quickest, *known)
            return UNLIKE.format(quick_ns / 1e3, now_ns / 1e3) if now_ns > _twice_ns(quick_ns) else None
        most, most_s = (_DOUBTED, _DOUBTED_S) if doubted else (_MOST, _MOST_S)
        # How likely it is that the quickest of all calls are so many on known values, if values make no difference.
        others = len(known) - sum(quickest > limit(one) for one in known) + len(new)
        chance = math.comb(others, len(new)) / math.comb(len(known) + len(new), len(new))
        if len(new) >= _LEAST and chance < _CERTAIN:
            break
    if chance > _SURE:
        return None
    seen = f"and {statistics.median(known) / 1e3:.1f} us on those that it has"
    why = f"a call takes {statistics.median(new) / 1e3:.1f} us on values that it has not seen, {seen}"
    return f"{why}: it remembers results; nothing may be kept between calls"


def _twice_ns(known_ns: float) -> float:
    return _FACTOR * known_ns + _BEYOND_NS


def limit_ns(timed: Timed, device_type: str) -> Callable[[float], float]:
    """Return a function of a call's latency in ns on known values: the latency beyond which one on new values is slower."""
    if not _is_short(timed, device_type):
        return _twice_ns
    short = _SHORT[device_type]
    beyond_ns = short.part * quick(timed.call_ns) + short.beyond_ns
    return lambda known_ns: known_ns + beyond_ns
