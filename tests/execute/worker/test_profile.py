import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker import profile as module
from pairbench.execute.worker.profile import (
    TraceError,
    count_events,
    count_launches,
    count_ops,
    digest_of_code,
    host_memory,
    split_events,
    with_compiled,
)
from pairbench.model.breakdown import KernelBuild
from tests.execute.traces import Event
from tests.execute.traces import Trace as Recorded


class Trace(Recorded):
    """A trace that begins with a sentinel."""

    def __init__(self) -> None:
        super().__init__()
        self.events.append({"ph": "M", "name": "process_name"})
        self.sentinel()

    def _wait(self) -> "Trace":
        """Let the harness wait for what was launched."""
        self.now += 100
        self.host("cuda_runtime", "cudaDeviceSynchronize")
        return self

    def sentinel(self) -> "Trace":
        self.launch("void at::cuda::spin_kernel(long)", self.now)()
        return self._wait()

    def call(  # type: ignore[override]
        self, *kernels: str, graph: int = 0, syncs: int = 0, memcpy: int | None = None, memset: bool = False
    ) -> "Trace":
        """Add one call: what the host calls in it, what the device does for it, and the harness's wait for that."""
        for name in kernels:
            self.launch(name, self.now, 2.5)()
        if graph:
            self.launch("node", self.now, 2.5, nodes=graph)()
        for _ in range(syncs):
            self.host("cuda_runtime", "cudaStreamSynchronize")
        if memcpy is not None:
            self.device("Memcpy DtoD", self.now, category="gpu_memcpy", bytes=memcpy)
        if memset:
            self.device("Memset (Device)", self.now, category="gpu_memset")
        return self._wait()


def counts(trace: Trace, calls: int) -> module.Counts:
    (events,) = split_events(trace.events, (calls,))
    return count_events(events, calls)


def test_what_a_call_does_on_the_device_is_counted_and_nothing_outside_the_sentinels() -> None:
    found = counts(Trace().call("add", "mul", "add").sentinel(), 1)
    assert found.kernels == {"add": 2, "mul": 1}
    assert found.kernel_ns == {"add": 5000, "mul": 2500}
    assert found.numbers == {"launches": 3, "graph_launches": 0, "syncs": 0}
    found = counts(Trace().call(graph=7).sentinel(), 1)
    assert found.kernels == {"node": 7} and found.numbers == {"launches": 0, "graph_launches": 1, "syncs": 0}
    found = counts(Trace().call("add", memcpy=4096, memset=True, syncs=2).call(memcpy=4, syncs=1).sentinel(), 2)
    assert (found.numbers["memcpys"], found.numbers["memcpy_bytes"]) == (2, 4100)
    assert (found.numbers["memsets"], found.numbers["syncs"], found.kernels.total()) == (1, 3, 1)
    assert counts(Trace().call().sentinel(), 1).exact() == {**dict.fromkeys(module._NUMBERS, 0), "kernels": ()}
    trace = Trace().call("add").sentinel()
    trace.device("late", trace.now, correlation=99)
    trace.device("Memset (Device)", trace.now, category="gpu_memset")
    assert counts(trace, 1).exact() == counts(Trace().call("add").sentinel(), 1).exact()


@pytest.mark.parametrize(
    ("lost", "calls", "words"),
    [
        ("the first sentinel", 1, "1 of 2 sentinel kernels are in the profiler's trace"),
        ("the second sentinel", 1, "1 of 2 sentinel kernels are in the profiler's trace"),
        ("a sentinel's launch", 1, "the launch of a sentinel kernel is not in the profiler's trace"),
        ("a call", 2, "2 of the harness's own 3 synchronisations are in the profiler's trace"),
        ("all", 1, "0 of 2 sentinel kernels"),
    ],
)
def test_an_incomplete_trace_is_told(lost: str, calls: int, words: str) -> None:
    events = Trace().call("add").sentinel().events
    first, second = (place for place, event in enumerate(events) if "spin_kernel" in str(event["name"]))
    gone = {"the first sentinel": [first], "the second sentinel": [second], "a sentinel's launch": [1], "a call": []}
    kept = [event for place, event in enumerate(events) if place not in gone.get(lost, range(len(events)))]
    with pytest.raises(TraceError, match=words):
        count_events(split_events(kept, (calls,))[0], calls)


def counted(monkeypatch: pytest.MonkeyPatch, *traces: Trace) -> Any:
    """Count launches with these for the traces of 1, 2 and 4 calls."""
    found = [counts(trace.sentinel(), calls) for trace, calls in zip(traces, module.CALLS, strict=True)]
    monkeypatch.setattr(module, "_trace", lambda run, groups: [found[module.CALLS.index(calls)] for calls in groups])
    return count_launches(lambda: None)


