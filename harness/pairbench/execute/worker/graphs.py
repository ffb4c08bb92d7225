"""Calls captured as CUDA graphs: a replay, a rotation of several replays, and the clean-up of a failed capture."""

import collections
import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pairbench.execute.garbage import no_collection
from pairbench.execute.worker.guard import where
from pairbench.execute.worker.trusted import newest_thread

WARM_ENOUGH_S = 0.2  # seconds after which an entry is warm, however few calls that is: a long call settles in its first
_CAPTURE_WARM_UP = 3
_INVALIDATED = "previous error during capture"
"""CUDA's message where something else ended a capture; a call that it forbids is named as not permitted."""
_CAPTURES = 7
"""Captures in a rotation. Odd, because the calls made for each sample are a power of two, and all captures are to be timed."""
_SHORT_US = 100
"""Calls shorter than this, in us, are captured several times: two captures of one call differed by 1 % at 52 us, and by 0.2 % at 98 us."""
_LONG_US = 100 * _SHORT_US  # latency in us from which a first replay, which uploads the graph, is that of no short call

Run = Callable[[], Any]
Reset = Callable[[], None]
Pool = tuple[int, int]


def nothing() -> None:
    """Do nothing: most calls have no state to restore."""


class CaptureError(Exception):
    """A call cannot be captured as a CUDA graph."""


@dataclass(frozen=True)
class Replay:
    """A captured call; calling it replays the graph and returns the same output tensors every time."""

    call: Run
    graph: torch.cuda.CUDAGraph
    outputs: Any
    before: Reset = nothing
    again: "Callable[[], Replay] | None" = None  # captures the call once more, where `capture` alone does not

    @property
    def replays(self) -> "tuple[Replay, ...]":
        """All captures: this one. A `Rotation` has several."""
        return (self,)

    def __call__(self) -> Any:
        self.graph.replay()
        return self.outputs


def capture(call: Run, shared_pool: Pool | None = None, *, before: Reset = nothing) -> Replay:
    """Capture a call as a CUDA graph; graphs in one `shared_pool` overwrite each other's memory, outputs excepted. `before` restores the call's state and is not captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    began = time.perf_counter()
    with torch.cuda.stream(stream):
        for _ in range(_CAPTURE_WARM_UP):
            before()
            call()
            stream.synchronize()
            if time.perf_counter() - began > WARM_ENOUGH_S:
                break
    torch.cuda.current_stream().wait_stream(stream)
    before()
    torch.cuda.synchronize()
    try:
        return _capture_once(call, shared_pool, before)
    except CaptureError as error:
        # 3 of some 400 captures on an H200 that 15 processes shared, of calls that were captured well before and after.
        if _INVALIDATED not in str(error):
            raise
    before()
    torch.cuda.synchronize()
    return _capture_once(call, shared_pool, before)


def capture_behind(
    first: Run, call: Run, pool: Pool | None, *, reset: Reset, ready: Callable[[Run], None], again: Callable[[], Replay]
) -> Replay:
    """Capture `first` and a call that reads its results, each as a graph of its own in one pool; before each replay `ready` is given the replay of `first`."""
    pool = pool or torch.cuda.graph_pool_handle()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        reset()
        first()
        call()
    torch.cuda.current_stream().wait_stream(stream)
    written = capture(first, pool, before=reset)
    captured = _capture_once(call, pool, nothing)
    written()
    return Replay(call, captured.graph, captured.outputs, functools.partial(ready, written), again)


def _capture_once(call: Run, shared_pool: Pool | None, before: Reset) -> Replay:
    graph, pool = torch.cuda.CUDAGraph(), shared_pool or torch.cuda.graph_pool_handle()
    last_thread = newest_thread()
    try:
        # No collection, for what it frees on the device would end the capture. The outer stream, because torch does not come
        # back from the capturing one where the end of the capture fails.
        outer = torch.cuda.stream(torch.cuda.current_stream())
        with no_collection(collect=False), outer, torch.cuda.graph(graph, pool=pool):
            outputs = call()
    except BaseException as error:
        # The error at the end of a capture is only that it was invalidated; the one before it names the forbidden call.
        while error.__context__ is not None:
            error = error.__context__
        reason = f"{where(error)}{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    else:
        if (started := newest_thread()) is last_thread or started is None:
            return Replay(call, graph, outputs, before)
        # A new thread launches into a stream that is not captured.
        reason = f"it starts a thread ({started.place}: {started.name!r}), whose launches no capture holds"
    # Without the exception, whose frames hold the call's tensors.
    graph.reset()
    _give_back(pool, release=shared_pool is None)
    raise CaptureError(reason)


@dataclass(frozen=True)
class Rotation:
    """Several captures of one call, of which each call replays the next.

    The place of a graph on the device moves its latency as long as it lives: six captures of one 6.7 us addition had medians 2.9 % apart on an H200; one of them, replayed
    six times, 0.5 %. That is no property of the call, so it is averaged.
    """

    replays: tuple[Replay, ...]
    turns: collections.deque[Replay]

    def __call__(self) -> Any:
        replay = self.turns[0]
        self.turns.rotate(-1)
        return replay()

    def before(self) -> None:
        self.turns[0].before()


def rotate(replay: Replay) -> Replay | Rotation:
    """Return the replay in rotation with more captures of its call, if the call is short enough for that to matter."""
    if _replays_us(replay, 1) > _LONG_US or _replays_us(replay, _CAPTURE_WARM_UP) > _SHORT_US:
        return replay
    # The others in memory of their own: to lie elsewhere is what they are for, and short calls need little.
    again = replay.again or (lambda: capture(replay.call, before=replay.before))
    replays = (replay, *(again() for _ in range(_CAPTURES - 1)))
    return Rotation(replays, collections.deque(replays))


def _replays_us(replay: Replay, times: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        replay.before()
        replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / times


def memory_of_graphs() -> Callable[[torch.Tensor], bool]:
    """Return a predicate: whether a tensor lies in memory that belongs to captured graphs alone."""
    segments = (one for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) != (0, 0))
    owned = [(one["address"], one["address"] + one["total_size"]) for one in segments]
    return lambda tensor: any(begin <= tensor.data_ptr() < end for begin, end in owned)


def _give_back(pool: Pool, *, release: bool) -> None:
    """Release the memory of a failed capture, unless others share it: torch before the fixes of pytorch #180395 and #190348 keeps it for good, and frees no cached memory from then on."""
    device = torch.cuda.current_device()
    # The second is that of torch 2.6.
    end = getattr(torch._C, "_cuda_endAllocateToPool", None) or torch._C._cuda_endAllocateCurrentStreamToPool
    with contextlib.suppress(RuntimeError):  # raised by fixed releases: nothing is recorded into that pool
        end(device, pool)
    torch.cuda.empty_cache()
    if not release:
        return
    kept = [segment for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) == tuple(pool)]
    if kept and not any(segment["active_size"] for segment in kept):
        torch._C._cuda_releasePool(device, pool)
        torch.cuda.empty_cache()
