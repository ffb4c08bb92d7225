"""The worker's side of a judge in another process: the worker sends outputs and answers the judge's requests, and never has the expected outputs."""

import functools
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from pairbench.execute import protocol
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import build_inputs, empty_large_cache
from pairbench.execute.worker.guard import UnnamedError, attributed, guarded, look_once
from pairbench.execute.worker.judge.plain import Exported, clear, export, readable, together, write
from pairbench.execute.worker.timing.new_values import NewInputs, call_again, call_in_pairs, compares
from pairbench.execute.worker.timing.ready import Ready
from pairbench.execute.worker.timing.recheck import Replays
from pairbench.execute.worker.trees import copy_inputs, leaves, parts
from pairbench.execute.worker.verify.case import ExpectedOutputs
from pairbench.execute.worker.verify.judge import OutputVerdict
from pairbench.execute.worker.verify.outputs import fingerprint
from pairbench.model.case import Tolerance


def sums(inputs: Iterable[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the name of each leaf of each seed's inputs, with a text of its form and a checksum of its elements."""
    found = []
    for seed, given in enumerate(inputs):
        for path, leaf in leaves(readable(dict(parts(given)))):
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                form = f"{leaf.device} {fingerprint(leaf.resolve_conj().resolve_neg())}"
            else:
                exported = export({path: leaf}, copy=False)
                totals = [zlib.crc32(memoryview(piece.reshape(-1).view("u1"))) for piece in exported.pieces]
                form = f"{json.dumps([described for _, described in exported.leaves])} {totals}"
            found.append((f"{seed}:{path}", form))
    return tuple(found)


class OutsideReference(ExpectedOutputs):
    seed: int
    line: protocol.ParentLine
    heartbeat: protocol.Heartbeat

    def judge(self, outputs: Any, tolerance_for: Callable[[str, str], Tolerance]) -> OutputVerdict:  # noqa: ARG002 (the judge's own counts)
        """Send outputs of the running entry to the judge, and return a verdict that says only whether they are wrong."""
        file = _file(self.line)
        described = write(export(outputs, copy=False), file)
        right = self.line.ask(protocol.Outputs(index=self.heartbeat.running, seed=self.seed, described=described))
        clear(file)
        return OutputVerdict(mismatch=None if right else protocol.JUDGED_OUTSIDE, correctness=None)


def outside_references(
    inputs: Iterable[dict[str, Any]], heartbeat: protocol.Heartbeat, line: protocol.ParentLine
) -> tuple[OutsideReference, ...]:
    """Return references to the judge outside, if its inputs have the same checksums; else none."""
    made = functools.partial(OutsideReference, line=line, heartbeat=heartbeat)
    references = tuple(made(make=functools.partial(dict, given), seed=seed) for seed, given in enumerate(inputs))
    same = line.ask(protocol.Inputs(sums=sums(reference.inputs for reference in references)))
    return references if same else ()


def answer_judge(ready: Ready, measuring_s: float, line: protocol.ParentLine) -> float:
    """Answer the judge's questions about a timed case, and return the seconds that this took, with those spent on values before."""
    began = trusted.perf_counter()
    if why := ready.watch.changed_input():  # flags and frozen values were compared as timing ended
        raise UnnamedError(why)
    entries = [
        protocol.TimedEntry(
            index=timed.index,
            call_ns=tuple(timed.call_ns),
            fresh_ns=tuple(timed.fresh_ns),
            lead_in=timed.lead_in,
            warm_up_ns=timed.warm_up_ns,
            kept=tuple(number for number, _ in timed.kept),
            began_on_new=timed.first_observed is not None,
            captures=ready.captures(timed),
        )
        for timed in ready.timed
    ]
    asked, sets = _Asked(ready, _file(line)), len(ready.values.sets)
    empty_large_cache()  # for the judge, which calls the baseline beside this process
    request = line.ask(protocol.TimedCase(entries=tuple(entries), measuring_s=measuring_s, sets=sets))
    while request.kind != "end":
        guard = guarded if request.kind in ("again", "pairs") else attributed  # only these call an implementation
        answer = guard(ready.job, request.index, ready.heartbeat, functools.partial(asked.answer, request))
        empty_large_cache()
        request = line.ask(protocol.Answer(ended=answer) if isinstance(answer, protocol.Ended) else answer)
    look_once(ready.job)
    clear(_file(line))
    return ready.values.spent_s + trusted.perf_counter() - began


class _Asked:
    def __init__(self, ready: Ready, file: int) -> None:
        self._ready = ready
        self._file = file
        self._timed = {timed.index: timed for timed in ready.timed}
        make = functools.partial(build_inputs, ready.operator, ready.job.case, ready.device, like=ready.inputs)
        self._made = functools.lru_cache(maxsize=1)(lambda seed: NewInputs(make(seed), ready, seed))
        """Returns the inputs of a seed; all entries are called on the same."""
        self._replays = functools.lru_cache(maxsize=1)(lambda seed: Replays(ready, self._made(seed)))
        self._sent: Exported | None = None  # keeps the memory of the last answer, which the judge may not have read yet

    @functools.cached_property
    def _known(self) -> NewInputs | None:
        """Inputs that came again and again; None where calls on these are not compared."""
        return NewInputs(copy_inputs(self._ready.inputs), self._ready) if compares(self._ready) else None

    def answer(self, request: protocol.Request) -> protocol.Answer:
        timed, self._sent = self._timed[request.index], None
        match request.kind:
            case "kept":
                return self._send(timed.kept[request.place][1])
            case "first":
                assert timed.first_observed is not None
                return self._send(timed.first_observed)
            case "pairs":
                known = self._known
                assert known is not None
                pairs = call_in_pairs(self._ready, timed, [self._made(seed) for seed in request.seeds], known)
                return protocol.Answer(known_ns=tuple(one for one, _ in pairs), new_ns=tuple(one for _, one in pairs))
            case "replays":
                # Their graphs share memory, so each is copied before the next is replayed.
                copied = functools.partial(export, copy=self._ready.captures(timed) > 1)
                captures = map(copied, self._replays(*request.seeds).outputs(timed))
                return self._send(together(captures))
        known = self._known  # before other values are in place
        made = call_again(self._ready, timed, self._made(*request.seeds), known)
        assert not isinstance(made, protocol.Ended)
        outputs = made.outputs if isinstance(made.outputs, Exported) else export(made.outputs, copy=False)
        return replace(self._send(outputs), new_ns=(made.new_ns,), known_ns=made.known_ns)

    def _send(self, outputs: Exported) -> protocol.Answer:
        self._sent = outputs
        return protocol.Answer(described=write(outputs, self._file))


def _file(line: protocol.ParentLine) -> int:
    if line.outputs is None:
        raise RuntimeError("no memory for outputs came with the job")
    return line.outputs
