"""What tests of real workers share."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.execute.parent.launch import ForkServers, Launchers
from pairbench.execute.parent.pool import WorkerContext, available_memory
from pairbench.model.environment import Settings
from tests.commands import forked_workers


@pytest.fixture
def context(tmp_path: Path) -> WorkerContext:
    """Return a context whose workers are new interpreters."""
    return WorkerContext(
        settings=Settings(timeout_s=3),
        cache=tmp_path,
        interrupted=threading.Event(),
        memory_bytes=available_memory(0.8),
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[ForkServers]:
    """Return fork servers that are forked themselves, from a process that has loaded torch for all tests."""
    with forked_workers(), ForkServers() as made:
        yield made


@pytest.fixture
def forking(context: WorkerContext, servers: ForkServers) -> WorkerContext:
    """Return a context whose workers are forked, and have a minute."""
    # A cache of one place, as for all workers of a run: its folder is part of the environment.
    return replace(context, launchers=Launchers(servers, servers), cache=Path("/tmp"), settings=Settings(timeout_s=60))
