"""The compilations of a call by torch.compile: how many, where its graphs break, and why it had to compile again."""

import re
from pathlib import Path
from typing import Any

import torch

from pairbench.model.outcome import Compilation

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)")
"""The compiler's name of the frame after a break, with the line of the break."""
_FOLDER = re.compile(r'(?<=file ")/[^"]*/')
"""Folder of a file in a guard; it differs from machine to machine and is left out."""
_MOST = 100_000


def forget_compilations() -> None:
    # The compiler keeps the metrics of the newest 64 compilations only; a deep network compiled layer by layer has more.
    torch._dynamo.utils.set_compilation_metrics_limit(_MOST)
    torch._dynamo.utils.clear_compilation_metrics()


def compilations() -> Compilation:
    """Return the compilations since `forget_compilations`."""
    # On a GPU kernels are tuned when they first run, which is reported as one frame more, without a name or a line.
    frames = [frame for frame in torch._dynamo.utils.get_compilation_metrics() if not frame.is_runtime]
    compiled = [frame for frame in frames if frame.has_guarded_code]
    again = [frame for frame in compiled if frame.recompile_reason]
    breaks: list[str] = []
    reasons: list[str] = []
    for frame in frames:
        # The reason of a break is in the frame that broke; its line is in the name of the frame that resumes there.
        if resumed := _RESUMED.fullmatch(str(frame.co_name)):
            why = f": {reasons.pop(0)}" if reasons else ""
            breaks.append(f"{resumed['name']} breaks at {_file(frame)}:{resumed['line']}{why}")
        elif not frame.has_guarded_code:
            line = frame.fail_user_frame_lineno or frame.co_firstlineno
            breaks.append(f"{frame.co_name} stays Python, {_file(frame)}:{line}: {_first_line(frame.fail_reason)}")
        reasons += [_first_line(reason) for reason in frame.restart_reasons or () if "Explanation" in reason]
    return Compilation(
        compilations=len(compiled),
        recompilations=len(again),
        graph_breaks=len(breaks),
        notes=(*breaks, *(f"{frame.co_name} again, {_guard(frame.recompile_reason)}" for frame in again)),
    )


def _file(frame: Any) -> str:
    return Path(str(frame.co_filename)).name


def _guard(reason: str) -> str:
    """Return the failed guard without the folders, the line of code and the stack that the compiler adds."""
    return _FOLDER.sub("", _first_line(reason).partition("  #")[0].rstrip())


def _first_line(text: Any) -> str:
    return str(text or "not said").strip().partition("\n")[0]
