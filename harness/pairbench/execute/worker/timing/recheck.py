"""Whether timed calls computed their outputs, each time anew: judged after the clock has stopped, by outputs that the baseline, and in doubt the oracle, computes then."""

import functools
import itertools
import secrets
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import torch

from pairbench.execute.protocol import Ended, Heartbeat
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import make_call
from pairbench.execute.worker.graphs import Replay, memory_of_graphs
from pairbench.execute.worker.guard import UnnamedError, attributed, guarded
from pairbench.execute.worker.judge.elsewhere import Again, Elsewhere, There
from pairbench.execute.worker.judge.plain import as_judged
from pairbench.execute.worker.timing.measure import Timed, baseline_last
from pairbench.execute.worker.timing.new_values import (
    NewInputs,
    call_again,
    compares,
    has_become_quick,
    is_long,
    is_quicker_on_old_values,
    is_quicker_than_before,
    is_suspicious,
    new_values,
    remembers,
)
from pairbench.execute.worker.timing.ready import Ready
from pairbench.execute.worker.trees import copy_inputs, copy_tree, has_room, named_tensors, tensors
from pairbench.execute.worker.trusted import left_running, replaced
from pairbench.execute.worker.verify.case import oracle_or_why, poison
from pairbench.execute.worker.verify.judge import Known, clear_by_draw, clearly_right, judge, same_outputs, strays_right
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

Inputs = dict[str, Any] | Callable[[], dict[str, Any]]  # inputs, or a function that makes them when they are needed
Case = Ready | Elsewhere
_LATER, _LATER_LONG, _SPARING = 0.25, 0.1, 0.05
"""Chance of calls on new values in a round after the first; in cases with long calls, where these take up to a third of the time of timing; and once judging has had its part of the time."""
_SPARING_KEPT = 0.25  # chance that kept outputs are judged in a later round once judging has had its part of the time
_QUICKLY_MADE_S = 0.1  # longest time in s to make inputs for replays in a later round
_MORE = 0.005  # part of the time of timing in which more than one of the kept outputs of an entry is judged
Calls = list[tuple[Timed, Again]]


class Right:
    def __init__(self, ready: Case, inputs: Inputs, *, alone: bool = False, given: Any | None = None) -> None:
        """Compute nothing yet; the baseline's own timed outputs (`given`) are expected as long as another implementation agrees. `alone` says that outputs come without the state."""
        self._ready = ready
        self._made = inputs
        self._alone = alone
        self._given = given
        self._agreed = False
        self._known = Known(lambda: self._inputs)

    @property
    def is_at_hand(self) -> bool:
        """Whether right outputs can be judged without computing anything."""
        return self._given is not None or "_expected" in vars(self)

    @property
    def vouched(self) -> bool:
        """Whether outputs of another implementation agreed with those given of the baseline, and none contradicted."""
        return self._given is not None and self._agreed

    def contradicts(self, outputs: Any, *, drawn: bool = False) -> str | None:
        """Return what is wrong with outputs, or None; if `drawn`, some elements of large outputs are enough to find them right."""
        outputs = outputs.fetch() if isinstance(outputs, There) else outputs
        if isinstance(self._given, There):
            self._given = self._given.fetch()
        if self._given is not None:
            by = self._ready.operator.tolerance_for
            if (drawn and clear_by_draw(outputs, self._given, by)) or self._mismatch(outputs, self._given) is None:
                self._agreed = True
                return None
            self._given, self._known = None, Known(lambda: self._inputs)
        return self._mismatch(outputs, self._expected)

    def _mismatch(self, outputs: Any, expected: Any) -> str | None:
        by = self._ready.operator.tolerance_for, self._known
        if clearly_right(outputs, expected, *by):
            return None
        # What is left is wrong, or has strays, which are for the oracle to tell. What keeps the tolerance is right, however far it is off
        # the oracle: that was judged when it was verified, and chance moves it from values to values.
        if self._truth is not None and strays_right(outputs, expected, self._truth, *by):
            return None
        wrong = judge(outputs, expected, self._truth, *by).mismatch
        return wrong and judge(outputs, expected, None, *by).mismatch and wrong

    @functools.cached_property
    def _inputs(self) -> dict[str, Any]:
        return self._made() if callable(self._made) else self._made

    @functools.cached_property
    def _expected(self) -> Any:
        operator = self._ready.operator
        # Where memory is short, on the inputs themselves: the baseline was verified to leave them alone.
        room = has_room(named_tensors(self._inputs))
        inputs = copy_inputs(self._inputs) if room else self._inputs
        outputs = make_call(operator, operator.baseline, "eager", inputs).observe()
        return self._outputs(copy_tree(outputs) if room else outputs)

    @functools.cached_property
    def _truth(self) -> Any:
        """The oracle's outputs, or None. They take longer than all timed calls, so they are computed once."""
        # By an oracle that had memory then, an implementation was verified that is wrong without.
        return self._outputs(oracle_or_why(self._ready.operator, self._inputs, needed=True)[0])

    def _outputs(self, observed: Any) -> Any:
        """Return observed outputs in the form of those to be judged: these may come without the state."""
        if self._alone and self._ready.operator.state and observed is not None:
            observed = observed["output"]
        return as_judged(observed) if isinstance(self._ready, Elsewhere) and observed is not None else observed


