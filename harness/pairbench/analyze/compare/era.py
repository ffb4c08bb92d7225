"""Which fields of the environment differ between two runs: what besides the code may have moved a latency."""

import functools
import json
from typing import Any

from pairbench.model.comparison import EraChange
from pairbench.model.record import Record

FIELDS = ("driver", "cuda", "cudnn", "torch", "triton", "python", "cpu")
"""The columns of a record that belong to its environment; the rest is the JSON in `environment`, without what only
describes the run."""

_OBSERVED = "observed"


def era_changes(reference: Record, current: Record) -> tuple[EraChange, ...]:
    """Return the differences, most of them none."""
    return _changes(_era(reference), _era(current))


def elsewhere(reference: Record, current: Record) -> str:
    """Return in words whether two runs were made on different machines or GPUs, which is no change of era; else nothing."""
    if reference.hostname != current.hostname:
        return f"another machine, {reference.hostname} -> {current.hostname}"
    return another_gpu(reference.device_uuid, current.device_uuid)


def another_gpu(reference: str | None, current: str | None) -> str:
    """Return in words that two runs were made on different GPUs of a model; nothing where one of them does not say.

    GPUs of one model differ by some percent, each kernel by another part, so that a move between two says nothing of the code.
    """
    if reference is None or current is None or reference == current:
        return ""
    return f"another GPU of the model, {reference} -> {current}"


def _era(record: Record) -> tuple[str | None, ...]:
    return (*(getattr(record, name) for name in FIELDS), record.environment)


@functools.lru_cache(maxsize=1024)
def _changes(reference: tuple[str | None, ...], current: tuple[str | None, ...]) -> tuple[EraChange, ...]:
    """Return the differences of two eras; runs of thousands of series share a few."""
    found = [
        EraChange(field=name, reference=before, current=now)
        for name, before, now in zip(FIELDS, reference, current, strict=False)
        if before != now
    ]
    before, now = _flat(reference[-1]), _flat(current[-1])
    found += [
        EraChange(field=name, reference=before.get(name), current=now.get(name))
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]
    return tuple(found)


def _flat(text: str | None) -> dict[str, str]:
    try:
        rest = json.loads(text or "{}")
    except ValueError:
        return {"environment": text or ""}
    if not isinstance(rest, dict):
        return {"environment": text or ""}
    return dict(_leaves({key: value for key, value in rest.items() if key != _OBSERVED}, ""))


def _leaves(value: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            leaf for key, item in sorted(value.items()) for leaf in _leaves(item, f"{name}.{key}" if name else str(key))
        ]
    return [(name, value if isinstance(value, str) else json.dumps(value))]
