"""Trees of tensors: a copy has the strides, gaps and aliases of the original, and no memory of it."""

import copy
from collections import namedtuple
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairbench.execute.worker.trees import changed_inputs, copy_tree, leaves, refill, same_bits, tensors, upcast_tree

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 (what users write)


def strided(shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return torch.arange(float(extent)).as_strided(shape, stride)


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


def test_a_copy_keeps_values_shape_strides_and_dtype(layout: torch.Tensor) -> None:
    found = copy_tree(layout)
    assert torch.equal(found, layout)
    assert (found.shape, found.stride(), found.dtype) == (layout.shape, layout.stride(), layout.dtype)


def test_a_copy_shares_no_memory(layout: torch.Tensor) -> None:
    before = layout.clone()
    found = copy_tree(layout)
    if found.numel():
        found.as_strided((1,), (1,)).fill_(1)
        assert found.untyped_storage().data_ptr() != layout.untyped_storage().data_ptr()
    assert torch.equal(layout, before)


def test_a_copy_of_an_expanded_tensor_is_as_small() -> None:
    found = copy_tree(torch.zeros(1).expand(1 << 20))
    assert found.untyped_storage().nbytes() == 4


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3])), min_size=1, max_size=4),
    st.booleans(),
)
def test_any_strides_survive_a_copy_and_a_refill(dimensions: list[tuple[int, int]], backwards: bool) -> None:
    """Each dimension with a gap of its own, so that no two elements share memory."""
    stride, step = [], 1
    for size, gap in dimensions:
        step *= gap
        stride.append(step)
        step *= size
    order = -1 if backwards else 1
    tensor = strided(tuple(size for size, _ in dimensions)[::order], tuple(stride)[::order])
    found = copy_tree(tensor)
    assert torch.equal(found, tensor) and found.stride() == tensor.stride()
    fresh = copy_tree(tensor)
    fresh.add_(1)
    assert refill(found, fresh)
    assert torch.equal(found, tensor + 1)


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


def test_a_module_is_copied_with_its_parameters_and_buffers() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    found = copy_tree({"module": module})["module"]
    paths = [path for path, _ in leaves({"module": found})]
    assert "module.0.weight" in paths and "module.1.running_mean" in paths
    with torch.no_grad():
        found[0].weight.zero_()
    assert module[0].weight.abs().sum() > 0


def test_refill_writes_at_the_same_addresses() -> None:
    tree: dict[str, Any] = {"x": torch.zeros(3), "more": [torch.zeros(2, 2)], "module": torch.nn.Linear(2, 2)}
    fresh = copy.deepcopy(tree)
    for tensor in tensors(fresh):
        tensor.fill_(7)
    addresses = [tensor.data_ptr() for tensor in tensors(tree)]
    assert refill(tree, fresh)
    assert [tensor.data_ptr() for tensor in tensors(tree)] == addresses
    assert all(bool((tensor == 7).all()) for tensor in tensors(tree))


def test_refill_of_an_expanded_tensor() -> None:
    target = copy_tree(torch.zeros(4, 1).expand(4, 5))
    assert refill(target, torch.arange(4.0)[:, None].expand(4, 5))
    assert torch.equal(target, torch.arange(4.0)[:, None].expand(4, 5))


def test_refill_of_a_parameter_that_needs_gradients() -> None:
    target = torch.zeros(3, requires_grad=True)
    assert refill(target, torch.ones(3))
    assert target.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "other",
    [torch.zeros(4), torch.zeros(3, dtype=torch.float64), torch.zeros(6)[::2], [torch.zeros(3), torch.zeros(3)], 3],
    ids=["shape", "dtype", "strides", "count", "nothing"],
)
def test_refill_refuses_another_form_and_changes_nothing(other: Any) -> None:
    target = torch.full((3,), 5.0)
    assert not refill(target, other)
    assert target.tolist() == [5, 5, 5]


def test_upcast_makes_floats_float64_and_leaves_the_rest() -> None:
    tree = {
        "half": torch.ones(2, dtype=torch.bfloat16),
        "complex": torch.ones(2, dtype=torch.complex64),
        "index": torch.arange(2),
        "mask": torch.tensor([True]),
        "module": torch.nn.Linear(2, 2),
        "name": "x",
    }
    found = upcast_tree(tree)
    dtypes = {path: leaf.dtype for path, leaf in leaves(found) if isinstance(leaf, torch.Tensor)}
    assert dtypes == {
        "half": torch.float64,
        "complex": torch.complex128,
        "index": torch.int64,
        "mask": torch.bool,
        "module.weight": torch.float64,
        "module.bias": torch.float64,
    }
    assert found["name"] == "x"
    assert tree["module"].weight.dtype == torch.float32


def test_upcast_is_a_copy_even_of_float64_and_of_integers() -> None:
    """An oracle that writes into its inputs must not spoil the ones that everybody is judged by."""
    tree = {"double": torch.zeros(2, dtype=torch.float64), "index": torch.arange(2), "complex": torch.zeros(2) + 0j}
    tree["complex"] = tree["complex"].to(torch.complex128)
    for tensor in tensors(upcast_tree(tree)):
        tensor.add_(5)
    assert tree["double"].tolist() == [0, 0] and tree["index"].tolist() == [0, 1] and tree["complex"].tolist() == [0, 0]


def test_bits() -> None:
    nan = float("nan")
    assert same_bits(torch.tensor([1.0, nan]), torch.tensor([1.0, nan]))
    assert not same_bits(torch.tensor([1.0, nan]), torch.tensor([nan, 1.0]))
    assert not same_bits(torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]))
    assert not same_bits(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
    assert not same_bits(torch.tensor([1]), torch.tensor([2]))
    assert not same_bits(torch.zeros(2), torch.zeros(1))
    assert same_bits(torch.tensor([complex(nan, 1)]), torch.tensor([complex(nan, 1)]))


def test_a_changed_input_is_named_by_its_path() -> None:
    before = {"x": torch.zeros(2), "cache": [torch.zeros(2), {"key": torch.zeros(2)}]}
    after = copy_tree(before)
    assert changed_inputs(before, after) == []
    after["cache"][1]["key"][0] = 1
    assert changed_inputs(before, after) == ["cache[1].key"]


def test_upcast_keeps_what_requires_a_gradient() -> None:
    """Without it the oracle of a backward pass fails, and accuracy goes unchecked."""
    found = upcast_tree(
        {"x": torch.ones(2, requires_grad=True), "y": torch.ones(2), "z": torch.ones(2, dtype=torch.float64)}
    )
    assert [tensor.requires_grad for tensor in tensors(found)] == [True, False, False]
