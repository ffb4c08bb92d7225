"""Stand-ins for what a worker, a suite and a clock say."""

import mmap
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pairbench.execute.heartbeat import SIZE, Heartbeat
from pairbench.model.case import Case
from pairbench.model.plan import ImplementationDescription, PlannedCase
from tests.builders import described
from tests.execute.made import entry


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    """Return a watch of an hour."""
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        made = Heartbeat(mmap.mmap(file.fileno(), SIZE))
        made.begin_job(3600)
        yield made


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
