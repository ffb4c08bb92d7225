"""Stand-ins for what a worker, a suite and a clock say."""

import pytest

from pairbench.execute.protocol import Heartbeat
from tests.execute.made import new_heartbeat


@pytest.fixture
def heartbeat() -> Heartbeat:
    return new_heartbeat()
