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
"""

from dataclasses import dataclass

from pairbench.model.comparison import Attribution, EraChange, GateOutcome
from pairbench.model.policy import DEFAULT, Policy
from pairbench.stats import Interval

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
