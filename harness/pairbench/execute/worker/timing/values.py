"""Values that change while a case is timed, so that a remembered answer is a wrong one."""

from dataclasses import dataclass, field
from typing import Any

import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.input_trees import copy_inputs, named_tensors, refilling, same_form
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.trees import has_room
from pairbench.model.case import Case
from pairbench.model.operator import Operator

_MORE = ((0.1, 2), (1.0, 1))
"""Further sets of values by the seconds to make one; where it takes longer there are none."""
_PART = 0.01
"""Part of the time of timing that putting values in place may take."""
_FREE_S = {"cuda": 50e-6, "cpu": 20e-6}
"""Seconds that do not count, by device kind: on a GPU less than a flush, of which each sample has several."""
_WAIT_S = 1e-3
"""Seconds from which a wait for the device is a small part."""
_TRIES = 3
_FIRST_SEED = 1000
"""Far from those of verification."""


def set_seed(number: int) -> int:
    """Return the seed of a set of values; the first set has that of verification, or a drawn one."""
    return _FIRST_SEED + number


def version(tensor: torch.Tensor) -> int:
    """Return how often torch has written to a tensor, or to another one that shares its memory."""
    return 0 if tensor.is_inference() else tensor._version


@dataclass(kw_only=True)
class Values:
    """The sets of values of one case's inputs, all but its constants and its state, and which one is in place."""

    shared: dict[str, Any]
    """The inputs that every implementation is given, at whose addresses the values change."""
    sets: tuple[dict[str, Any], ...]
    """The values by input. With one set nothing ever changes."""
    place_s: float = 0.0
    free_s: float
    judged: bool
    """Whether an output can be judged by itself: not where it depends on the calls before, as with state that is not restored."""
    current: int = 0
    written: dict[str, int] = field(default_factory=dict)
    """How often each tensor was written to as sets were put in place; tensors that share memory may share that count."""
    spent_s: float = 0.0
    _debt_s: float = field(default=0.0, init=False)
    _copies: list[list[tuple[torch.Tensor, torch.Tensor]]] = field(init=False)
    _targets: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the copies of each set once: a case has hundreds of changes."""
        self._copies = [refilling(self.shared, values) for values in self.sets]
        self._targets = named_tensors(self.shared)

    @classmethod
    def of(
        cls, operator: Operator, case: Case, device: torch.device, inputs: dict[str, Any], made_s: float = 0.0
    ) -> "Values":
        """Make further sets, as many as time and memory allow: none where the first set, the inputs themselves, took too long (`made_s`)."""
        synchronize(device)  # what was queued before is not waited for on the account of values
        free_s, started = _FREE_S[device.type], trusted.perf_counter()
        names = [name for name in inputs if name not in operator.constants and name not in operator.state]
        shared, judged = {name: inputs[name] for name in names}, not operator.state or bool(operator.reset)
        if (
            not (found := named_tensors(shared))
            or not has_room(found, copies=1 + _MORE[0][1])
            or made_s >= _MORE[-1][0]
        ):
            return cls(shared=shared, sets=(shared,), free_s=free_s, judged=judged)

        def make(number: int) -> dict[str, Any]:
            made = build_inputs(operator, case, device, set_seed(number), like=inputs)
            synchronize(device)
            return {name: made[name] for name in names}

        first = copy_inputs(shared)
        began = trusted.perf_counter()
        second = make(1)
        took = trusted.perf_counter() - began
        more = next((count for limit, count in _MORE if took < limit), 0)
        if not more or not same_form(shared, second):  # the shape of a case may depend on its values
            spent_s = trusted.perf_counter() - started
            return cls(shared=shared, sets=(shared,), free_s=free_s, judged=judged, spent_s=spent_s)
        sets = (first, second, *(make(number) for number in range(2, 1 + more)))
        values = cls(shared=shared, sets=sets, free_s=free_s, judged=judged)
        values.place_s = values._time_placing(device)
        values.spent_s = trusted.perf_counter() - started
        return values

    def _time_placing(self, device: torch.device) -> float:
        """Return the seconds that it takes to put a set in place: the quickest try, which a busy host has not slowed. The first set is in place afterwards."""
        tries = list[float]()
        for pairs in (1, 1, 1, 8):  # more of them, where most of the time was the wait for the device
            began = trusted.perf_counter()
            for index in (1, 0) * pairs:
                self.put(index)
            synchronize(device)
            took = trusted.perf_counter() - began
            tries.append(took / (2 * pairs))
            if len(tries) == _TRIES and min(tries) * 2 > _WAIT_S:
                break
        return min(tries)

    def put(self, index: int) -> None:
        before = {name: version(tensor) for name, tensor in self._targets.items()}
        with torch.no_grad():
            for target, value in self._copies[index]:
                target.copy_(value)
        for name, then in before.items():
            self.written[name] = self.written.get(name, 0) + version(self._targets[name]) - then
        self.current = index

    def replace_first(self, inputs: dict[str, Any]) -> None:
        first = {name: inputs[name] for name in self.shared}
        self.sets = (first, *self.sets[1:])
        self._copies[0] = refilling(self.shared, first)
        self.put(0)

    def change(self, spent_s: float, *, due: bool = False) -> bool:
        """Put the next set of values in place if it is `due`, or if changes so far took no more than their part of the time, and return whether it did. `spent_s` is the time since the last call."""
        if len(self.sets) == 1:
            return False
        self._debt_s = max(0.0, self._debt_s - _PART * spent_s)
        if self._debt_s > 0.0 and self.place_s >= self.free_s and not due:
            return False
        self.put((self.current + 1) % len(self.sets))
        self._debt_s += self.place_s
        self.spent_s += self.place_s
        return True
