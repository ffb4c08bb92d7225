"""One case of one operator, for the verbs that look into a call instead of comparing many."""

import fnmatch

from pairbench.errors import SelectionError, UsageError
from pairbench.model.case import Case, format_value
from pairbench.model.environment import Device
from pairbench.model.plan import Plan, PlannedCase
from pairbench.workflow.setup import Chosen, pick_devices

_SHOWN = 8


def one_device(wanted: str, devices: tuple[Device, ...]) -> Device:
    """Return the device that `--device` names.

    Raises:
        UsageError: it names none or several.
    """
    found = pick_devices(wanted, devices)
    if len(found) > 1:
        raise UsageError(f"--device {wanted!r} is {len(found)} devices here, expected one, such as {found[0].selector}")
    return found[0]


def one_case(plan: Plan, chosen: Chosen, wanted: str | None, device: Device) -> PlannedCase:
    """Return the case to look into: the one that is named, else the first of the size that suits the device.

    Raises:
        SelectionError: the selection takes several operators, or `wanted` fits no case or several.
    """
    if chosen.survey.broken and not plan.cases:
        raise SelectionError(chosen.survey.broken[0].reason)
    operators = {(item.operator.suite, item.operator.name): item.operator for item in plan.cases}
    if len(operators) > 1:
        names = ", ".join(f"{suite}::{name}" for suite, name in operators)
        raise SelectionError(f"expected one operator, the selection takes {len(operators)}: {names}")
    if wanted is None:
        order = ("smoke", "edge", "real", "headline") if device.kind == "cpu" else ("real", "headline", "smoke", "edge")
        return min(plan.cases, key=lambda item: order.index(item.case.tier))
    found = [item for item in plan.cases if fits(item.case, wanted)]
    if len(found) == 1:
        return found[0]
    what = "several cases" if found else "no case"
    keys = [item.case.key for item in found or plan.cases]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    raise SelectionError(f"--case {wanted!r} fits {what}; expected one of {', '.join(keys[:_SHOWN])}{more}")


def fits(case: Case, wanted: str) -> bool:
    """Return whether a text names a case: its key, some of its axes as `dtype=float32,rows=4`, or a glob of its key."""
    axes = {f"{axis}={format_value(value)}" for axis, value in case.axes}
    if set(wanted.split(",")) <= axes:
        return True
    # A key holds brackets, which a glob would read as a set of characters.
    return wanted == case.key or fnmatch.fnmatchcase(case.key, wanted.replace("[", "[[]"))