def test_what_comes_before_each_call_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be all of a backward's forward, and the copy that restores an input: each call is between sentinels of its own."""
    trace = Trace()

    def recorded(run: Any, _activities: Any) -> list[Event]:
        trace.__init__()  # type: ignore[misc]
        del trace.events[1:]
        run()
        return trace.events

    monkeypatch.setattr(module, "run_sentinel", trace.sentinel)
    monkeypatch.setattr(module, "raw_trace", recorded)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    order = list[str]()

    def run() -> None:
        order.append("run")
        trace.call("add", memcpy=8)

    def reset() -> None:
        order.append("reset")
        trace.call("copy", "forward", memcpy=512, syncs=1)

    found = count_launches(run, reset)
    assert order == ["reset", "run"] * sum(module.CALLS)
    assert (found.status, found.reason) == ("exact", None)
    assert (found.launches, found.kernels, found.memcpy_bytes, found.syncs) == (1, 1, 8, 0)
    assert [(kernel.name, kernel.total_ns) for kernel in found.kernel_counts or ()] == [("add", 2500)]


def several(count: int, *kernels: str, **more: Any) -> Trace:
    trace = Trace()
    for _ in range(count):
        trace.call(*kernels, **more)
    return trace


def test_linear_counts_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted(monkeypatch, *(several(n, "add", "mul", memcpy=16, memset=True, graph=3) for n in (1, 2, 4)))
    assert found.status == "exact" and found.reason is None
    assert (found.launches, found.kernels, found.graph_launches) == (3, 5, 1)
    assert (found.memcpys, found.memcpy_bytes, found.memsets, found.syncs) == (1, 16, 1, 0)
    assert {kernel.name: (kernel.count, kernel.total_ns) for kernel in found.kernel_counts} == {
        "add": (1, 2500),
        "mul": (1, 2500),
        "node": (3, 7500),
    }


