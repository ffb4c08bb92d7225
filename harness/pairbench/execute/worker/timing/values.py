"""Values that change while a case is timed, so that a remembered answer is a wrong one, and whether timed calls leave alone what all share: flags and inputs.

An implementation that zeroes an input after its own output is right has the next one look wrong; one that changes the number of threads makes all slower. So both
are looked at around turns, outside of the clock: in all of them as long as that takes little of the time, else in some that are drawn.
"""

import functools
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker import trees, trusted
from pairbench.execute.worker.calls import build_inputs, synchronize
from pairbench.execute.worker.flags import put_back_flags, watched_flags
from pairbench.execute.worker.guard import UnnamedError
from pairbench.execute.worker.modules import InputForms
from pairbench.execute.worker.process_state import STATE, files
from pairbench.execute.worker.trusted import processes
from pairbench.model.case import Case
from pairbench.model.operator import Operator

_MORE = ((0.1, 2), (1.0, 1))  # further sets of values by the seconds to make one; where it takes longer there are none
_PART = 0.01  # part of the time of timing that putting values in place may take
_FREE_S = {"cuda": 50e-6, "cpu": 20e-6}
"""Seconds that do not count, by device kind: on a GPU less than a flush, of which each sample has several."""
_WAIT_S = 1e-3  # seconds from which a wait for the device is a small part
_TRIES = 3
FIRST_SEED = 1000
"""Seed of a set of values once its number is added, far from those of verification. The first set has one of those, or a drawn one."""
_LOOKING_PART = 0.05  # part of the time of timing that looking may take, after the first block
_AT_FIRST_S = 0.002  # seconds that may be owed before frozen values are no longer looked at in the first block
_COMPARED = 2
"""The inputs are compared to the bit in so many blocks, and in each later one with a chance of this to its number, in turns that are looked at."""
_BEFORE, _WHILE = " as it is made ready to be timed", " while it is timed"
_Result = TypeVar("_Result")


def version(tensor: torch.Tensor) -> int:
    """Return how often torch has written to a tensor, or to another one that shares its memory."""
    return 0 if tensor.is_inference() else tensor._version


@dataclass(kw_only=True)
class Values:
    """The sets of values of one case's inputs, all but its constants and its state, and which one is in place."""

    shared: dict[str, Any]  # the inputs that every implementation is given, at whose addresses the values change
    sets: tuple[dict[str, Any], ...]  # the values by input; with one set nothing ever changes
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
        self._copies = [trees.refilling(self.shared, values) for values in self.sets]
        self._targets = trees.named_tensors(self.shared)

    @classmethod
    def of(cls, operator: Operator, case: Case, device: torch.device, inputs: dict[str, Any], made_s: float) -> Self:
        """Make further sets, as many as time and memory allow: none where the first set, the inputs themselves, took too long (`made_s`)."""
        synchronize(device)  # what was queued before is not waited for on the account of values
        free_s, started = _FREE_S[device.type], trusted.perf_counter()
        names = [name for name in inputs if name not in operator.constants and name not in operator.state]
        shared, judged = {name: inputs[name] for name in names}, not operator.state or bool(operator.reset)
        values_of = functools.partial(cls, shared=shared, free_s=free_s, judged=judged)
        found = trees.named_tensors(shared)
        if not found or not trees.has_room(found, copies=1 + _MORE[0][1]) or made_s >= _MORE[-1][0]:
            return values_of(sets=(shared,))

        def make(number: int) -> dict[str, Any]:
            made = build_inputs(operator, case, device, FIRST_SEED + number, like=inputs)
            synchronize(device)
            return {name: made[name] for name in names}

        first = trees.copy_inputs(shared)
        began = trusted.perf_counter()
        second = make(1)
        took = trusted.perf_counter() - began
        more = next((count for limit, count in _MORE if took < limit), 0)
        if not more or not trees.same_form(shared, second):  # the shape of a case may depend on its values
            return values_of(sets=(shared,), spent_s=trusted.perf_counter() - started)
        values = values_of(sets=(first, second, *(make(number) for number in range(2, 1 + more))))
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
        trees.put(self._copies[index])
        for name, then in before.items():
            self.written[name] = self.written.get(name, 0) + version(self._targets[name]) - then
        self.current = index

    def replace_first(self, inputs: dict[str, Any]) -> None:
        first = {name: inputs[name] for name in self.shared}
        self.sets = (first, *self.sets[1:])
        self._copies[0] = trees.refilling(self.shared, first)
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


class FirstCalls:
    """Looks at the inputs while calls are compiled, captured and called first, before a `Watch` begins."""

    def __init__(self, inputs: dict[str, Any], renew: Callable[[], object]) -> None:
        """Remember the inputs that every implementation leaves alone; `renew` restores them."""
        self._tensors = trees.named_tensors(inputs)
        self._forms = InputForms(inputs)
        self._renew = renew
        self._sums = {name: _sum(tensor) for name, tensor in self._tensors.items()}
        self._versions = self._read_versions()

    def _read_versions(self) -> list[int]:
        return list(map(version, self._tensors.values()))

    def look(self) -> None:
        """Raise a DeclarationError if torch has written to an input since the last look, and restore it."""
        if why := self._forms.changed(_BEFORE):
            raise DeclarationError(why)
        if self._read_versions() != self._versions:
            changed = self.changed()
            self._renew()
            self._versions = self._read_versions()
            if changed:
                raise DeclarationError(changed)

    def changed(self) -> str | None:
        changed = [name for name, tensor in self._tensors.items() if _sum(tensor) != self._sums[name]]
        return trees.about_changed_inputs(changed, _BEFORE) if changed else None


