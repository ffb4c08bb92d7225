"""Whether timed calls leave alone what all implementations share: the global flags and the inputs.

An implementation that zeroes an input after its own output is right has the next one look wrong; one that changes the number of threads makes all slower. So both
are looked at around turns, outside of the clock: in all of them as long as that takes little of the time, else in some that are drawn.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker import trusted
from pairbench.execute.worker.faults import UnnamedError
from pairbench.execute.worker.flags import about_flags, put_back_flags, watched_flags
from pairbench.execute.worker.input_trees import named_tensors
from pairbench.execute.worker.left_at_work import processes
from pairbench.execute.worker.modules import ModuleForms
from pairbench.execute.worker.process_state import STATE, files
from pairbench.execute.worker.timing.values import Values, version
from pairbench.execute.worker.trees import about_changed_inputs, same_bits

_PART = 0.05
"""Part of the time of timing that looking may take, after the first block."""
_AT_FIRST_S = 0.01
"""Seconds that may be owed before frozen values are no longer looked at in the first block."""
_COMPARED = 2
"""The inputs are compared to the bit in so many blocks, and in each later one with a chance of this to its number, in turns that are looked at."""


_BEFORE, _WHILE = " as it is made ready to be timed", " while it is timed"


_Result = TypeVar("_Result")


class FirstCalls:
    """Looks at the inputs while calls are compiled, captured and called first, before a `Watch` begins."""

    def __init__(self, inputs: dict[str, Any], renew: Callable[[], object]) -> None:
        """Remember the inputs that every implementation leaves alone; `renew` restores them."""
        self._tensors = named_tensors(inputs)
        self._forms = ModuleForms(inputs)
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
        return about_changed_inputs(changed, _BEFORE) if changed else None


class Watch:
    def __init__(self, values: Values, constants: dict[str, Any] | None = None) -> None:
        self.flags = watched_flags()
        self._files = files.read()
        self._of_torch = {name: value for name, value in self.flags.items() if name not in STATE}
        self._values = values
        self._constants = named_tensors(constants or {})
        self._shared = named_tensors(values.shared)
        self._forms = ModuleForms({**values.shared, **(constants or {})})
        self.begin()
        self._owed_s = 0.0
        self._looked = trusted.perf_counter()
        self._clean = True
        """Whether the last turn was looked at when it ended, so that a change found next is of a turn since."""
        self._close = True
        """Whether it was looked at closely: at more than torch's flags."""
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
        self._owed_s = max(0.0, self._owed_s - _PART * (began - self._looked))
        looks = self._strict or self._owed_s == 0.0 or block == 0
        closely = self._strict or self._owed_s <= (_AT_FIRST_S if block == 0 else 0.0)
        unsure = (looks and not self._clean) or (closely and not self._close)
        if unsure and (why := self._left_behind(closely=closely)):
            raise UnnamedError(why)
        processes.begin()
        before = trusted.perf_counter()
        yield
        after = trusted.perf_counter()
        if (
            files.read() != self._files
        ):  # whoever closes them is to be known at once, for there is no way to tell it later
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
            return about_flags(put_back_flags(self._of_torch))
        replaced = trusted.replaced()  # first, for it may be how flags are read
        changed = self.changed_flags()
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

    def changed_flags(self) -> str | None:
        return about_flags(put_back_flags(self.flags))

    def _read_versions(self) -> list[int]:
        """Return how often torch wrote to each tensor, but for the changes of values."""
        written = self._values.written
        shared = [version(tensor) - written.get(name, 0) for name, tensor in self._shared.items()]
        return shared + list(map(version, self._constants.values()))

    def changed(self) -> str | None:
        """Return a sentence on flags or inputs that have changed after the last turn, with the flags restored, or None."""
        return self.changed_flags() or self.changed_input()

    def changed_input(self) -> str | None:
        expected = {} if self._lone() else named_tensors(self._values.sets[self._values.current])
        changed = [name for name, then in expected.items() if not same_bits(self._shared[name], then)]
        lone = self._constants | self._lone()
        changed += [name for name, tensor in lone.items() if _sum(tensor) != self._sums[name]]
        return about_changed_inputs(changed, _WHILE) if changed else self._forms.changed(_WHILE)


def _sum(tensor: torch.Tensor) -> int:
    """Return the sum of a tensor's bytes, taken eight at a time: it shows any change but a rearrangement, and costs one pass."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = raw.numel() // 8 * 8
    words = raw[:whole].view(torch.int64) if raw.storage_offset() % 8 == 0 else raw[:whole].clone().view(torch.int64)
    return int(words.sum()) + int(raw[whole:].sum())
