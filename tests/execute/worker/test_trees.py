"""Trees of tensors: a copy has the strides, gaps and aliases of the original, and no memory of it."""

from collections import namedtuple
from typing import Any

import pytest
import torch

from pairbench.execute.worker.trees import copy_inputs, copy_tree, leaves, same_bits

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 (what users write)


LAYOUTS = {
    "dense": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "columns_left_out": torch.arange(12.0).reshape(3, 4)[:, :3],
    "every_other": torch.arange(12.0)[::2],
    "offset": torch.arange(12.0)[5:9],
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 4),
    "expanded": torch.arange(4.0)[:, None].expand(4, 5),
    "expanded_scalar": torch.tensor(2.0).expand(3, 3),
    "expanded_with_gaps": torch.arange(8.0)[::2, None].expand(4, 5),
    "integers": torch.arange(6).reshape(2, 3)[:, ::2],
    "bool": torch.tensor([True, False, True])[::2],
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> torch.Tensor:
    found: torch.Tensor = LAYOUTS[request.param]
    return found


@pytest.mark.parametrize("copied", [copy_tree, copy_inputs])
def test_a_copy_keeps_values_shape_strides_and_dtype(copied: Any, layout: torch.Tensor) -> None:
    found = copied(layout)
    assert torch.equal(found, layout)
    assert (found.shape, found.stride(), found.dtype) == (layout.shape, layout.stride(), layout.dtype)


@pytest.mark.parametrize("copied", [copy_tree, copy_inputs])
def test_a_copy_shares_no_memory(copied: Any, layout: torch.Tensor) -> None:
    before = layout.clone()
    found = copied(layout)
    if found.numel():
        found.as_strided((1,), (1,)).fill_(1)
        assert found.untyped_storage().data_ptr() != layout.untyped_storage().data_ptr()
    assert torch.equal(layout, before)


def test_a_copy_of_an_expanded_tensor_is_as_small() -> None:
    found = copy_tree(torch.zeros(1).expand(1 << 20))
    assert found.untyped_storage().nbytes() == 4


def test_requires_grad_is_kept() -> None:
    found = copy_tree(torch.zeros(3, requires_grad=True))
    assert found.requires_grad and found.is_leaf


def test_containers_keep_their_types() -> None:
    tree = {"a": [torch.zeros(1), (torch.ones(1), 3)], "b": Pair(torch.zeros(2), "text"), "c": None}
    found = copy_tree(tree)
    assert type(found["a"]) is list and type(found["a"][1]) is tuple and type(found["b"]) is Pair
    assert found["a"][1][1] == 3 and found["b"].right == "text" and found["c"] is None
    assert [path for path, _ in leaves(found)] == [path for path, _ in leaves(tree)]
    assert [path for path, _ in leaves(found)] == ["a[0]", "a[1][0]", "a[1][1]", "b[0]", "b[1]", "c"]


@pytest.mark.parametrize("copied", [copy_tree, copy_inputs])
def test_a_module_is_copied_with_its_parameters_and_buffers(copied: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    found = copied({"module": module})["module"]
    paths = [path for path, _ in leaves({"module": found})]
    assert "module.0.weight" in paths and "module.1.running_mean" in paths
    with torch.no_grad():
        found[0].weight.zero_()
    assert module[0].weight.abs().sum() > 0


def test_bits() -> None:
    nan = float("nan")
    assert same_bits(torch.tensor([1.0, nan]), torch.tensor([1.0, nan]))
    assert not same_bits(torch.tensor([1.0, nan]), torch.tensor([nan, 1.0]))
    assert not same_bits(torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]))
    assert not same_bits(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
    assert not same_bits(torch.tensor([1]), torch.tensor([2]))
    assert not same_bits(torch.zeros(2), torch.zeros(1))
    assert same_bits(torch.tensor([complex(nan, 1)]), torch.tensor([complex(nan, 1)]))
