"""`run --skip-existing`: leaves out what the store has already."""

from collections.abc import Callable
from dataclasses import replace

from pairbench.analyze.existing import COLUMNS, existing
from pairbench.config import Config
from pairbench.errors import StoreError
from pairbench.model.environment import Environment
from pairbench.model.plan import Plan
from pairbench.model.settings import OWN_TIMERS
from pairbench.store.reader import read_frame


def without_existing(config: Config, environment: Environment, plan: Plan, notify: Callable[[str], None]) -> Plan:
    """Return a device's plan without the cases that were measured on its model, in this environment, by this code.

    Failures, and what ran out of time or memory, are tried again.
    """
    device, settings = environment.device, config.settings
    where = {"device_name": device.name, "environment_hash": environment.hash}
    try:
        frame, problems = read_frame(config.store, columns=COLUMNS, where=where)
    except StoreError:  # no store yet
        return plan
    for problem in problems:
        notify(f"pairbench: {problem}")
    timer = OWN_TIMERS[device.kind] if settings.timer == "auto" else settings.timer
    rows = frame.dropna(subset=["implementation", "mode"]).to_dict("records")  # without suites that could not be loaded
    there = existing(plan.cases, rows, timer=timer, rounds=settings.rounds)
    if there:
        notify(
            f"pairbench: {device.selector}: {len(there)} of {len(plan.cases)} cases are in store {config.store!r} already, "
            "and are left out"
        )
    left = (planned for planned in plan.cases if (planned.operator.suite, planned.case.key) not in there)
    return replace(plan, cases=tuple(left))
