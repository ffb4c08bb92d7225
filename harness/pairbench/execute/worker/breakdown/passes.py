"""Where one call spends its time: the profiler's trace of it, its modules, and the lines that copy, cast and wait.

Three passes, since each would disturb the others: one whose trace shows which module and operator launched each kernel; on a GPU one that records the call
alone, for times and gaps; one that sees every operator as it is dispatched, with the frame that called it. The n-th kernel of a name is the same in both traces.
"""

import contextlib
import linecache
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, record_function

from pairbench.execute.protocol import BreakDownCase, Ended, Heartbeat
from pairbench.execute.worker.breakdown import trace
from pairbench.execute.worker.calls import SEEDS, Call, build_inputs, make_call, synchronize, why_invalid
from pairbench.execute.worker.graphs import CaptureError, Replay, Run
from pairbench.execute.worker.guard import each_entry
from pairbench.execute.worker.modules import TransparentMode, names_of, roots, watching
from pairbench.execute.worker.profile import TraceError, raw_trace, run_sentinel, unusable
from pairbench.execute.worker.trees import dtype_name, named_tensors, restore
from pairbench.model.breakdown import Breakdown, Idle, ModuleCalls, SourceLine
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_MASKS = ("aten::index", "aten::index_put_")  # operators that wait if an index is a mask: its true elements are counted
_CALLERS = 16  # most callers of a function that are shown one by one; with more, only the line inside it is shown

CodeLine = tuple[CodeType, int]  # code, and the number of one of its lines
_SHORT_S = 0.1
_CALLS = 5  # calls to record where one takes less than `_SHORT_S`
_Recorded = tuple[trace.Window, float]
_CLOCKS_NS = 5_000.0  # how far the clocks of host and device in a trace may differ, in ns


class Sighting(NamedTuple):
    op: str
    what: str
    detail: str
    at: CodeLine | None
    caller: CodeLine | None  # the line that called this line's function; None where a module's call did
    module: str
    bytes: int


@dataclass(kw_only=True, eq=False)
class Sightings(TransparentMode):
    """Records copies, casts and waits that are dispatched while it is active, each with its module."""

    state: frozenset[int]  # storage addresses of the operator's state: writes into them are cache writes
    skipped: tuple[str, ...]  # prefixes of file names whose lines are never reported: ours, torch's, a compiler's
    sightings: list[Sighting] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def around(self, name: str, _module: torch.nn.Module, _inputs: Any, call: Run) -> Any:
        self.stack.append(name)
        try:
            return call()
        finally:
            self.stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0] if isinstance(func, torch._ops.OpOverload) else ""
        outputs = func(*args, **(kwargs or {}))
        if name in trace.COPIES and isinstance(outputs, torch.Tensor):
            self._note_copy(name, args, outputs)
        indices = args[1] if name in _MASKS and len(args) > 1 and isinstance(args[1], list | tuple) else ()
        masks = (index for index in indices if isinstance(index, torch.Tensor))
        if name in trace.WAITS or any(index.dtype in (torch.bool, torch.uint8) for index in masks):
            self.note(name, "sync", "")
        return outputs

    def note(self, op: str, what: str, detail: str, n_bytes: int = 0) -> None:
        module = self.stack[-1] if self.stack else ""
        self.sightings.append(Sighting(op, what, detail, *_calling_lines(self.skipped), module, n_bytes))

    def _note_copy(self, name: str, args: Any, written: torch.Tensor) -> None:
        # In place: the source comes second, and only so many elements are written as it has.
        source = _source(name, args)
        size = source.numel() if name == "aten::index_copy_" and source is not None else written.numel()
        n_bytes = size * written.element_size()
        if source is not None and source.device != written.device:
            self.note(name, "transfer", f"{source.device.type} -> {written.device.type}", n_bytes)
        elif source is not None and source.dtype != written.dtype:
            self.note(name, "cast", f"{dtype_name(source)} -> {dtype_name(written)}", n_bytes)
        elif name.endswith("_") and written.untyped_storage().data_ptr() in self.state:
            self.note(name, "cache", "", n_bytes)
        else:
            self.note(name, "copy", "", n_bytes)


def _source(name: str, args: Any) -> torch.Tensor | None:
    position = {"aten::copy_": 1, "aten::index_copy_": 3, "aten::index_put_": 2, "aten::scatter_": 3}.get(name, 0)
    source = args[position] if len(args) > position else None
    return source if isinstance(source, torch.Tensor) else None


def see(run: Run, names: dict[torch.nn.Module, str], state: Any, *, skipped: tuple[str, ...] = ()) -> list[Sighting]:
    storages = frozenset(tensor.untyped_storage().data_ptr() for tensor in named_tensors(state).values())
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), contextlib.__file__, "<", *skipped)
    mode = Sightings(state=storages, skipped=ours)
    with _explicit_waits(mode), watching(names, mode.around), mode:
        run()
    return mode.sightings


