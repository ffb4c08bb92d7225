"""pytest-benchmark's fixture over samples that were taken elsewhere: its table, files and comparisons, our clock."""

from collections.abc import Sequence
from typing import Any


class SampledClock:
    """A clock that each call puts forward by one sample.

    pytest-benchmark reads a clock before and after a call and keeps the difference. A difference of two readings is no
    way to time a GPU, and calls timed one implementation after the other are no way to compare them; so the calls were
    timed before, interleaved, and are played back here through nothing but the fixture's public interface.
    """

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now

    def play(self, benchmark: Any, samples_ns: Sequence[float]) -> None:
        """Have a fixture that was told of this clock measure one round a sample."""
        remaining = iter(samples_ns)

        def call() -> None:
            self._now = next(remaining) / 1e9

        def reset() -> None:
            self._now = 0.0  # so that no sample loses digits to those before it

        benchmark.pedantic(call, setup=reset, rounds=len(samples_ns))
