"""The likely cause of a change, and what a change with that cause means to a gate.

The pair is the experiment: a variant's control is its baseline, measured in the same blocks; a baseline's control is
its variants. What moves both is not in the code of one.

    another GPU of the model                                      machine: GPUs of a model differ by some percent
    an era field changed    control moved too    its source changed    attribution
    yes                     no                   yes                   code: the environment left the control alone
    yes                     any other                                  environment
    no                      yes                  any                   machine
    no                      no, or none there    any                   code

A count can't be moved by a machine, so of exact metrics and failures only the first two and the last line hold.

Which fields of the environment differ between two runs: what besides the code may have moved a latency.

How the lists of kernels of two runs differ: the first place to look for why a call became slower.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairbench.model.comparison import DEFAULT, Attribution, EraChange, GateOutcome, KernelChange, Policy
from pairbench.model.record import KernelCount, Record
from pairbench.stats import Interval

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


_NOTICEABLE_NS = 500.0
"""The least difference that is named: profiled times differ by this much from run to run whatever the kernel."""


def kernel_changes(reference: Record, current: Record, policy: Policy = DEFAULT) -> tuple[KernelChange, ...]:
    """Return the kernels that are new, gone, run more or less often, or take noticeably longer or less long.

    Those that matter most to the latency come first. Nothing where the kernels of a side are not known.
    """
    if reference.kernels is None or current.kernels is None:
        return ()
    before, now = _by_name(reference.kernels), _by_name(current.kernels)
    changes = []
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name, (0, 0.0)), now.get(name, (0, 0.0))
        if what := _what(old, new, policy):
            changes.append(
                KernelChange(
                    name=name,
                    what=what,
                    reference_count=old[0],
                    current_count=new[0],
                    reference_ns=old[1],
                    current_ns=new[1],
                )
            )
    return tuple(sorted(changes, key=lambda change: -abs(change.current_ns - change.reference_ns)))


def _by_name(kernels: Sequence[KernelCount]) -> dict[str, tuple[int, float]]:
    by_name: dict[str, tuple[int, float]] = {}
    for kernel in kernels:
        count, total = by_name.get(kernel.name, (0, 0.0))
        by_name[kernel.name] = (count + kernel.count, total + kernel.total_ns)
    return by_name


def _what(old: tuple[int, float], new: tuple[int, float], policy: Policy) -> str | None:
    if not old[0]:
        return "new"
    if not new[0]:
        return "gone"
    if new[0] != old[0]:
        return "more often" if new[0] > old[0] else "less often"
    moved = new[1] - old[1]
    if abs(moved) <= max(policy.kernel_part * old[1], _NOTICEABLE_NS):
        return None
    return "slower" if moved > 0 else "faster"


_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What is known of a series besides its own change."""

    era: tuple[EraChange, ...]
    implementation_changed: bool | None
    control_changed: bool | None
    """Whether the source of the control changed."""
    elsewhere: str = ""
    """A sentence that says which other machine or GPU it was; empty where it was the same."""
    another_gpu: str = ""
    """A sentence that says which other GPU of the model it was; empty where it was the same, or nobody knows."""
    interleaved: bool = False
    """Whether both sides were measured interleaved: then the machine was the same for both, whatever the control
    did."""


def of_latency(
    change: Interval,
    control: Interval | None,
    known: Circumstances,
    policy: Policy = DEFAULT,
    *,
    relative: bool = False,
) -> tuple[Attribution, str]:
    """Return the likely cause of a change of latency, and the sentence that says why.

    Args:
        change: The change.
        control: That of the control; None where there is none, or where the change is relative to it.
        known: What else is known.
        policy: The thresholds.
        relative: Whether the change is relative to the control already.
    """
    moved = control is not None and moved_along(change, control, policy)
    beside = "" if control is None else f"its control moved {100 * (control.estimate - 1):+.1f} %"
    if known.another_gpu and not known.interleaved:
        era = f"environment changed: {era_words(known.era)}" if known.era else ""
        return Attribution.MACHINE, "; ".join(filter(None, (known.another_gpu, era, beside)))
    if known.era and not (known.implementation_changed and control is not None and not moved):
        return Attribution.ENVIRONMENT, f"environment changed: {era_words(known.era)}" + (
            f"; {beside}" if beside else ""
        )
    if moved and not known.interleaved:
        sources = "; the sources of both changed" if known.implementation_changed and known.control_changed else ""
        return Attribution.MACHINE, f"{beside}" + (f"; {known.elsewhere}" if known.elsewhere else "") + sources
    alone = "" if known.interleaved or relative else "there is no control to tell"
    return Attribution.CODE, "; ".join(part for part in (beside or alone, _source(known), known.elsewhere) if part)


def outcome_of_move(change: float, attribution: Attribution | None) -> GateOutcome:
    """Return what it means to a gate that a latency moved: `compare`, `trend` and the site all ask here.

    Slower is a regression only where the code is the likely cause. Faster is an improvement where the code or the
    environment is. Everything else is undecided: what the machine did, or an environment, is no fault of the code.

    Args:
        change: The latency after over that before; 1.02 is 2 % slower.
        attribution: The likely cause; None where only the control moved.
    """
    if change > 1:
        return GateOutcome.REGRESSION if attribution is Attribution.CODE else GateOutcome.UNDECIDED
    better = (Attribution.CODE, Attribution.ENVIRONMENT)
    return GateOutcome.IMPROVEMENT if attribution in better else GateOutcome.UNDECIDED


def of_count(known: Circumstances) -> tuple[Attribution, str]:
    """Return the likely cause of a change of a count, or of a failure, and the sentence that says why."""
    if known.era and not known.implementation_changed:
        return Attribution.ENVIRONMENT, f"environment changed: {era_words(known.era)}"
    return Attribution.CODE, _source(known)


def moved_along(change: Interval, control: Interval, policy: Policy = DEFAULT) -> bool:
    """Return whether a control moved in the same direction by a comparable part, and not by chance."""
    if change.estimate >= 1:
        return control.low > 1 and control.estimate >= change.estimate**policy.control_part
    return control.high < 1 and control.estimate <= change.estimate**policy.control_part


def era_words(era: tuple[EraChange, ...]) -> str:
    """Return the first changes of an era in words."""
    more = f" and {len(era) - _SHOWN} more" if len(era) > _SHOWN else ""
    return ", ".join(str(change) for change in era[:_SHOWN]) + more


def _source(known: Circumstances) -> str:
    match known.implementation_changed:
        case True:
            return "its source changed"
        case False:
            return "its source did not change, so look at what it calls"
        case None:
            return ""
