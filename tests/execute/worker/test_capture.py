"""The recorder of `pairbench capture`, in this process: what it sees of a program, and that the program does not notice."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench import capture
from pairbench.execute.worker.capture import Recorder, device_times
from tests.suites.programs import net


def calls_of(run: Callable[[], object], **options: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the recorded calls of a function by the last part of their names."""
    with capture(**options) as recorder:
        run()
    found: dict[str, list[dict[str, Any]]] = {}
    for call in recorder.seen().calls:
        found.setdefault(call["name"].replace(":", ".").rpartition(".")[2], []).append(call)
    return found


@pytest.mark.parametrize("way", [net.train, net.infer])
def test_results_are_the_same_to_the_bit(way: Callable[[int], float]) -> None:
    plain = way(3)
    with capture():
        assert way(3) == plain
    assert way(3) == plain


def test_calls_are_counted_also_where_they_are_not_looked_at() -> None:
    found = calls_of(lambda: net.infer(70))
    assert sum(call["count"] for call in found["Linear"]) == 3 * 70
    assert [call["count"] for call in found["scaled_dot_product_attention"]] == [3 * 70]
    assert [call["count"] for call in found["doubled"]] == [70]


def test_memory_goes_by_signatures_and_not_by_calls() -> None:
    few, many = calls_of(lambda: net.infer(4)), calls_of(lambda: net.infer(64))
    assert {name: len(calls) for name, calls in few.items()} == {name: len(calls) for name, calls in many.items()}


def test_what_makes_the_model_and_its_inputs_is_left_out() -> None:
    assert not {"randn", "kaiming_uniform_", "ones", "uniform_"} & {*calls_of(lambda: net.infer(2))}


def test_modules_know_their_arguments() -> None:
    (linear,) = calls_of(lambda: net.infer(2))["Linear"]
    assert (linear["made"][0], linear["made"][1]["in_features"], linear["made"][1]["out_features"]) == ("dict", 32, 96)
    assert "bias" in linear["made"][2]  # as its class has it by default


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_writes_into_inputs_are_seen(mode: Callable[[], Any]) -> None:
    def run() -> None:
        with mode():
            torch.nn.ReLU(inplace=True)(torch.randn(8))
            torch.nn.Tanh()(torch.randn(8))

    found = calls_of(run)
    assert (found["ReLU"][0]["writes"], found["Tanh"][0]["writes"]) == ([0], [])


def test_random_calls_and_optimizers_are_seen_as_such() -> None:
    found = calls_of(lambda: net.train(3))
    assert found["dropout"][0]["random"]
    assert (found["AdamW"][0]["kind"], found["AdamW"][0]["count"]) == ("optimizer", 3)
    assert not found["Linear"][0]["random"]
    assert {call["graph"] for call in found["Linear"]} == {True}


def test_autocast_is_seen() -> None:
    (linear,) = calls_of(lambda: net.infer(2))["Linear"]
    assert linear["autocast"] == ["cpu", "bfloat16"]


def test_a_class_can_be_one_call_with_the_modules_that_it_calls() -> None:
    found = calls_of(lambda: net.infer(5), whole=["Net"])
    assert [call["count"] for call in found["Net"]] == [5]
    assert not {"Linear", "Norm", "scaled_dot_product_attention"} & {*found}


def test_compiled_code_is_one_call_and_stays_compiled() -> None:
    def run() -> None:
        model, function = (
            torch.compile(torch.nn.Linear(4, 4), backend="eager"),
            torch.compile(torch.sin, backend="eager"),
        )
        with torch.no_grad():
            for _ in range(3):
                function(model(torch.ones(2, 4)))

    torch._dynamo.reset()
    found = calls_of(run)
    assert [(call["count"], call["compiled"]) for call in found["Linear"]] == [(3, True)]
    assert [(call["count"], call["compiled"]) for call in found["sin"]] == [(3, True)]


def test_modes_of_the_program_stay() -> None:
    with capture(), torch.device("meta"):
        made = torch.nn.Linear(4, 4)
        assert made(torch.ones(2, 4)).device.type == "meta"
        assert torch.ones(2).device.type == "meta"


def test_an_exception_of_the_program_is_its_own_and_recording_goes_on() -> None:
    with capture() as recorder:
        with pytest.raises(RuntimeError):
            torch.nn.Linear(4, 4)(torch.ones(2, 3))
        torch.nn.Tanh()(torch.ones(2))
    assert any(call["name"].endswith("Tanh") and call["count"] == 1 for call in recorder.seen().calls)


def test_a_class_that_cannot_be_described_harms_no_program() -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc]
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return False

        def parameters(self, recurse: bool = True) -> Any:
            raise OSError("not now")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    with capture() as recorder:
        assert Odd()(torch.ones(1)).item() == 2
    assert any("not now" in why or "unhashable" in why for why in recorder.seen().left_out)


def test_too_many_signatures_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbench.execute.worker.capture._MOST", 2)
    recorder, inputs = Recorder(), [torch.ones(size) for size in range(1, 6)]
    with recorder.watching():
        for x in inputs:
            torch.nn.Tanh()(x)
    assert len(recorder.seen().calls) == 2
    assert recorder.seen().left_out == {"calls of further signatures": 3}


def event(name: str, start: int, ns: int, *, device: bool = False, **more: int) -> SimpleNamespace:
    """Return an event of the profiler; times in ns."""
    kind = torch.autograd.DeviceType.CUDA if device else torch.autograd.DeviceType.CPU
    values = {"name": name, "start_ns": start, "duration_ns": ns, "device_type": kind, "start_thread_id": 1}
    values |= {"correlation_id": 0, "sequence_nr": -1, **more}
    return SimpleNamespace(**{key: lambda value=value: value for key, value in values.items()})


def test_kernels_belong_to_the_call_that_launched_them_and_those_of_a_backward_to_its_forward() -> None:
    times, busy = device_times(
        [
            event("pairbench call abc", 0, 100),
            event("aten::mm", 10, 50, sequence_nr=7),
            event("cudaLaunchKernel", 20, 5, correlation_id=1),
            event("cudaLaunchKernel", 200, 5, correlation_id=2),
            event("autograd::engine::evaluate_function: MmBackward0", 300, 50, sequence_nr=7, start_thread_id=2),
            event("cudaLaunchKernel", 310, 5, correlation_id=3, start_thread_id=2),
            event("gemm", 500, 40, device=True, correlation_id=1),
            event("fill", 600, 3, device=True, correlation_id=2),
            event("gemm", 700, 80, device=True, correlation_id=3),
            event("pairbench call abc", 500, 40, device=True),
        ]
    )
    assert times == {"abc": 40, "abc backward": 80, "kernel fill": 3}
    assert busy == 123
