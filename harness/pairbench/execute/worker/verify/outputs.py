"""Compares the outputs of two commits: by fingerprints, which are cheap to exchange, and by tensors only where these differ."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from pairbench.execute.protocol import CompareOutputs, Fingerprint, FingerprintOutputs, Heartbeat, SaveOutputs
from pairbench.execute.worker.calls import SEEDS, build_inputs, make_call, synchronize
from pairbench.execute.worker.guard import each_entry
from pairbench.execute.worker.trees import leaves, parts
from pairbench.execute.worker.verify.judge import Known, judge
from pairbench.model.operator import Operator
from pairbench.model.outcome import Agreement, OutputsCompared
from pairbench.model.plan import Entry

_CHUNK = 1 << 25  # bytes that are worked on at once, a multiple of 8
_Exchange = FingerprintOutputs | SaveOutputs | CompareOutputs


def exchange_outputs(job: _Exchange, operator: Operator, heartbeat: Heartbeat, device: torch.device) -> Iterator[Any]:
    """Yield fingerprints of inputs and outputs, or of one entry its name once its outputs are written, or their comparison with those in the file."""
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    if isinstance(job, FingerprintOutputs):
        yield Fingerprint(entry=None, text=fingerprint(dict(parts(inputs))))

    def step(entry: Entry) -> Fingerprint | Entry | OutputsCompared:
        call = make_call(operator, operator.implementations[entry.implementation], entry.mode, inputs)
        call.refill(inputs)  # capturing a graph calls it, and so moves its state
        outputs = call.observe()
        synchronize(device)
        if isinstance(job, FingerprintOutputs):
            return Fingerprint(entry=entry, text=fingerprint(outputs))
        # The leaves by path, as another process can read them without the suite's code.
        ours = {path: one.detach() if isinstance(one, torch.Tensor) else _plain(one) for path, one in leaves(outputs)}
        if isinstance(job, SaveOutputs):
            torch.save(ours, job.file)
            return entry
        theirs = torch.load(job.file, map_location=device, weights_only=True)
        verdict = judge(ours, theirs, None, operator.tolerance_for, Known(inputs))
        agreement = Agreement.DIFFERENT if verdict.mismatch else Agreement.WITHIN
        reason = verdict.mismatch.replace("the baseline", "the reference") if verdict.mismatch else None
        return OutputsCompared(entry=entry, agreement=agreement, reason=reason, correctness=verdict.correctness)

    yield from each_entry(job, heartbeat, step)


def _plain(leaf: Any) -> Any:
    # An object of the suite's own has no equal in the other process.
    return leaf if leaf is None or type(leaf) in (bool, int, float, str) else type(leaf).__qualname__


def fingerprint(tree: Any) -> str:
    """Return a digest that is equal for trees that are equal to the bit, and hardly ever otherwise."""
    parts = [
        (path, str(leaf.dtype), tuple(leaf.shape), _digest(leaf))
        if isinstance(leaf, torch.Tensor)
        else (path, repr(_plain(leaf)))
        for path, leaf in leaves(tree)
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _digest(tensor: torch.Tensor) -> int:
    """Return the sum of the tensor's 64-bit words, each times an odd number of its position: exact in any order. Several differences cancel by chance at 2 to the -63."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    total = 0
    for start in range(0, raw.numel(), _CHUNK):
        piece = raw[start : start + _CHUNK]
        padded = torch.zeros(-(-piece.numel() // 8) * 8, dtype=torch.uint8, device=raw.device)
        padded[: piece.numel()] = piece
        words = padded.view(torch.int64)
        positions = torch.arange(words.numel(), dtype=torch.int64, device=raw.device) + start // 8
        # The mixing steps of SplitMix64 give numbers that look random.
        mixed = (positions + 1) * -0x61C8864680B583EB
        mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
        mixed = (mixed ^ (mixed >> 27)) * -0x6B2FB644ECCEEE15
        total += int((words * (mixed | 1)).sum())
    return total % 2**64