class Watch:
    def __init__(self, values: Values, constants: dict[str, Any] | None = None) -> None:
        self.flags = watched_flags()
        self._files = files.read()
        self._of_torch = {name: value for name, value in self.flags.items() if name not in STATE}
        self._values = values
        self._constants = trees.named_tensors(constants or {})
        self._shared = trees.named_tensors(values.shared)
        self._forms = InputForms({**values.shared, **(constants or {})})
        self.begin()
        self._owed_s = 0.0
        self._looked = trusted.perf_counter()
        self._clean = True
        """Whether the last turn was looked at when it ended, so that a change found next is of a turn since."""
        self._close = True  # whether it was looked at closely: at more than torch's flags
        self._strict = False

    def begin(self) -> None:
        self._sums = {name: _sum(tensor) for name, tensor in (self._constants | self._lone()).items()}
        self._versions = self._read_versions()

    def _lone(self) -> dict[str, torch.Tensor]:
        """Return the tensors that have no other set to compare with."""
        return self._shared if len(self._values.sets) == 1 else {}

    @contextmanager
    def turn(self, block: int) -> Iterator[None]:
        """Look around one entry's turn in a block: a DeclarationError says what the entry changed or left running, an UnnamedError what an earlier turn did that was not looked at."""
        began = trusted.perf_counter()
        self._owed_s = max(0.0, self._owed_s - _LOOKING_PART * (began - self._looked))
        looks = self._strict or self._owed_s == 0.0 or block == 0
        closely = self._strict or self._owed_s <= (_AT_FIRST_S if block == 0 else 0.0)
        unsure = (looks and not self._clean) or (closely and not self._close)
        if unsure and (why := self._left_behind(closely=closely)):
            raise UnnamedError(why)
        processes.begin()
        before = trusted.perf_counter()
        try:
            yield
        except BaseException:  # perhaps because files are closed, which is to be known here
            files.end_without(self._files)
            raise
        after = trusted.perf_counter()
        if files.read() != self._files:  # who closes them is to be known at once: there is no way to tell it later
            looks = closely = True
        self._clean, self._close = looks, closely
        if why := (self._left_behind(closely=closely) if looks else None) or trusted.left_running(thorough=closely):
            raise UnnamedError(why) if processes.of_another else DeclarationError(why)
        # Versions show torch's writes; native code may write unseen.
        if self._read_versions() != self._versions or (looks and secrets.randbelow(block + _COMPARED) < _COMPARED):
            if why := self.changed_input():
                self._values.put(self._values.current)
                raise DeclarationError(why)
            self._versions = self._read_versions()
        self._looked = trusted.perf_counter()
        self._owed_s += (before - began) + (self._looked - after)

    def _left_behind(self, *, closely: bool = True) -> str | None:
        """Return a sentence on changed flags of torch and, `closely`, on what is replaced or changed of the process; it is restored."""
        if not closely:
            return put_back_flags(self._of_torch)
        replaced = trusted.replaced()  # first, for it may be how flags are read
        changed = put_back_flags(self.flags)
        return replaced or changed

    def named(self, time: Callable[[], _Result]) -> _Result:
        """Time entries; where an unseen change was made, do so once more and look around each turn, so that its author is named."""
        for self._strict in (False, True):
            try:
                result = time()
            except UnnamedError as error:
                unseen = error
            except BaseException:
                self._left_behind()  # of another, perhaps, and how messages are written
                raise
            else:
                if (why := self._left_behind() or trusted.left_running()) is None:
                    return result
                unseen = UnnamedError(why)
            if trusted.left_running():  # that cannot be put back, and is nobody's whose turn comes next
                break
            self._clean = self._close = False
        raise unseen

    def _read_versions(self) -> list[Any]:
        """Return how often torch wrote to each tensor, but for the changes of values, the class of each, and its place."""
        written = self._values.written
        shared = [(type(tensor), version(tensor) - written.get(name, 0)) for name, tensor in self._shared.items()]
        return [*shared, *((type(one), version(one)) for one in self._constants.values()), *self._forms.places()]

    def changed(self) -> str | None:
        """Return a sentence on flags or inputs that have changed after the last turn, with the flags restored, or None."""
        return put_back_flags(self.flags) or self.changed_input()

    def changed_input(self) -> str | None:
        if why := self._forms.changed(_WHILE):  # first, for values are compared at the same places
            return why
        expected = {} if self._lone() else trees.named_tensors(self._values.sets[self._values.current])
        changed = [name for name, then in expected.items() if not trees.same_bits(self._shared[name], then)]
        lone = self._constants | self._lone()
        changed += [name for name, tensor in lone.items() if _sum(tensor) != self._sums[name]]
        return trees.about_changed_inputs(changed, _WHILE) if changed else None


def _sum(tensor: torch.Tensor) -> int:
    """Return a hash of a tensor's bytes, of 61 sums of every 61st word of eight bytes: it costs one pass, and exchanged rows show."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = raw.numel() // (8 * 61) * (8 * 61)
    words = raw[:whole].view(torch.int64) if raw.storage_offset() % 8 == 0 else raw[:whole].clone().view(torch.int64)
    return hash((*words.view(-1, 61).sum(0).tolist(), *raw[whole:].tolist()))
