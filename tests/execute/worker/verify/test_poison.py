"""Memory that nobody wrote must not look like an answer."""

import contextlib

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from pairbench.execute.worker.profile import count_ops
from pairbench.execute.worker.verify.poison import PoisonEmpty, poison, poison_freed


@pytest.mark.parametrize(
    ("dtype", "holds"),
    [
        (torch.float32, lambda t: bool(t.isnan().all())),
        (torch.bfloat16, lambda t: bool(t.isnan().all())),
        (torch.complex64, lambda t: bool(t.isnan().all())),
        (torch.int64, lambda t: bool((t == 2**63 - 1).all())),
        (torch.uint8, lambda t: bool((t == 255).all())),
        (torch.bool, lambda t: bool(t.all())),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_poison(dtype: torch.dtype, holds: object) -> None:
    tensor = torch.zeros(3, dtype=dtype)
    poison(tensor)
    assert callable(holds) and holds(tensor)


def test_poison_of_a_tensor_that_needs_gradients() -> None:
    tensor = torch.zeros(3, requires_grad=True)
    poison(tensor)
    assert bool(tensor.isnan().all())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(4),
        lambda: torch.empty((4, 4), memory_format=torch.contiguous_format),
        lambda: torch.empty_like(torch.ones(4)),
        lambda: torch.empty_strided((4, 2), (1, 4)),
        lambda: torch.ones(4).new_empty(4),
        lambda: torch.ones(4).new_empty_strided((4,), (2,)),
    ],
    ids=["empty", "empty_2d", "like", "strided", "new", "new_strided"],
)
def test_what_is_empty_starts_as_nan(make: object) -> None:
    assert callable(make)
    with PoisonEmpty():
        assert bool(make().isnan().all())


def test_what_is_written_stays() -> None:
    with PoisonEmpty():
        out = torch.empty(4)
        torch.add(torch.ones(4), torch.ones(4), out=out)
        assert out.tolist() == [2] * 4
        assert (torch.ones(3) * 2).tolist() == [2] * 3
        assert torch.zeros(3).tolist() == [0] * 3
        assert torch.cat([torch.ones(1), torch.zeros(1)]).tolist() == [1, 0]
        assert torch.empty(2, device="meta").device.type == "meta"


def test_freed_blocks_are_left_poisoned_and_the_outputs_are_not() -> None:
    outputs = {"a": torch.ones(64), "b": [torch.ones(3, dtype=torch.int8), torch.empty(0)]}
    poison_freed(outputs)
    assert outputs["a"].tolist() == [1] * 64


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
    filled: list[int] = []
    monkeypatch.setattr(torch, "full", lambda shape, *_, **__: filled.append(shape[0]))
    poison_freed([torch.empty(100, dtype=torch.uint8), torch.empty((32 << 20) + 1, dtype=torch.uint8)], copies=2)
    assert filled == [100, 100]
    poison_freed(torch.empty(40 << 20, dtype=torch.uint8, device="meta"), copies=1)
    assert filled == [100, 100, 40 << 20], "a GPU's allocator keeps what it has"
