"""The lines of code that copy, cast and wait: each such operator as it is dispatched, with the frame that called it, in an untimed pass of its own."""

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import torch

from pairbench.execute.worker.dispatch import TransparentMode
from pairbench.execute.worker.input_trees import named_tensors
from pairbench.execute.worker.modules import watching
from pairbench.execute.worker.verify.judge import dtype_name
from pairbench.model.breakdown import SourceLine

COPIES = frozenset(
    f"aten::{name}"
    for name in (
        *("_to_copy", "copy_", "clone", "cat", "stack", "roll", "constant_pad_nd", "repeat", "slice_scatter"),
        *("index_copy_", "index_put_", "scatter_", "select_scatter", "masked_scatter_"),
    )
)

WAITS = frozenset(
    f"aten::{name}"
    for name in ("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "bincount")
)
"""Operators whose result the host has to see before it can go on."""

_MASKS = ("aten::index", "aten::index_put_")
"""Operators that wait if an index is a mask, whose true elements have to be counted."""


_CALLERS = 16
"""Most callers of a function that are shown one by one; with more, only the line inside the function is shown."""


@dataclass(frozen=True, kw_only=True)
class CodeLine:
    code: CodeType
    line: int


@dataclass(frozen=True, kw_only=True)
class Sighting:
    op: str
    what: str
    detail: str
    at: CodeLine | None
    caller: CodeLine | None
    """The line that called this line's function; None where a module's call did."""
    module: str
    bytes: int


@dataclass(kw_only=True, eq=False)
class Sightings(TransparentMode):
    """Records copies, casts and waits that are dispatched while it is active, each with its module."""

    state: frozenset[int]
    """Storage addresses of the operator's state: writes into them are cache writes."""
    skipped: tuple[str, ...]
    """Prefixes of file names whose lines are never reported: ours, torch's, a compiler's."""
    sightings: list[Sighting] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def enter(self, name: str, module: torch.nn.Module, inputs: Any) -> None:  # noqa: ARG002 (a Watcher)
        self.stack.append(name)

    def leave(self, name: str, module: torch.nn.Module, outputs: Any) -> None:  # noqa: ARG002 (a Watcher)
        self.stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0] if isinstance(func, torch._ops.OpOverload) else ""
        outputs = func(*args, **(kwargs or {}))
        if name in COPIES:
            self._note_copy(name, args, outputs)
        if name in WAITS or (name in _MASKS and _has_mask(args)):
            self.note(name, "sync", "")
        return outputs

    def note(self, op: str, what: str, detail: str, n_bytes: int = 0) -> None:
        module = self.stack[-1] if self.stack else ""
        at, caller = _calling_lines(self.skipped)
        seen = Sighting(op=op, what=what, detail=detail, at=at, caller=caller, module=module, bytes=n_bytes)
        self.sightings.append(seen)

    def _note_copy(self, name: str, args: Any, outputs: Any) -> None:
        written = outputs if isinstance(outputs, torch.Tensor) else None
        if written is None:
            return
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


def _has_mask(args: Any) -> bool:
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)


def see(
    run: Callable[[], Any], names: dict[torch.nn.Module, str], state: Any, *, skipped: tuple[str, ...] = ()
) -> list[Sighting]:
    """Run once and return every copy, cast and wait, in order."""
    storages = frozenset(tensor.untyped_storage().data_ptr() for tensor in named_tensors(state).values())
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), contextlib.__file__, "<", *skipped)
    mode = Sightings(state=storages, skipped=ours)
    with _explicit_waits(mode), watching(names, mode), mode:
        run()
    return mode.sightings


@contextlib.contextmanager
def _explicit_waits(mode: Sightings) -> Iterator[None]:
    """Note calls of `synchronize`, which are no operators."""
    if not torch.cuda.is_initialized():
        yield
        return

    def noting(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            mode.note(name, "sync", "")
            return plain(*args, **kwargs)

        return noted

    with contextlib.ExitStack() as stack:
        for owner, label in ((torch.cuda, "torch.cuda"), (torch.cuda.Stream, "Stream"), (torch.cuda.Event, "Event")):
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
    return _line_of(frame), _line_of(outer) if outer is not None and direct else None


def _line_of(frame: FrameType) -> CodeLine:
    return CodeLine(code=frame.f_code, line=frame.f_lineno)


def gather(sightings: list[Sighting], folder: Path) -> tuple[tuple[SourceLine, ...], list[int]]:
    """Add sightings up by line, and by caller where several lines call one function; return the lines, and for each sighting the index of its line."""
    lines = [(seen.what, seen.op, seen.detail, seen.at) for seen in sightings]
    callers: dict[Any, set[CodeLine | None]] = {}
    for line, seen in zip(lines, sightings, strict=True):
        callers.setdefault(line, set()).add(seen.caller)
    groups: dict[Any, list[Sighting]] = {}
    keys = [
        (line, seen.caller if 1 < len(callers[line]) <= _CALLERS else None)
        for line, seen in zip(lines, sightings, strict=True)
    ]
    for key, seen in zip(keys, sightings, strict=True):
        groups.setdefault(key, []).append(seen)
    order = {key: index for index, key in enumerate(groups)}
    spots = tuple(_spot(group, caller, folder) for (_, caller), group in groups.items())
    return spots, [order[key] for key in keys]


def _spot(group: list[Sighting], caller: CodeLine | None, folder: Path) -> SourceLine:
    first = group[0]
    at = first.at
    file = Path(at.code.co_filename) if at else Path()
    return SourceLine(
        what=first.what,
        op=first.op,
        detail=first.detail,
        file=_shown(file, folder) if at else "",
        line=at.line if at else 0,
        function=at.code.co_qualname if at else "",
        code=linecache.getline(str(file), at.line).strip() if at else "",
        called_from=f"{_shown(Path(caller.code.co_filename), folder)}:{caller.line}" if caller else "",
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
