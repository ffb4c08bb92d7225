"""What one call dispatches and allocates, exact on a CPU; counting loads no compiler, and is not compiled."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from pairbench.execute.worker.profile import count_ops, host_memory


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(256)


def test_operators_are_counted(x: torch.Tensor) -> None:
    assert count_ops(lambda: None) == (0, False)
    assert count_ops(lambda: x + x) == (1, False)
    assert count_ops(lambda: [x.sin() for _ in range(7)]) == (7, False)
    assert count_ops(lambda: x.view(16, 16).t()) == (2, False)


_SQUARE, _IMAGE, _TOKENS = torch.ones(4, 4), torch.ones(1, 2, 5, 5), torch.ones(1, 2, 8, 16)
_LSTM = torch.nn.LSTM(4, 4)
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


def test_those_of_a_backward_are_seen() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    loss = (x @ x).sum()
    assert count_ops(lambda: loss.backward(retain_graph=True))[1]


def test_the_peak_and_the_allocations(x: torch.Tensor) -> None:
    assert host_memory(lambda: None) == (0, 0)
    assert host_memory(lambda: x + x) == (1024, 1)
    assert host_memory(lambda: (x + x, x * x)) == (2048, 2)
    # The first result is freed before the third is made.
    assert host_memory(lambda: (x + x).sin().cos()) == (2048, 3)
    assert host_memory(lambda: x.add_(x)) == (0, 0)
    assert host_memory(lambda: x.view(16, 16)) == (0, 0)


def test_counts_do_not_change(x: torch.Tensor) -> None:
    assert len({(count_ops(lambda: x.softmax(0) @ x), host_memory(lambda: x.softmax(0) @ x)) for _ in range(3)}) == 1


_WATCHED = """
import sys, torch
from torch.profiler import ProfilerActivity
from pairbench.execute.worker.profile import count_ops
from pairbench.execute.worker.profile import raw_trace
x = torch.ones(3)
assert count_ops(lambda: (x + 1) * 2)[0] == 2
events = raw_trace(lambda: x + 1, (ProfilerActivity.CPU,), memory=True)
assert {"aten::add", "[memory]"} <= {event.get("name") for event in events}
assert "torch._dynamo" not in sys.modules
compiled = torch.compile(lambda x: (x + 1) * 2, backend="eager")
compiled(x)
assert "torch._dynamo" in sys.modules
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


def test_modes_may_be_nested() -> None:
    x = torch.ones(3)
    assert count_ops(lambda: count_ops(lambda: x + 1)) == (1, False)
