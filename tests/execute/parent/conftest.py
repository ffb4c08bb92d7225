"""What tests of real workers share."""

import threading
from pathlib import Path

import pytest

from pairbench.execute.parent.pool import WorkerContext, available_memory
from pairbench.model.settings import Settings


@pytest.fixture
def context(tmp_path: Path) -> WorkerContext:
    return WorkerContext(
        settings=Settings(timeout_s=4),
        cache=tmp_path,
        interrupted=threading.Event(),
        memory_bytes=available_memory(0.8),
    )
