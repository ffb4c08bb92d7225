"""A case that was timed in another process, as the judge sees it: it takes the place of a `Ready`, and asks that process for calls and outputs."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.protocol import Answer, Ended, JudgeTimed, Request, TimeAlone
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import SEEDS, build_inputs, synchronize
from pairbench.execute.worker.judge.plain import read, read_each
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.values import FIRST_SEED
from pairbench.model.operator import Operator


@dataclass(frozen=True)
class Again:
    outputs: Any
    new_ns: float  # latency of the first of these calls in ns
    known_ns: tuple[float, ...] = ()  # latencies in ns of calls on known inputs right before, where such are made


@dataclass(frozen=True)
class There:
    case: "Elsewhere"
    request: Request

    def fetch(self) -> Any:
        return self.case.read(self.case.ask(self.request))


class Elsewhere:
    """See above. Attributes are those of `timing.ready.Ready`."""

    def __init__(self, job: TimeAlone, operator: Operator, device: torch.device, line: Any) -> None:
        self.job = job
        self.operator = operator
        self.device = device
        self._line = line
        self.timed: list[Timed] = []
        self._captures = dict[int, int]()
        self._asked_ahead = False
        self.inputs_s = 0.0  # until they are made, as they always are on a GPU
        self.values = SimpleNamespace(sets=range(1))

    @functools.cached_property
    def inputs(self) -> dict[str, Any]:
        began = trusted.perf_counter()
        made = build_inputs(self.operator, self.job.case, self.device, SEEDS[0])
        synchronize(self.device)
        self.inputs_s = trusted.perf_counter() - began
        return made

    @property
    def like(self) -> dict[str, Any] | None:
        """Inputs that give the form of the outputs' gradients; None without gradients."""
        return self.inputs if self.operator.direction else None

    def take(self, told: JudgeTimed) -> None:
        if not all(0 <= one.index < len(self.job.entries) for one in told.timed.entries):
            raise DeclarationError("its worker told of calls of no entry")
        self._first_seed = told.first_seed
        self.values.sets = range(told.timed.sets)
        self._captures = {one.index: one.captures for one in told.timed.entries}
        self.timed = [
            Timed(
                index=one.index,
                entry=self.job.entries[one.index],
                run=lambda: None,
                lead_in=one.lead_in,
                warm_up_ns=one.warm_up_ns,
                call_ns=list(one.call_ns),
                fresh_ns=list(one.fresh_ns),
                kept=[
                    (number, There(self, Request(kind="kept", index=one.index, place=place)))
                    for place, number in enumerate(one.kept)
                    if 0 <= number < told.timed.sets
                ],
                first_observed=There(self, Request(kind="first", index=one.index)) if one.began_on_new else None,
            )
            for one in told.timed.entries
        ]

    def inputs_of(self, number: int) -> dict[str, Any]:
        base = self.inputs if self._first_seed is None else self._made(self._first_seed)
        if not number:
            return base
        fixed = (*self.operator.constants, *self.operator.state)
        return {name: base[name] if name in fixed else value for name, value in self._made(FIRST_SEED + number).items()}

    def _made(self, seed: int) -> dict[str, Any]:
        return build_inputs(self.operator, self.job.case, self.device, seed, like=self.like)

    def call_again(self, timed: Timed, seed: int) -> Again | Ended:
        """Call once on the inputs of a seed, after calls on known inputs."""
        answer = self.ask(Request(kind="again", index=timed.index, seeds=(seed,)))
        if answer.ended is not None:
            return answer.ended
        if len(answer.new_ns) != 1:
            raise DeclarationError("its worker did not tell how long its call took")
        return Again(self.read(answer), answer.new_ns[0], answer.known_ns)

    def call_in_pairs(self, timed: Timed, seeds: Sequence[int]) -> list[tuple[float, float]]:
        """Return latencies in ns of a call on known inputs and of one on new inputs right after it, for each seed."""
        answer = _not_ended(self.ask(Request(kind="pairs", index=timed.index, seeds=tuple(seeds))))
        if not len(answer.known_ns) == len(answer.new_ns) == len(seeds):
            raise DeclarationError("its worker did not tell how long its calls took")
        return list(zip(answer.known_ns, answer.new_ns, strict=True))

    def captures(self, timed: Timed) -> int:
        return self._captures[timed.index]

    def replayed(self, timed: Timed, seed: int, following: Timed | None = None) -> list[dict[str, Any]]:
        """Return the outputs of each of an entry's captures on the inputs of a seed; the worker replays those of the `following` entry while these are judged."""
        answer = self.take_ahead() or self.ask(Request(kind="replays", index=timed.index, seeds=(seed,)))
        outputs = read_each(_not_ended(answer).described, self._line.outputs, self.captures(timed))
        if following is not None:
            self._line.send(Request(kind="replays", index=following.index, seeds=(seed,)))
            self._asked_ahead = True
        return outputs

    def take_ahead(self) -> Answer | None:
        asked, self._asked_ahead = self._asked_ahead, False
        return self._line.answered() if asked else None

    def ask(self, request: Request) -> Answer:
        answer = self._line.ask(request)
        assert isinstance(answer, Answer)
        return answer

    def read(self, answer: Answer) -> Any:
        return read(_not_ended(answer).described, self._line.outputs)


def _not_ended(answer: Answer) -> Answer:
    if answer.ended is not None:
        raise DeclarationError(answer.ended.reason)
    return answer