@contextlib.contextmanager
def _explicit_waits(mode: Sightings) -> Iterator[None]:
    """Note calls of `synchronize`, which are no operators."""

    def noting(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            mode.note(name, "sync", "")
            return plain(*args, **kwargs)

        return noted

    waiting = ((torch.cuda, "torch.cuda"), (torch.cuda.Stream, "Stream"), (torch.cuda.Event, "Event"))
    with contextlib.ExitStack() as stack:
        for owner, label in waiting if torch.cuda.is_initialized() else ():
            stack.enter_context(patch.object(owner, "synchronize", noting(owner.synchronize, f"{label}.synchronize")))
        yield


def _calling_lines(skipped: tuple[str, ...]) -> tuple[CodeLine | None, CodeLine | None]:
    """Return the innermost line that belongs to neither pairbench, torch nor a compiler, and the line that called its function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    if frame is None:
        return None, None
    outer = frame.f_back
    direct = outer is not None and not outer.f_code.co_filename.startswith(skipped)
    at = frame.f_code, frame.f_lineno
    return at, (outer.f_code, outer.f_lineno) if outer is not None and direct else None


def gather(sightings: list[Sighting], folder: Path) -> tuple[tuple[SourceLine, ...], list[int]]:
    """Add sightings up by line, and by caller where several lines call one function; return the lines, and for each sighting the index of its line."""
    callers = defaultdict[Any, set[CodeLine | None]](set)
    for seen in sightings:
        callers[seen[:4]].add(seen.caller)
    keys = [(seen[:4], seen.caller if 1 < len(callers[seen[:4]]) <= _CALLERS else None) for seen in sightings]
    groups = defaultdict[Any, list[Sighting]](list)
    for key, seen in zip(keys, sightings, strict=True):
        groups[key].append(seen)
    order = {key: index for index, key in enumerate(groups)}
    spots = tuple(_spot(group, caller, folder) for (_, caller), group in groups.items())
    return spots, [order[key] for key in keys]


def _spot(group: list[Sighting], caller: CodeLine | None, folder: Path) -> SourceLine:
    first = group[0]
    code, line = first.at or (None, 0)
    file = Path(code.co_filename) if code else Path()
    return SourceLine(
        what=first.what,
        op=first.op,
        detail=first.detail,
        file=_shown(file, folder) if code else "",
        line=line,
        function=code.co_qualname if code else "",
        code=linecache.getline(str(file), line).strip() if code else "",
        called_from=f"{_shown(Path(caller[0].co_filename), folder)}:{caller[1]}" if caller else "",
        modules=tuple(dict.fromkeys(seen.module for seen in group)),
        count=len(group),
        bytes=sum(seen.bytes for seen in group),
    )


def _shown(file: Path, folder: Path) -> str:
    """Return a file's name without the folder of the checkout or the environment."""
    if file.is_relative_to(folder):
        return str(file.relative_to(folder))
    parts = file.parts
    libraries = [index for index, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    return str(Path(*parts[libraries[-1] + 1 :])) if libraries else file.name


def break_down(job: BreakDownCase, operator: Operator, heartbeat: Heartbeat, device: torch.device) -> Iterator[Any]:
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    reason = unusable() if device.type == "cuda" else None

    def step(entry: Entry) -> Breakdown | Ended:
        if reason:
            return Ended(entry=entry, status=Status.FAILED, reason=reason)
        variant = operator.implementations[entry.implementation]
        if why := why_invalid(variant, inputs):
            return Ended(entry=entry, status=Status.SKIPPED, reason=why)
        try:
            call = make_call(operator, variant, entry.mode, inputs)
        except CaptureError as error:
            return Ended(entry=entry, status=Status.SKIPPED, reason=f"cannot be captured as a CUDA graph: {error}")
        return _Subject(job, call, device).breakdown(entry)

    yield from each_entry(job, heartbeat, step)


class _Subject:
    def __init__(self, job: BreakDownCase, call: Call, device: torch.device) -> None:
        self._job, self._call, self._device = job, call, device
        self._eager: Run = call.run.call if isinstance(call.run, Replay) else call.run
        self._names = names_of(roots(call.given))

    def breakdown(self, entry: Entry) -> Breakdown:
        self._warm()
        seconds = self._warm()  # how often to record, and nothing else
        calls = _CALLS if seconds < _SHORT_S else 1
        on_gpu, replayed = self._device.type == "cuda", isinstance(self._call.run, Replay)
        counts, classes = Counter[str](), dict[str, str]()

        def mark(name: str, module: torch.nn.Module, _: Any, call: Run) -> Any:
            counts[name] += 1
            classes[name] = type(module).__name__
            with record_function(f"{trace.MODULE}{name}"):
                return call()

        with watching(self._names, mark):
            recorded = self._record(self._eager, 1 if on_gpu else calls, None if replayed else self._job.trace)
        each = ((name, count // len(recorded)) for name, count in counts.items())
        modules = tuple(ModuleCalls(name=name, class_name=classes[name], calls=number) for name, number in each)
        self._restore()
        folders = (os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))
        compiled = tuple(folder for folder in folders if folder)  # where compilers write code
        sightings = see(self._eager, self._names, self._state(), skipped=compiled)
        spots, spot_indices = gather(sightings, self._job.path.parent)
        marked, whole_ns = quickest = min(recorded, key=_length)
        spot_of = trace.spots_by_span(marked, [seen.op for seen in sightings], spot_indices)
        work_items = list(trace.host_work(marked, spot_of))
        notes = []
        if on_gpu:
            recorded = self._record(self._call.run, calls, self._job.trace if replayed else None)
            quickest = min(recorded, key=_length)
            work_items = list(trace.labelled(quickest[0], marked, spot_of))
            whole_ns = busy_ns(quickest[0].activities)
            if (clean := len(quickest[0].activities)) != (seen := len(marked.activities)):
                marked_made = f"the one that shows their modules made {seen}"
                notes.append(f"The call makes {clean} kernels and copies, {marked_made}.")
        if len({len(window.activities) for window, _ in recorded}) > 1:
            notes.append("The recorded calls launched different numbers of kernels.")
        return Breakdown(
            entry=entry,
            calls=calls,
            modules=modules,
            pieces=trace.pieces(work_items),
            spots=spots,
            graph_launches=len(trace.graph_launches(quickest[0])),
            waits=trace.waits(marked, spot_of) if entry.mode != "graph" else (),
            idle=idle_of(quickest[0]),
            whole_ns=whole_ns,
            notes=tuple(notes),
        )

    def _warm(self) -> float:
        self._restore()
        started = time.perf_counter()
        self._call.run()
        synchronize(self._device)
        return time.perf_counter() - started

    def _state(self) -> dict[str, Any]:
        return {name: self._call.kwargs[name] for name in self._call.operator.state}

    def _restore(self) -> None:
        restore(self._state(), {name: self._call.shared[name] for name in self._call.operator.state})
        self._call.reset()
        synchronize(self._device)

    def _record(self, run: Run, calls: int, keep: Path | None) -> list[_Recorded]:
        on_gpu = self._device.type == "cuda"
        activities = (ProfilerActivity.CPU, ProfilerActivity.CUDA) if on_gpu else (ProfilerActivity.CPU,)
        clocks_ns: list[float] = []

        def marked() -> None:
            for _ in range(calls):
                self._restore()
                if on_gpu:
                    run_sentinel()
                started = time.perf_counter_ns()
                with record_function(trace.WINDOW):
                    run()
                clocks_ns.append(time.perf_counter_ns() - started)
                synchronize(self._device)
            if on_gpu:
                run_sentinel()

        events = raw_trace(marked, activities, keep=keep)
        try:
            windows = trace.read_windows(events, calls, sentinels=calls + 1 if on_gpu else 0)
        except TraceError as error:
            raise RuntimeError(f"the profiler's trace is not complete: {error}; run it again") from error
        return list(zip(windows, clocks_ns, strict=True))


def _length(recorded: _Recorded) -> float:
    """Return how long a call took on the device in ns, or on the host where there is no device."""
    window, clock_ns = recorded
    ends = [activity.end for activity in window.activities]
    return max(ends) - min(activity.start for activity in window.activities) if ends else clock_ns


def busy_ns(activities: list[trace.Activity]) -> float:
    """Return for how long at least one of some activities was running, in ns."""
    total = end = 0.0
    for activity in sorted(activities, key=lambda item: item.start):
        total += max(0.0, activity.end - max(activity.start, end))
        end = max(end, activity.end)
    return total


def idle_of(window: trace.Window) -> Idle | None:
    """Return how long the device idled between the first and last activity of a call; None without activities."""
    activities = sorted(window.activities, key=lambda item: item.start)
    if not activities:
        return None
    waits = [wait.end for wait in window.waits()]
    starved = after_sync = 0.0
    began, end = activities[0].start, activities[0].end
    for activity in activities[1:]:
        gap = activity.start - end
        # Launched before the device ran dry: the gap is the device's own, some hundred nanoseconds a kernel.
        if gap > 0 and activity.launch is not None and activity.launch.start > end:
            starved += gap
            if any(end - _CLOCKS_NS <= wait <= activity.start for wait in waits):
                after_sync += gap
        end = max(end, activity.end)
    return Idle(span_ns=end - began, busy_ns=busy_ns(activities), starved_ns=starved, after_sync_ns=after_sync)