class Rights:
    def __init__(self, rights: Sequence[Right], more_s: float, right_s: float = 0.0) -> None:
        """Compute nothing yet; an entry's further outputs are judged within `more_s` seconds, if the `right_s` seconds to compute a set's expected outputs are left."""
        self._rights = rights
        self._more_s = more_s
        self._right_s = right_s
        drawn = secrets.SystemRandom().sample(range(len(rights)), len(rights))
        self._preferred = sorted(drawn, key=lambda number: not rights[number].is_at_hand)
        """The sets in the order of preference, which is drawn."""

    @property
    def vouched(self) -> bool:
        """Whether for some set another implementation vouches for the baseline's outputs."""
        return any(right.vouched for right in self._rights)

    def is_at_hand(self, number: int) -> bool:
        return self._rights[number].is_at_hand

    def contradict(self, outputs: Sequence[tuple[int, Any]]) -> str | None:
        """Return what is wrong with some outputs of one entry, given with the number of their set of inputs, or None.

        One, drawn now, is judged of the set that all entries prefer, so that its expected outputs are computed once; others within `more_s` seconds of any set, for a call
        may have remembered the outputs of one.
        """
        until = trusted.perf_counter() + self._more_s
        drawn = secrets.SystemRandom().sample(outputs, len(outputs))
        preferred = min(drawn, key=lambda item: self._preferred.index(item[0]), default=None)
        for place, (number, given) in enumerate(sorted(drawn, key=lambda item: item is not preferred)):
            right = self._rights[number]
            needs_s = 0.0 if right.is_at_hand else self._right_s
            if place and trusted.perf_counter() + needs_s > until:
                continue
            if wrong := right.contradicts(given):
                return wrong
        return None


def judge_timed(ready: Ready, measuring_s: float, heartbeat: Heartbeat) -> Generator[Ended, None, float]:
    """Judge timed calls and replays in the process that timed them; return the seconds that this and earlier changes of values took.

    An UnnamedError says that something shared was replaced while calls were timed, so that no time can be believed.
    """
    began = trusted.perf_counter()
    if why := ready.watch.changed() or replaced() or left_running():
        raise UnnamedError(why)
    yield from judge_case(ready, measuring_s, heartbeat)
    return ready.values.spent_s + trusted.perf_counter() - began


def judge_case(case: Case, measuring_s: float, heartbeat: Heartbeat) -> Iterator[Ended]:
    """Yield an `Ended` for each entry whose timed calls or replays gave wrong outputs. Outputs that were kept of timed calls are judged first, then calls and replays on new values.

    Expected outputs are computed now: while calls were timed, they were not in the process to be found. A judge outside computes them all itself.
    """
    ended = set[Entry | None]()
    later = _SPARING if case.job.sparing else _LATER_LONG if any(map(is_long, case.timed)) else _LATER
    # Calls on new values in this round, which are drawn.
    thorough = not case.job.round or case.job.thorough or secrets.SystemRandom().random() < later
    if thorough or not case.job.sparing or secrets.SystemRandom().random() < _SPARING_KEPT:
        ended = yield from _judge_kept(case, _MORE * measuring_s / len(case.timed), heartbeat, thorough=thorough)
    entries = [timed for timed in case.timed if timed.entry not in ended and (thorough or _is_due(case, timed))]
    for end in _recheck(case, heartbeat, entries) if entries else ():
        ended.add(end.entry)
        yield end
    yield from _judge_replays(case, heartbeat, ended, thorough=thorough)


def _is_due(case: Case, timed: Timed) -> bool:
    """Return whether an entry began on new values, or the latencies of its calls alone may be a reason to call it on new values."""
    quicker = has_become_quick(timed) or is_quicker_on_old_values(timed) or is_quicker_than_before(case, timed)
    return timed.first_observed is not None or quicker


