"""What one call dispatches and allocates, exact on a CPU."""

import pytest
import torch

from pairbench.execute.worker.profile.memory import count_ops, host_memory


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(256)


def test_operators_are_counted(x: torch.Tensor) -> None:
    assert count_ops(lambda: None) == 0
    assert count_ops(lambda: x + x) == 1
    assert count_ops(lambda: [x.sin() for _ in range(7)]) == 7
    assert count_ops(lambda: x.view(16, 16).t()) == 2


def test_the_peak_and_the_allocations(x: torch.Tensor) -> None:
    assert host_memory(lambda: None) == (0, 0)
    assert host_memory(lambda: x + x) == (1024, 1)
    assert host_memory(lambda: (x + x, x * x)) == (2048, 2)
    # The first result is freed before the third is made.
    assert host_memory(lambda: (x + x).sin().cos()) == (2048, 3)
    assert host_memory(lambda: x.add_(x)) == (0, 0)
    assert host_memory(lambda: x.view(16, 16)) == (0, 0)


def test_counts_do_not_change(x: torch.Tensor) -> None:
    assert len({(count_ops(lambda: x.softmax(0) @ x), host_memory(lambda: x.softmax(0) @ x)) for _ in range(3)}) == 1
