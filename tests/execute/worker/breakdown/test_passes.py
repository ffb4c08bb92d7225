import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.execute.protocol import BreakDownCase, Ended
from pairbench.execute.worker.breakdown import passes as module
from pairbench.execute.worker.breakdown.passes import break_down
from pairbench.execute.worker.calls import make_call
from pairbench.model.breakdown import Breakdown, SourceLine
from pairbench.model.operator import Operator
from pairbench.suite.modules import load_suite
from tests.commands import ROOT
from tests.execute.made import BASELINE, declare, job_of, new_heartbeat
from tests.execute.traces import Trace

CPU = torch.device("cpu")
SUITE = ROOT / "tests" / "suites" / "modules.py"
LINES = SUITE.read_text().splitlines()


def found(*names: str, operator: str = "network", trace: Path | None = None) -> dict[str, Any]:
    declared: Operator = load_suite(SUITE)[operator]
    job = replace(job_of(BreakDownCase, declared, *names, trace=trace), path=SUITE)
    return {answer.entry.implementation: answer for answer in break_down(job, declared, new_heartbeat(), CPU)}


@pytest.fixture(scope="module")
def both() -> dict[str, Breakdown]:
    """Return the breakdowns of three implementations."""
    return found("baseline", "casts", "waits")


def spots(breakdown: Breakdown, what: str) -> list[SourceLine]:
    return [spot for spot in breakdown.spots if spot.what == what]


def test_modules_are_counted_in_order_and_have_the_work_that_they_do_whose_parts_are_the_whole(
    both: dict[str, Breakdown],
) -> None:
    modules = both["baseline"].modules
    assert [module.name for module in modules[:3]] == ["net", "net.blocks.0", "net.blocks.0.norm"]
    assert len(modules) == 1 + 4 * 9
    assert {module.calls for module in modules} == {1}
    assert {module.class_name for module in modules} == {"Net", "Block", "Norm", "Linear", "Sequential", "GELU"}
    where = {(piece.ops[-1], piece.module) for piece in both["baseline"].pieces if piece.ops}
    assert ("rsqrt", "net.blocks.3.norm") in where and ("gelu", "net.blocks.0.ffn.1") in where
    assert ("addmm", "net.blocks.2.ffn.0") in where and ("addmm", "net.blocks.2.ffn") not in where
    assert ("rsqrt", "net.blocks.3") not in where
    for breakdown in both.values():
        parts = sum(piece.ns for piece in breakdown.pieces)
        # Entering and leaving the recording itself takes some microseconds, more on a busy machine.
        assert breakdown.whole_ns * 0.7 < parts <= breakdown.whole_ns * 1.001
        assert breakdown.idle is None and all(piece.known for piece in breakdown.pieces)


def test_the_planted_cast_is_named_by_its_line(both: dict[str, Breakdown]) -> None:
    line = next(number for number, text in enumerate(LINES, 1) if "the planted cast" in text)
    assert not spots(both["baseline"], "cast")
    casts = spots(both["casts"], "cast")
    assert [(spot.detail, spot.file, spot.line) for spot in casts] == [
        ("float32 -> float64", "modules.py", line),
        ("float64 -> float32", "modules.py", line),
    ]
    assert {spot.count for spot in casts} == {4} and {spot.function for spot in casts} == {"CastingNorm.forward"}
    assert casts[0].modules == tuple(f"net.blocks.{place}.norm" for place in range(4))
    assert casts[0].bytes == 4 * 8 * 16 * 8
    # And the time that the cast takes is known to be that line's.
    of = {piece.spot for piece in both["casts"].pieces if piece.spot is not None}
    assert {both["casts"].spots.index(spot) for spot in casts} <= of


def test_a_function_that_several_lines_call_is_told_by_its_callers(both: dict[str, Breakdown]) -> None:
    casts = spots(found("helped")["helped"], "cast")
    assert {spot.code for spot in casts} == {"return x.half()"} and [spot.count for spot in casts] == [4, 4]
    called = [LINES[int(spot.called_from.removeprefix("modules.py:")) - 1] for spot in casts]
    assert ["first caller" in called[0], "second caller" in called[1]] == [True, True]
    # The norm of each block is called by a module, and the write into the cache by one line.
    assert {spot.called_from for spot in both["baseline"].spots} == {""}


def test_the_planted_wait_is_named_on_a_cpu_too_and_a_write_into_the_state_is_no_mere_copy(
    both: dict[str, Breakdown],
) -> None:
    assert not spots(both["baseline"], "sync")
    (wait,) = spots(both["waits"], "sync")
    assert wait.op == "aten::_local_scalar_dense" and "the planted wait" in wait.code and wait.count == 4
    assert wait.modules == tuple(f"net.blocks.{place}" for place in range(4))
    (write,) = spots(both["baseline"], "cache")
    assert write.code == "cache[:, : x.shape[1]] = self.k(h)" and write.count == 4
    assert not spots(both["baseline"], "copy")


