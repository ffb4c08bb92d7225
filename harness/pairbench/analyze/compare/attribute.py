"""Whose doing a change is: the code's, the machine's or the environment's.

The pair is the experiment: a variant's control is its baseline, measured in the same blocks; a baseline's control is
its variants. What moves both is not in the code of one.

    an era field changed    control moved too    its source changed    attribution
    yes                     no                   yes                   code: the environment left the control alone
    yes                     any other                                  environment
    no                      yes                  any                   machine
    no                      no, or none there    any                   code

A count can't be moved by a machine, so of exact metrics and failures only the first two and the last line hold.
"""

from dataclasses import dataclass

from pairbench.model.comparison import Attribution, EraChange
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
    """Whether it was another machine or GPU, in words."""
    in_turns: bool = False
    """Whether both sides were measured in turns: then the machine was the same for both, whatever its control did."""


def of_latency(
    change: Interval, control: Interval | None, known: Circumstances, policy: Policy = DEFAULT
) -> tuple[Attribution, str]:
    """Return whose doing a change of latency is, and the sentence that says why."""
    moved = control is not None and moved_along(change, control, policy)
    beside = "" if control is None else f"its control moved {100 * (control.estimate - 1):+.1f} %"
    if known.era and not (known.implementation_changed and control is not None and not moved):
        return Attribution.ENVIRONMENT, f"environment changed: {era_words(known.era)}" + (
            f"; {beside}" if beside else ""
        )
    if moved and not known.in_turns:
        sources = "; the sources of both changed" if known.implementation_changed and known.control_changed else ""
        return Attribution.MACHINE, f"{beside}" + (f"; {known.elsewhere}" if known.elsewhere else "") + sources
    alone = "" if known.in_turns else "there is no control to tell"
    return Attribution.CODE, "; ".join(part for part in (beside or alone, _source(known), known.elsewhere) if part)


def of_count(known: Circumstances) -> tuple[Attribution, str]:
    """Return whose doing a change of a count, or a failure, is."""
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
