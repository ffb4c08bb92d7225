"""The expected outputs of timed calls: computed by the baseline after timing, and by the oracle where that leaves a doubt."""

import functools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import make_call
from pairbench.execute.worker.input_trees import copy_inputs, named_tensors
from pairbench.execute.worker.judge.elsewhere import Elsewhere, There
from pairbench.execute.worker.judge.plain import as_judged
from pairbench.execute.worker.timing.ready import Ready
from pairbench.execute.worker.trees import copy_tree, has_room
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.execute.worker.verify.judge import Known, clear_where_drawn, clearly_right, judge

Inputs = dict[str, Any] | Callable[[], dict[str, Any]]
"""Inputs, or a function that makes them when they are needed."""


class Right:
    def __init__(
        self, ready: Ready | Elsewhere, inputs: Inputs, *, alone: bool = False, given: Any | None = None
    ) -> None:
        """Compute nothing yet; `alone` says that outputs come without the state.

        The outputs of the baseline's own timed call (`given`) are expected as long as another implementation agrees with them; else they are computed.
        """
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
            if (drawn and clear_where_drawn(outputs, self._given, by)) or self._mismatch(outputs, self._given) is None:
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
        return self._outputs(oracle_or_why(self._ready.operator, self._inputs)[0])

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