def test_without_modules_there_is_still_work_and_the_trace_can_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    breakdown = found("baseline", operator="plain", trace=file)["baseline"]
    assert breakdown.modules == ()
    assert {piece.module for piece in breakdown.pieces} == {""}
    assert ("softmax", "_softmax") in {piece.ops for piece in breakdown.pieces}
    assert "aten::_softmax" in {event.get("name") for event in json.loads(file.read_text())["traceEvents"]}


def test_what_raises_ends_and_the_others_go_on() -> None:
    answers = found("raises", "baseline")
    assert isinstance(answers["raises"], Ended) and "no such block" in answers["raises"].reason
    assert isinstance(answers["baseline"], Breakdown)


# -- the passes on a GPU, its traces made up --------------------------------------------------------------------------


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, *traces: Trace) -> Breakdown:
    """Break down a call as on a GPU, whose profiler would write these traces, one a pass."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4)).requires_grad_(False)
    declared = declare(baseline=lambda x, net: net(x) if x[0, 0].item() < 100 else x, constants=["net"])
    passes = iter(traces)

    def recorded(run: Any, _activities: Any, **_more: Any) -> Any:
        run()
        return next(passes).events

    monkeypatch.setattr(module, "raw_trace", recorded)
    monkeypatch.setattr(module, "synchronize", lambda device: None)
    monkeypatch.setattr(module, "run_sentinel", lambda: None)
    job = job_of(BreakDownCase, declared, "baseline", trace=None)
    call = make_call(declared, declared.baseline, "eager", {"x": torch.zeros(1, 4), "net": net})
    return module._Subject(job, call, torch.device("cuda")).breakdown(BASELINE)


def marked(trace: Trace) -> Trace:
    """Return the pass that says whose what is."""
    read = trace.op(
        "item",
        trace.op("_local_scalar_dense", trace.launch("Memcpy DtoH", 5, 1, category="gpu_memcpy"), trace.wait(20)),
    )
    product = trace.op("linear", trace.op("addmm", trace.launch("gemm", 40)))
    trace.call(read, trace.module("net", trace.module("net.0", product)))
    return sentinels(trace, 2)


def clean(trace: Trace, *durations: float, more: bool = False) -> Trace:
    """Return the pass for times: a call of each duration of its product."""
    for number, duration in enumerate(durations):
        at = trace.now = 100.0 * number
        read = [trace.launch("Memcpy DtoH", at + 10, 1, category="gpu_memcpy"), trace.wait(at + 12)]
        others = [trace.launch("unseen", at + 90, 1)] if more else []
        trace.call(trace.op("item", *read), trace.op("linear", trace.launch("gemm", at + 31, duration)), *others)
    return sentinels(trace, len(durations) + 1)


def sentinels(trace: Trace, number: int) -> Trace:
    for _ in range(number):
        trace.device("void spin_kernel(long)", trace.now + 1000)
    return trace


def test_on_a_gpu_one_pass_says_whose_and_another_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_a_gpu(monkeypatch, marked(Trace()), clean(Trace(), 30, 9, 20, 40, 50))
    of = {piece.kernel: piece for piece in found.pieces}
    assert (of["gemm"].module, of["gemm"].ops, of["gemm"].ns) == ("net.0", ("linear", "addmm"), 9_000)
    assert (of["gemm"].count, of["gemm"].launches, of["Memcpy DtoH"].launches) == (1, 1, 0)
    assert found.whole_ns == 10_000 and found.calls == 5 and found.notes == ()
    # The wait is over at 12, and the device has nothing to do from 11 to 31.
    assert found.idle and (found.idle.span_ns, found.idle.starved_ns, found.idle.after_sync_ns) == (
        30_000,
        20_000,
        20_000,
    )
    (spot,) = found.spots
    assert spot.what == "sync" and "item()" in spot.code
    (wait,) = found.waits
    assert (wait.name, wait.ops, wait.spot) == ("cudaStreamSynchronize", ("item", "_local_scalar_dense"), 0)
    assert wait.count == 1
    assert [(one.name, one.calls) for one in found.modules] == [("net", 1), ("net.0", 1)]


def test_on_a_gpu_what_one_pass_did_not_see_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_a_gpu(monkeypatch, marked(Trace()), clean(Trace(), 30, 9, 20, 40, 50, more=True))
    assert [piece.kernel for piece in found.pieces if not piece.known] == ["unseen"]
    assert found.notes == ("The call makes 3 kernels and copies, the one that shows their modules made 2.",)


def test_on_a_gpu_an_incomplete_trace_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="the profiler's trace is not complete: 4 of 5 calls"):
        on_a_gpu(monkeypatch, marked(Trace()), clean(Trace(), 30, 9, 20, 40))
