"""What torch.compile is said to have done is what it did: real compilations, with the quick backend."""

import importlib
import sys
import types
from collections.abc import Callable

import pytest
import torch
import torch._dynamo.utils

from pairbench.execute.worker import stages
from pairbench.execute.worker.stages import reset_compiler
from pairbench.execute.worker.verify.case import compilations, forget_compilations
from pairbench.model.outcome import Compilation


def whole(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def waits(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def piece(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def pieces(x: torch.Tensor) -> torch.Tensor:
    found = []
    for length in (1, 2, 3):
        torch._dynamo.graph_break()
        found.append(piece(x[:length]))
    return torch.cat(found)


def by_length(x: torch.Tensor) -> torch.Tensor:
    found = []
    for length in (1, 2):
        torch._dynamo.graph_break()
        found.append(beginning(x, length))
    return torch.cat(found)


def beginning(x: torch.Tensor, length: int) -> torch.Tensor:
    return x[:length].sin()


def compiled(function: Callable[[torch.Tensor], torch.Tensor]) -> Compilation:
    reset_compiler(needed=True)
    forget_compilations()
    torch.compile(function, dynamic=False, backend="eager")(torch.randn(5))
    return compilations()


def test_one_graph_is_one_compilation_and_the_tuning_of_kernels_at_their_first_run_is_no_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert compiled(whole) == Compilation(compilations=1, recompilations=0, graph_breaks=0)
    said = torch._dynamo.utils.get_compilation_metrics
    tuned = torch._dynamo.utils.CompilationMetrics(is_runtime=True, triton_kernel_compile_times_us="[]")
    monkeypatch.setattr(torch._dynamo.utils, "get_compilation_metrics", lambda: [*said(), tuned])
    assert compiled(whole) == Compilation(compilations=1, recompilations=0, graph_breaks=0)


def test_a_break_is_named_with_its_line() -> None:
    found = compiled(waits)
    assert (found.recompilations, found.graph_breaks) == (0, 1)
    line = waits.__code__.co_firstlineno + 1
    assert found.notes[0].startswith(f"waits breaks at test_compiled.py:{line}: ")
    assert "item()" in found.notes[0]


def test_other_shapes_are_compiled_again_and_why_is_said_without_a_stack() -> None:
    found = compiled(pieces)
    assert (found.compilations, found.recompilations, found.graph_breaks) == (3, 2, 1)
    assert found.notes[0].startswith("pieces stays Python, test_compiled.py:")
    assert [note for note in found.notes if note.startswith("piece again, ") and "expected 1, actual 2" in note]
    again = [note for note in compiled(by_length).notes if " again, " in note]
    assert again == ["beginning again, 1/0: length == 1"]
    assert compiled(whole).compilations == 1, "what was compiled before does not count"


def test_no_folder_of_a_machine_is_said_and_more_than_the_compiler_remembers_by_itself_is_counted() -> None:
    """As torch 2.11 says it; 2.13 names no file."""
    reason = (
        '7/1: ___check_obj_id(args[9].__code__, 1), type=<code object f at 0x1, file "/srv/own work/f.py", line 316>'
    )
    frame = torch._dynamo.utils.CompilationMetrics(co_name="g", recompile_reason=reason, has_guarded_code=True)
    forget_compilations()
    for _ in range(65):
        torch._dynamo.utils._compilation_metrics.append(frame)
    found = compilations()
    forget_compilations()
    assert found.compilations == 65 and found.notes[0] == f"g again, {reason.replace('/srv/own work/', '')}"


def test_torch_2_6_counts_the_same_without_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = dict(co_name="f", co_filename="f.py", co_firstlineno=1, has_guarded_code=True, restart_reasons=None)
    frames = [types.SimpleNamespace(**fields, compile_id=compile_id) for compile_id in ("0/0", "0/1", "1/0")]
    monkeypatch.setattr(torch._dynamo.utils, "get_compilation_metrics", lambda: frames)
    notes = ("f again, torch 2.6 does not say why",)
    assert compilations() == Compilation(compilations=3, recompilations=1, graph_breaks=0, notes=notes)


def test_the_limits_bind_a_call_that_is_the_first_to_load_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo, "config", torch._dynamo.config)
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if one is not stages._LIMITS])
    monkeypatch.delitem(sys.modules, "torch._dynamo.config")
    reset_compiler(needed=False)
    assert "torch._dynamo.config" not in sys.modules
    loaded = importlib.import_module("torch._dynamo.config")
    assert (loaded.recompile_limit, loaded.fail_on_recompile_limit_hit) == (64, True)
