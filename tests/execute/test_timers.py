"""How many untimed calls go before a sample."""

import pytest

from pairbench.execute.graphs import _CAPTURES
from pairbench.execute.timers import CudaTimer, HostTimer

LATENCIES = [1e3, 69e3, 70e3, 199e3, 200e3, 19e6, 20e6, 1e9]


def cuda_timer() -> CudaTimer:
    """Return one that has touched no GPU."""
    return CudaTimer.__new__(CudaTimer)


def test_shorter_calls_have_a_longer_lead_in() -> None:
    assert [cuda_timer().lead_in(latency) for latency in LATENCIES] == [7, 7, 7, 7, 1, 1, 0, 0]
    assert [HostTimer().lead_in(latency) for latency in LATENCIES] == [1, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("latency", LATENCIES)
def test_every_capture_is_timed(latency: float) -> None:
    calls = cuda_timer().lead_in(latency) + 1
    timed = {(sample * calls + calls - 1) % _CAPTURES for sample in range(_CAPTURES)}
    assert len(timed) == _CAPTURES
