import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from pairbench.execute.worker.profile import count_ops
from pairbench.execute.worker.verify.case import PoisonEmpty, poison, poison_freed


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (torch.zeros(3), math.nan),
        (torch.zeros(3, requires_grad=True), math.nan),
        (torch.zeros(3, dtype=torch.bfloat16), math.nan),
        (torch.zeros(3, dtype=torch.complex64), math.nan),
        (torch.zeros(3, dtype=torch.int64), 2**63 - 1),
        (torch.zeros(3, dtype=torch.uint8), 255),
        (torch.zeros(3, dtype=torch.bool), True),
    ],
)
def test_poison(tensor: torch.Tensor, value: float) -> None:
    poison(tensor)
    assert bool(tensor.isnan().all() if math.isnan(value) else (tensor == value).all())


@pytest.mark.parametrize(
    "make",
    [
        lambda ones: torch.empty(4),
        lambda ones: torch.empty((4, 4), memory_format=torch.contiguous_format),
        torch.empty_like,
        lambda ones: torch.empty_strided((4, 2), (1, 4)),
        lambda ones: ones.new_empty(4),
        lambda ones: ones.new_empty_strided((4,), (2,)),
    ],
)
def test_what_is_empty_starts_as_nan_and_what_is_written_stays(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    ones = torch.ones(4)
    with PoisonEmpty():
        assert bool(make(ones).isnan().all())
        out = torch.empty(4)
        torch.add(ones, ones, out=out)
        assert out.tolist() == (ones * 2).tolist() == [2] * 4
        assert torch.cat([torch.ones(1), torch.zeros(1)]).tolist() == [1, 0]
        assert torch.empty(2, device="meta").device.type == "meta"


def test_what_was_compiled_runs_compiled() -> None:
    runs = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        def run(*inputs: torch.Tensor) -> object:
            runs.append(inputs)
            return graph.forward(*inputs)

        return run

    double = torch.compile(lambda x: x * 2, backend=backend, dynamic=False)
    for inside in (False, True, False):
        with PoisonEmpty() if inside else contextlib.nullcontext():
            assert double(torch.ones(3)).tolist() == [2] * 3
    assert len(runs) == 3


def test_operators_of_higher_order_are_let_through() -> None:
    q = torch.ones(1, 1, 128, 16)
    flex = torch.compile(flex_attention, backend="eager", dynamic=False)
    with PoisonEmpty():
        assert torch.equal(flex(q, q, q), q)
    count_ops(lambda: flex(q, q, q))


def test_what_the_host_hands_back_to_the_kernel_is_not_poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take seconds for a video, and none of it would be seen again."""
    outputs = {"a": torch.ones(64), "b": [torch.ones(3, dtype=torch.int8), torch.empty(0)]}
    poison_freed(outputs)
    assert outputs["a"].tolist() == [1] * 64, "outputs are not poisoned"
    filled: list[int] = []
    monkeypatch.setattr(torch, "full", lambda shape, *_, **__: filled.append(shape[0]))
    poison_freed([torch.empty(100, dtype=torch.uint8), torch.empty((32 << 20) + 1, dtype=torch.uint8)], copies=2)
    assert filled == [100, 100]
    poison_freed(torch.empty(40 << 20, dtype=torch.uint8, device="meta"), copies=1)
    assert filled == [100, 100, 40 << 20], "a GPU's allocator keeps what it has"
