"""Which configuration an autotuned kernel was launched with: Triton's own autotuner, around a kernel that runs nothing."""

import sys
from typing import Any

import pytest

from pairbench.execute.worker.timing.ready import choices

autotuner: Any = pytest.importorskip("triton.runtime.autotuner")


def add(x: Any, block: int) -> None:
    """Stand in for the kernel's Python."""


class Kernel:
    fn = staticmethod(add)

    def __init__(self) -> None:
        self.launched_with: list[int] = []

    def run(self, *_: object, block: int, **__: object) -> None:
        self.launched_with.append(block)


def tuned(kernel: Kernel, blocks: tuple[int, ...], best: int) -> Any:
    """Make Triton's autotuner find one of the blocks to be the fastest."""

    def do_bench(call: Any, quantiles: Any) -> list[float]:
        call()
        return [1.0 if kernel.launched_with[-1] == best else 2.0] * len(quantiles)

    configs = [autotuner.Config({"block": block}, num_warps=8) for block in blocks]
    return autotuner.Autotuner(kernel, ["x"], configs, ["x"], None, None, do_bench=do_bench)


def test_the_configuration_of_each_kernel_that_is_launched_is_noted_once() -> None:
    tuner, other = tuned(Kernel(), (64, 128, 256), best=128), tuned(Kernel(), (32,), best=32)
    with choices() as chosen:
        for _ in range(3):
            tuner.run(1)
        other.run(1)
    assert chosen == ["add: block=128, num_warps=8, num_stages=3", "add: block=32, num_warps=8, num_stages=3"]


def test_nothing_is_left_behind_in_triton_and_what_raises_goes_through() -> None:
    before = autotuner.Autotuner.run

    class Broken(Kernel):
        def run(self, *_: object, **__: object) -> None:
            raise RuntimeError("out of shared memory")

    with pytest.raises(RuntimeError, match="out of shared memory"), choices() as chosen:
        tuned(Broken(), (64,), best=64).run(1)
    assert chosen == [] and autotuner.Autotuner.run is before


def test_a_process_without_triton_notes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triton.runtime.autotuner")
    with choices() as chosen:
        pass
    assert chosen == []
