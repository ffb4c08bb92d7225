"""Which of the selected cases a quick look takes: one of each operator says whether an edit was right, and whether it was fast."""

from collections.abc import Sequence

from pairbench.model.environment import Device
from pairbench.model.plan import PlannedCase
from pairbench.plan import Selection, typical


def one_of_each(
    cases: Sequence[PlannedCase], selections: Sequence[Selection], device: Device
) -> tuple[PlannedCase, ...]:
    """Return the cases that were named by their keys, and of each other operator one.

    Args:
        cases: All that are selected, of the tiers that suit the device or were asked for.
        selections: What selected them.
        device: Where they are tried.
    """
    by_operator: dict[tuple[str, str], list[PlannedCase]] = {}
    for planned in cases:
        by_operator.setdefault((planned.operator.suite, planned.operator.name), []).append(planned)
    taken: list[PlannedCase] = []
    for several in by_operator.values():
        named = [planned for planned in several if any(_names(one, planned) for one in selections)]
        taken += named or [typical(several, device)]
    return tuple(taken)


def _names(selection: Selection, planned: PlannedCase) -> bool:
    """Tell whether a selection names a case, and not all of its operator."""
    suite, operator, key = planned.operator.suite, planned.operator.name, planned.case.key
    whole = selection.pattern is None or selection.takes_name(suite, operator, None)
    return not whole and selection.takes_name(suite, None, key)
