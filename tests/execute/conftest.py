"""Stand-ins for what a worker, a suite and a clock say."""

from collections.abc import Callable
from typing import Any

import pytest

from pairbench.execute.heartbeat import Heartbeat
from pairbench.model.case import Case
from pairbench.model.plan import ImplementationDescription, PlannedCase
from tests.builders import described
from tests.execute.made import entry, new_heartbeat


@pytest.fixture
def heartbeat() -> Heartbeat:
    return new_heartbeat()


@pytest.fixture(scope="session")
def planned() -> Callable[..., PlannedCase]:
    def make(
        rows: int = 4, names: tuple[str, ...] = ("baseline", "a", "b"), modes: tuple[str, ...] = ("eager",), **more: Any
    ) -> PlannedCase:
        operator = described(
            implementations=tuple(ImplementationDescription(name=name, needs=(), hash=name) for name in names)
        )
        entries = tuple(entry(name, mode) for mode in modes for name in names)
        case = Case(operator="op", axes=(("rows", rows),), tier="smoke")
        return PlannedCase(operator=operator, case=case, entries=entries, **more)

    return make