def test_counts_that_are_not_linear_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a call that caches: the second one launches nothing; another kernel of the same number is not linear either."""
    found = counted(monkeypatch, several(1, "add"), Trace().call("add").call(), several(4, "add"))
    assert found.status == "unreliable" and found.launches is None and found.kernels is None
    assert "2 calls do not give 2 times the counts of one" in found.reason
    assert "launches 1 instead of 2" in found.reason
    found = counted(monkeypatch, several(1, "add"), Trace().call("add").call("mul"), several(4, "add"))
    assert found.status == "unreliable"


def test_an_incomplete_trace_is_unreliable(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(run: object, groups: object) -> Any:
        raise TraceError("1 of 2 sentinel kernels are in the profiler's trace")

    monkeypatch.setattr(module, "_trace", lost)
    found = count_launches(lambda: None)
    assert (found.status, found.kernels) == ("unreliable", None) and "sentinel" in str(found.reason)


def test_operators_the_peak_and_the_allocations_are_counted() -> None:
    x = torch.ones(256)
    assert count_ops(lambda: None) == (0, False)
    assert count_ops(lambda: x + x) == (1, False)
    assert count_ops(lambda: [x.sin() for _ in range(7)]) == (7, False)
    assert count_ops(lambda: x.view(16, 16).t()) == (2, False)
    assert count_ops(lambda: count_ops(lambda: x + 1)) == (1, False), "modes may be nested"
    assert host_memory(lambda: None) == (0, 0)
    assert host_memory(lambda: x + x) == (1024, 1)
    assert host_memory(lambda: (x + x, x * x)) == (2048, 2)
    # The first result is freed before the third is made.
    assert host_memory(lambda: (x + x).sin().cos()) == (2048, 3)
    assert host_memory(lambda: x.add_(x)) == (0, 0)
    assert host_memory(lambda: x.view(16, 16)) == (0, 0)


_SQUARE, _IMAGE, _TOKENS = torch.ones(4, 4), torch.ones(1, 2, 5, 5), torch.ones(1, 2, 8, 16)
_LSTM = torch.nn.LSTM(4, 4)
_LEAF = torch.ones(4, 4, requires_grad=True)
_LOSS = (_LEAF @ _LEAF).sum()
_PRODUCTS: dict[str, Callable[[], object]] = {
    "mm": lambda: _SQUARE @ _SQUARE,
    "mv": lambda: _SQUARE @ _SQUARE[0],
    "dot": lambda: _SQUARE[0] @ _SQUARE[0],
    "bmm": lambda: torch.einsum("bij,bjk->bik", _SQUARE[None], _SQUARE[None]),
    "linear": lambda: torch.nn.functional.linear(_SQUARE, _SQUARE, _SQUARE[0]),
    "linear, without gradients": lambda: torch.inference_mode()(torch.nn.functional.linear)(_SQUARE, _SQUARE),
    "convolution": lambda: torch.nn.functional.conv2d(_IMAGE, _IMAGE),
    "transposed": lambda: torch.nn.functional.conv_transpose2d(_IMAGE, torch.ones(2, 3, 2, 2)),
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(_TOKENS, _TOKENS, _TOKENS),
    "recurrent": lambda: _LSTM(_SQUARE),
    "complex": lambda: _SQUARE.to(torch.complex64) @ _SQUARE.to(torch.complex64),
    "backward of a product": lambda: _LOSS.backward(retain_graph=True),
    "backward alone": lambda: torch.ops.aten.convolution_backward(
        torch.ones(1, 1, 1, 1), _IMAGE, _IMAGE, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]
    ),
}
_NONE: dict[str, Callable[[], object]] = {
    "bfloat16": lambda: _SQUARE.bfloat16() @ _SQUARE.bfloat16(),
    "float64": lambda: _SQUARE.double() @ _SQUARE.double(),
    "attention of bfloat16": lambda: torch.nn.functional.scaled_dot_product_attention(*[_TOKENS.bfloat16()] * 3),
    "casts and interpolation": lambda: torch.nn.functional.interpolate(_IMAGE.half().float(), 9, mode="bilinear"),
    "sums of products": lambda: torch.nn.functional.layer_norm((_SQUARE[:, :, None] * _SQUARE).sum(1), (4,)),
}


@pytest.mark.parametrize("name", [*_PRODUCTS, *_NONE])
def test_products_and_convolutions_of_float32_are_seen(name: str) -> None:
    assert count_ops({**_PRODUCTS, **_NONE}[name])[1] is (name in _PRODUCTS)


_WATCHED = """
import sys, torch
from pairbench.execute.worker.stages import reset_compiler
from torch.profiler import ProfilerActivity
from pairbench.execute.worker.profile import count_ops
from pairbench.execute.worker.profile import raw_trace
reset_compiler(needed=False)
x = torch.ones(3)
assert count_ops(lambda: (x + 1) * 2)[0] == 2
events = raw_trace(lambda: x + 1, (ProfilerActivity.CPU,), memory=True)
assert {"aten::add", "[memory]"} <= {event.get("name") for event in events}
assert "torch._dynamo" not in sys.modules
compiled = torch.compile(lambda x: (x + 1) * 2, backend="eager")
compiled(x)
assert torch._dynamo.config.recompile_limit == 64 and torch._dynamo.config.fail_on_recompile_limit_hit
from torch._dynamo.utils import counters
before = counters["frames"]["total"]
assert count_ops(lambda: (x + 1) * 2)[0] == 2
assert count_ops(lambda: compiled(x))[0] == 2
assert counters["frames"]["total"] == before, "what watches was compiled, or the call was compiled anew"
"""


@pytest.mark.slow
def test_watching_loads_no_compiler_and_is_not_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", _WATCHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def elf(code: bytes, lines: bytes) -> bytes:
    """Return a small ELF file with two sections, as ptxas writes a cubin."""
    names = b"\0.text._k\0.debug_line\0.shstrtab\0"
    parts = {b".text._k": code, b".debug_line": lines, b".shstrtab": names}
    body, headers = b"\0" * 64, b"\0" * 64
    for name, part in parts.items():
        headers += struct.pack("<IIQQQQ", names.index(name), 1, 0, 0, len(body), len(part)) + b"\0" * 24
        body += part
    header = (
        b"\x7fELF".ljust(0x28, b"\0") + struct.pack("<Q", len(body)).ljust(18, b"\0") + struct.pack("<3H", 64, 4, 3)
    )
    return header + body[64:] + headers


def test_the_digest_of_a_kernel_is_of_its_code_alone() -> None:
    first = digest_of_code(elf(b"\x01\x02", b"a.py, line 3"))
    assert first and first == digest_of_code(elf(b"\x01\x02", b"/elsewhere/a.py, line 12"))
    assert first != digest_of_code(elf(b"\x01\x03", b"a.py, line 3"))
    assert digest_of_code(b"no ELF file") is None
    assert digest_of_code(elf(b"", b"")) is None


def test_kernels_have_registers_shared_memory_and_warps() -> None:
    trace = Trace().call("k", "k", "other")
    about = {"registers per thread": 40, "shared memory": 512, "block": [128, 1, 1]}
    for event in trace.events:
        if event.get("cat") == "kernel" and event["name"] == "k":
            event["args"] |= about
    trace.sentinel()
    assert counts(trace, 1).builds == {("k", 40, 512, 4): 2, ("other", None, None, None): 1}


def test_what_triton_knows_of_a_kernel_is_added_to_its_build() -> None:
    known = SimpleNamespace(
        name="k", n_regs=40, n_spills=6, metadata=SimpleNamespace(num_stages=3), asm={"cubin": elf(b"\x01", b"")}
    )
    build = KernelBuild(name="k", registers=40)
    found = with_compiled(build, [known])
    assert (found.spills, found.stages, found.code) == (6, 3, digest_of_code(elf(b"\x01", b"")))
    assert found.words == "40 registers, 6 spills, 3 stages"
    assert with_compiled(replace(build, name="other"), [known]) == replace(build, name="other")
    assert with_compiled(replace(build, registers=64), [known]) == replace(build, registers=64)
    of_the_compiler = SimpleNamespace(name="k", n_regs=40, n_spills=None, metadata=SimpleNamespace(num_stages=1))
    assert with_compiled(build, [of_the_compiler]) == replace(build, stages=1)