def _judge_kept(
    ready: Case, more_s: float, heartbeat: Heartbeat, *, thorough: bool
) -> Generator[Ended, None, set[Entry | None]]:
    """Yield the ends of entries that gave a wrong output while they were timed, and return these; docs/decisions/recheck.md.

    More than one of an entry's kept outputs is judged within `more_s` seconds. Where the baseline's calls are long and none was kept of the same values, expected outputs
    are computed only if `thorough`. Entries that began on new values, which `_recheck` judges, are judged here only by the baseline's kept outputs.
    """
    ended = set[Entry | None]()
    baselines = [timed for timed in ready.timed if timed.is_eager_baseline]
    right_s = max((statistics.median(timed.call_ns) / 1e9 for timed in baselines), default=0.0)
    computes = thorough or not compares(ready) or not any(map(is_long, baselines))
    # Outside, what the baseline gave beside the variants is taken for right only where computing that anew would take too much of the time.
    outside = isinstance(ready, Elsewhere)
    given = {} if outside and computes else dict(kept for timed in baselines for kept in timed.kept)
    of_sets = [
        Right(ready, functools.partial(_inputs_of, ready, number), alone=True, given=given.get(number))
        for number in range(len(ready.values.sets))
    ]
    rights = Rights(of_sets, more_s, right_s)
    for timed in baseline_last(ready.timed):
        on_new = timed.first_observed is not None
        left_out = timed.is_eager_baseline and rights.vouched
        may_compute = computes and (outside or not on_new)
        kept = [] if left_out else [item for item in timed.kept if may_compute or rights.is_at_hand(item[0])]
        timed.kept.clear()
        verdict = attributed(ready.job, timed.index, heartbeat, functools.partial(rights.contradict, kept))
        if verdict is not None:
            ended.add(timed.entry)
            about = "a timed call gave a wrong output: {}; it was not finished when the call returned, or remembered"
            yield _ended(timed, verdict, about)
    return ended


