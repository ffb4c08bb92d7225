"""Labels the blocks in which a GPU throttled, and lets it rest so that it does not throttle again."""

from collections.abc import Sequence

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing.telemetry import TelemetryRecorder
from pairbench.execute.worker.timing.timers import DeviceClock

_READING_S = 0.02
"""Seconds between two readings of the GPU, about as often as NVML renews them."""
_REST = 1.0
"""How long the GPU rests before a turn once it has throttled, as a multiple of the time that the turn before took.

On an H200 the standard deviation of the rounds of a product of 1.5 ms is 2.1 % without rests, 0.06 % with 1 and 0.06 % with 2; four cases of
attention, convolutions and a product took 35, 46 and 56 s.
"""


class Throttling:
    """Labels the blocks of one case in one round.

    NVML says that a GPU throttles up to 0.1 s late, and goes on saying so for as long. Where the clocks of the entries time a spin before each
    sample, they see at once that it is slower, and label the block; elsewhere, and where GPUs beside it work as well, NVML does.
    """

    def __init__(self, recorder: TelemetryRecorder, clocks: Sequence[DeviceClock]) -> None:
        """Take the first reading.

        Args:
            recorder: Reads the GPU.
            clocks: Of the entries that have one.
        """
        self._recorder = recorder
        self._clocks = clocks
        self.blocks: list[bool] = []
        """Whether the GPU throttled, for each block so far; where NVML labels them, blocks since its last reading are labelled at the next one."""
        self.rested_ns = 0
        """How long the GPU has rested, in ns."""
        self._hot = False
        self._turn_ns = 0
        recorder.throttling()
        self._last_reading, self._unread = trusted.perf_counter_ns(), 0

    def rest(self) -> None:
        """Let the GPU rest before the next turn, if it has throttled."""
        if self._hot:
            began = trusted.perf_counter_ns()
            trusted.sleep(_REST * self._turn_ns / 1e9)
            self.rested_ns += trusted.perf_counter_ns() - began

    def end_turn(self, took_ns: int) -> None:
        """Note how long a turn took, in ns."""
        self._turn_ns = took_ns

    def end_block(self) -> int:
        """Label the block that has just been taken.

        Returns:
            The number of newest blocks, this one included, in which the GPU is now known to have throttled.
        """
        self.blocks.append(False)
        self._unread += 1
        throttled = int(any(clock.throttled for clock in self._clocks))
        now = trusted.perf_counter_ns()
        if now - self._last_reading >= _READING_S * 1e9:
            if self._recorder.throttling() and not self._clocks_see_it:
                throttled = self._unread
            self._last_reading, self._unread = now, 0
        if throttled:
            self.blocks[-throttled:] = [True] * throttled
            self._hot = True
        return throttled

    @property
    def _clocks_see_it(self) -> bool:
        return not self._recorder.reads_several and any(clock.name is not None for clock in self._clocks)