def _inputs_of(ready: Case, number: int, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the inputs of a case with a set of values in place; `inputs` are those of the case, if not its own."""
    if isinstance(ready, Elsewhere):
        return ready.inputs_of(number)
    return {**(ready.inputs if inputs is None else inputs), **ready.values.sets[number]}


def _recheck(ready: Case, heartbeat: Heartbeat, entries: list[Timed]) -> Iterator[Ended]:
    """Judge the very calls that were timed on values that no call had seen, at the same addresses: a first sample on such values, else a call made now.

    The baseline's own call comes last, so that no other finds its outputs. First samples are judged last: they may have found what another entry computed in its lead-in.
    """
    entries = baseline_last(entries)
    known: NewInputs | None = None
    if compares(ready):  # elsewhere known inputs are not asked for
        known = NewInputs({} if isinstance(ready, Elsewhere) else copy_inputs(ready.inputs), ready)
    others = [timed for timed in entries if timed.first_observed is None]
    remembered = False
    if others:
        new = new_values(ready)
        together = isinstance(ready, Elsewhere) or has_room(named_tensors(ready.inputs))
        for some in [others] if together else [[timed] for timed in others]:
            again: Calls = []
            for timed in some:
                step = functools.partial(call_again, ready, timed, new, known)
                made = _calling(ready)(ready.job, timed.index, heartbeat, step)
                if isinstance(made, Ended):
                    yield made
                else:
                    again.append((timed, made))
            del made
            remembered = yield from _judge_again(ready, heartbeat, again, new, known, remembered=remembered)
    on_new = [timed for timed in entries if timed.first_observed is not None]
    samples = [(timed, Again(timed.first_observed, timed.call_ns[0])) for timed in on_new]
    if samples and known is not None:
        first = functools.partial(_inputs_of, ready, 0, known)
        yield from _judge_again(ready, heartbeat, samples, first, known, remembered=remembered)


def _judge_again(
    ready: Case, heartbeat: Heartbeat, again: Calls, new: Inputs, known: NewInputs | None, *, remembered: bool
) -> Generator[Ended, None, bool]:
    """Yield the ends of entries that were wrong or slow on new values, and return whether an entry of the case is known to remember."""
    outside = isinstance(ready, Elsewhere)
    given = None if outside else next((made.outputs for timed, made in again if timed.is_eager_baseline), None)
    right = Right(ready, new, given=given)
    for timed, made in again:
        verdict = attributed(ready.job, timed.index, heartbeat, functools.partial(_contradicted, timed, made, right))
        # Entries may share what they remember: the first computes it, and the others find it, also in the first call on new values.
        suspicious = remembered or has_become_quick(timed) or is_suspicious(timed, made, ready.device.type)
        if verdict is None and known is not None and suspicious:
            step = functools.partial(remembers, ready, timed, made, known)
            verdict = _calling(ready)(ready.job, timed.index, heartbeat, step)
            remembered |= isinstance(verdict, str)
        if verdict is not None:
            yield _ended(timed, verdict)
    return remembered


def _calling(case: Case) -> Callable[..., Any]:
    """Return the guard of a step that calls a variant: for a case elsewhere, the process in which the variant runs finds what it leaves behind."""
    return attributed if isinstance(case, Elsewhere) else guarded


def _contradicted(timed: Timed, again: Again, right: Right) -> str | None:
    if timed.is_eager_baseline and right.vouched:
        return None
    wrong = right.contradicts(again.outputs)
    return wrong and f"its timed call is wrong on fresh inputs at the same addresses: {wrong}"


def _judge_replays(case: Case, heartbeat: Heartbeat, ended: set[Entry | None], *, thorough: bool) -> Iterator[Ended]:
    """Yield an `Ended` for each entry whose captured calls give wrong outputs when replayed on values that no capture has seen; entries in `ended` are left out.

    In the process that timed them, the baseline's replay is copied first, and is itself judged only where no other agrees with it.
    """
    entries = [timed for timed in case.timed if case.captures(timed) and timed.entry not in ended]
    if not entries or (not thorough and case.inputs_s > _QUICKLY_MADE_S):
        return
    inputs = new_values(case)
    given, replays = None, None if isinstance(case, Elsewhere) else Replays(case, inputs)
    baseline = next((timed for timed in entries if timed.is_eager_baseline), None)
    if replays and baseline is not None:
        given = attributed(case.job, baseline.index, heartbeat, functools.partial(replays.first_copied, baseline))
        if isinstance(given, Ended):
            yield given
            given, entries = None, [timed for timed in entries if timed is not baseline]
    right = Right(case, inputs, given=given)
    entries = baseline_last(entries)
    for timed, following in zip(entries, [*entries[1:], None], strict=True):

        def step(timed: Timed = timed, following: Timed | None = following) -> str | None:
            if isinstance(case, Elsewhere):
                return _wrong_capture(case.replayed(timed, inputs.seed, following), right, lambda _: True)
            assert replays is not None
            vouched = timed.is_eager_baseline and right.vouched
            captures = itertools.islice(replays.outputs(timed), int(vouched), None)
            return _wrong_capture(captures, right, replays.of_graphs)

        verdict = attributed(case.job, timed.index, heartbeat, step)
        if verdict is not None:
            yield _ended(timed, verdict)


def _wrong_capture(captures: Iterable[Any], right: Right, stays: Callable[[torch.Tensor], bool]) -> str | None:
    """Return what is wrong with the outputs of an entry's captures, each judged before the next is made, or None; `stays` says whether that leaves a tensor as it is."""
    first = None
    for outputs in captures:
        # Captures of one call mostly agree to the bit.
        if first is not None and same_outputs(outputs, first):
            continue
        if wrong := right.contradicts(outputs, drawn=True):
            how = "it does other work while it is captured, or copies what an earlier call has computed"
            return f"a replay of its captured call computes something else: {wrong}; {how}"
        first = outputs if all(map(stays, tensors(outputs))) else None
    return None


class Replays:
    def __init__(self, ready: Ready, inputs: NewInputs) -> None:
        """Replay nothing yet; captured calls are going to be replayed on these inputs, at the addresses that they were captured with."""
        self._ready = ready
        self._inputs = inputs
        self.of_graphs = memory_of_graphs()
        """Tells whether a tensor lies in the memory of one graph alone, which no other graph's replay overwrites."""

    def first_copied(self, timed: Timed) -> Any:
        """Return a copy of the first capture's outputs, and poison the outputs."""
        copied = copy_tree(next(self.outputs(timed)))
        self._poison(self._ready.replays[timed.entry].replays[0])
        return copied

    def outputs(self, timed: Timed) -> Iterator[Any]:
        """Yield the outputs of each capture; the next one may overwrite them, for their graphs share memory."""
        for number, replay in enumerate(self._ready.replays[timed.entry].replays):
            if not number or self._ready.operator.state:
                self._inputs.put(self._ready.calls[timed.entry])
            self._poison(replay)
            replay.before()
            yield self._ready.calls[timed.entry].observed(replay())

    def _poison(self, replay: Replay) -> None:
        """Poison the outputs in the graph's own memory. Elsewhere they may be constants, which no call writes."""
        for tensor in filter(self.of_graphs, tensors(replay.outputs)):
            poison(tensor)


def _ended(timed: Timed, verdict: Ended | str, about: str = "{}") -> Ended:
    """Return how an entry ended: a verdict that is its end, or else tells what is wrong with it."""
    if isinstance(verdict, Ended):
        return verdict
    return Ended(entry=timed.entry, status=Status.MISMATCHED, reason=about.format(verdict))
