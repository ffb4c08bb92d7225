import collections
import dataclasses
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairbench.errors import DeclarationError
from pairbench.execute.worker.trees import (
    as_outputs,
    changed_inputs,
    check_supported,
    copy_inputs,
    copy_tree,
    leaves,
    named_tensors,
    refill,
    restore,
    tensors,
    together_with,
    upcast_inputs,
)


class Box:
    """An object with an attribute, and a part that cannot be copied."""

    def __init__(self, t: Any) -> None:
        self.t = t
        self.steps = 0
        self.lock = threading.Lock()


class Slots:
    __slots__ = ("t",)

    def __init__(self, t: Any) -> None:
        self.t = t


@dataclasses.dataclass(frozen=True)
class Frozen:
    t: Any


@dataclasses.dataclass
class ModelOutput(collections.OrderedDict[str, Any]):
    """As those of transformers and diffusers: a dict with attributes."""

    t: Any = None

    def __post_init__(self) -> None:
        self["t"] = self.t


class Batch(collections.UserDict[str, Any]):
    @property
    def t(self) -> Any:
        return self.data["t"]


class Holder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, t: Any) -> None:
        super().__init__()
        self.t = t


OBJECTS: list[Callable[[Any], Any]] = [
    *(Box, Slots, Frozen, Holder),
    lambda t: ModelOutput(t=t),
    lambda t: Batch({"t": t}),
    lambda t: types.SimpleNamespace(t=t),
    lambda t: types.SimpleNamespace(t=collections.deque([t])),
    lambda t: {"t": [Box(t)]},
]


@pytest.mark.parametrize("made", OBJECTS)
def test_objects_are_copied_refilled_upcast_and_watched(made: Callable[[Any], Any]) -> None:
    tree, fresh = {"x": made(torch.zeros(3))}, {"x": made(torch.ones(3))}
    before = copy_inputs(tree)
    assert type(before["x"]) is type(tree["x"]) and before["x"] is not tree["x"]
    ((path, mine), *_), ((_, other), *_) = named_tensors(tree).items(), named_tensors(before).items()
    assert path.startswith("x") and mine.data_ptr() != other.data_ptr()
    assert refill(tree, fresh) and mine.tolist() == [1, 1, 1]
    assert changed_inputs(before, tree)[0] == path and changed_inputs(fresh, tree) == []
    assert {found.dtype for found in named_tensors(upcast_inputs(tree)).values()} == {torch.float64}


@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_an_object_holds_besides_tensors_is_copied_and_left_alone() -> None:
    tree = {"x": Holder([torch.eye(2).to_sparse(), np.array(["a", None]), iter([1]), torch.nn.Linear(2, 2)])}
    check_supported(tree)
    found, wide = copy_inputs(tree), upcast_inputs(tree)
    assert found["x"].t[0] is not tree["x"].t[0] and found["x"].t[0].to_dense().tolist() == [[1, 0], [0, 1]]
    assert list(named_tensors(found)) == ["x.t[3].weight", "x.t[3].bias"] and wide["x"].t[3].bias.dtype == torch.float64
    assert refill(found, tree) and changed_inputs(tree, found) == []


def test_arrays_are_copied_refilled_upcast_and_watched() -> None:
    tree = {"x": np.zeros(3, dtype=np.float32), "y": types.SimpleNamespace(a=np.arange(3))}
    found = copy_inputs(tree)
    assert type(found["x"]) is np.ndarray and changed_inputs(tree, found) == []
    found["y"].a[1] = 7
    found["x"][0] = 7
    assert changed_inputs(tree, found) == ["x", "y.a"]
    assert refill(found, tree) and found["x"].tolist() == [0, 0, 0] and found["y"].a.tolist() == [0, 1, 2]
    assert [upcast_inputs(tree)["x"].dtype, upcast_inputs(tree)["y"].a.dtype] == [np.float64, np.int64]


def test_an_object_that_cannot_be_copied_is_refused_by_name() -> None:
    class Never:
        def __init__(self) -> None:
            self.t = torch.zeros(2)

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is one alone")

    words = (
        r"inputs\(\) returned 'it' as something that cannot be copied \(TypeError: there is one alone\).*__deepcopy__"
    )
    with pytest.raises(DeclarationError, match=words):
        copy_inputs({"x": torch.zeros(2), "it": Never()})


def views(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    packed = torch.arange(2 * 3 * 4).reshape(2, 3, 4).to(dtype)
    return {name: packed[:, index] for index, name in enumerate("qkv")}


def tied() -> dict[str, Any]:
    inner, outer = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    outer.weight = inner.weight
    return {"w": inner.weight, "inner": inner, "outer": [outer], "flat": inner.weight.detach().view(-1)}


def bytes_and_words() -> dict[str, torch.Tensor]:
    words = torch.arange(8, dtype=torch.int32)
    return {"words": words[2:], "bytes": words.view(torch.uint8)[4:20]}


def places(tree: Any) -> list[tuple[int, int]]:
    """Return which storage each tensor lies in, counted, and where in it, from the first tensor in it."""
    found = named_tensors(tree).values()
    first: dict[int, int] = {}
    for tensor in found:
        storage = tensor.untyped_storage().data_ptr()
        first[storage] = min(first.get(storage, tensor.data_ptr()), tensor.data_ptr())
    storages = list(first)
    at = [(storages.index(tensor.untyped_storage().data_ptr()), tensor) for tensor in found]
    return [(index, tensor.data_ptr() - first[storages[index]]) for index, tensor in at]


@pytest.mark.parametrize("made", [views, tied, bytes_and_words, lambda: dict.fromkeys("ab", torch.ones(2))])
def test_what_shares_memory_shares_it_in_a_copy(made: Callable[[], dict[str, Any]]) -> None:
    tree = made()
    found = copy_inputs(tree)
    assert places(found) == places(tree) and changed_inputs(tree, found) == []
    assert not {one.untyped_storage().data_ptr() for one in named_tensors(tree).values()} & {
        one.untyped_storage().data_ptr() for one in named_tensors(found).values()
    }
    for tensor in named_tensors(found).values():
        tensor.detach().zero_()
    assert refill(found, tree) and changed_inputs(tree, found) == []


def test_tied_parameters_are_one_in_a_copy() -> None:
    found = copy_inputs(tied())
    assert found["w"] is found["inner"].weight is found["outer"][0].weight and found["w"].is_leaf


@pytest.mark.parametrize("made", [views, tied])
def test_an_upcast_shares_what_was_shared(made: Callable[[], dict[str, Any]]) -> None:
    tree = made()
    found = upcast_inputs(tree)
    assert places(found) == [(index, 2 * offset) for index, offset in places(tree)]
    mine, theirs = named_tensors(tree), named_tensors(found)
    assert all(torch.equal(theirs[path].float(), tensor) for path, tensor in mine.items())


def test_what_is_left_out_of_views_does_not_tie_other_inputs() -> None:
    tree = {**views(), "x": torch.ones(2), "m": torch.nn.Linear(2, 2)}
    assert together_with(tree, ["k"]) == ("k", "q", "v")
    assert together_with(tree, ["x"]) == ("x",) and together_with(tree, []) == ()


class Cache:
    """A cache that grows, as those of decoders do."""

    def __init__(self) -> None:
        self.length = 1
        self.layers = [torch.zeros(2), {"k": torch.zeros(2)}]

    def append(self) -> None:
        self.length += 1
        self.layers[0] = torch.cat([self.layers[0], torch.ones(1)])
        self.layers[1]["k"].add_(1)
        self.layers[1]["more"] = torch.ones(1)
        self.layers.append(self.length)
        self.seen = True


def test_a_state_that_grows_is_put_back() -> None:
    initial, state = {"cache": Cache()}, {"cache": Cache()}
    address = state["cache"].layers[1]["k"].data_ptr()
    state["cache"].append()
    assert restore(state, initial)
    found = state["cache"]
    assert as_outputs(found).keys() == as_outputs(initial["cache"]).keys() and not hasattr(found, "seen")
    assert changed_inputs(initial, state) == [] and found.layers[1]["k"].data_ptr() == address
    assert as_outputs(found)["layers[1].k"].tolist() == [0, 0] and as_outputs(found)["length"] == 1


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3])), min_size=1, max_size=4),
    st.booleans(),
)
def test_any_strides_survive_a_copy_and_a_refill(dimensions: list[tuple[int, int]], backwards: bool) -> None:
    """Each dimension with a gap of its own, so that no two elements share memory."""
    stride, step = [], 1
    for size, gap in dimensions:
        stride.append(step * gap)
        step *= gap * size
    order = -1 if backwards else 1
    tensor = torch.arange(float(step)).as_strided([size for size, _ in dimensions][::order], stride[::order])
    found, fresh = copy_inputs(tensor), copy_inputs(tensor)
    assert torch.equal(found, tensor) and found.stride() == tensor.stride()
    fresh.add_(1)
    assert refill(found, fresh) and torch.equal(found, tensor + 1)


@pytest.mark.parametrize(
    "other",
    [torch.zeros(4), torch.zeros(3, dtype=torch.float64), torch.zeros(6)[::2], [torch.zeros(3), torch.zeros(3)], 3],
    ids=["shape", "dtype", "strides", "count", "nothing"],
)
def test_refill_refuses_another_form_and_changes_nothing(other: Any) -> None:
    target = torch.full((3,), 5.0)
    assert not refill(target, other)
    assert target.tolist() == [5, 5, 5]


def test_refill_of_an_expanded_tensor() -> None:
    fresh = torch.arange(4.0)[:, None].expand(4, 5)
    target = copy_inputs(torch.zeros(4, 1).expand(4, 5))
    assert refill(target, fresh) and torch.equal(target, fresh)


def test_upcast_makes_floats_float64_in_a_copy_even_of_float64_and_leaves_the_rest() -> None:
    """An oracle that writes into its inputs must not spoil those of the others; without its gradients a backward goes unchecked."""
    tree: dict[str, Any] = {
        "half": torch.ones(2, dtype=torch.bfloat16, requires_grad=True),
        "double": torch.zeros(2, dtype=torch.float64),
        "single": torch.ones(2, dtype=torch.complex64),
        "complex": torch.zeros(2, dtype=torch.complex128),
        "index": torch.arange(2),
        "mask": torch.tensor([True]),
        "module": torch.nn.Linear(2, 2),
    }
    before, found = copy_inputs(tree), upcast_inputs({**tree, "name": "x"})
    assert found.pop("name") == "x"
    wide, wider = torch.float64, torch.complex128
    dtypes = [tensor.dtype for tensor in tensors(found)]
    assert dtypes == [wide, wide, wider, wider, torch.int64, torch.bool, wide, wide]
    assert [name for name in tree if name != "module" and found[name].requires_grad] == ["half"]
    for tensor in tensors(found):
        tensor.detach().add_(tensor != 7)
    assert all(map(torch.equal, tensors(tree), tensors(before)))


Pair = collections.namedtuple("Pair", ["left", "right"])  # noqa: PYI024 (what users write)


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
    "with_gradient": torch.zeros(3, requires_grad=True),
    "integers": torch.arange(6).reshape(2, 3)[:, ::2],
    "bool": torch.tensor([True, False, True])[::2],
}


@pytest.mark.parametrize("copied", [copy_tree, copy_inputs])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_keeps_values_shape_strides_and_dtype_and_shares_no_memory(copied: Any, name: str) -> None:
    layout = LAYOUTS[name]
    before, found = layout.clone(), copied(layout)
    assert torch.equal(found, layout) and found.is_leaf
    assert (found.shape, found.stride(), found.dtype) == (layout.shape, layout.stride(), layout.dtype)
    assert found.requires_grad == layout.requires_grad
    if found.numel():
        found.detach().as_strided((1,), (1,)).fill_(1)
        assert found.untyped_storage().data_ptr() != layout.untyped_storage().data_ptr()
        assert found.untyped_storage().nbytes() <= layout.untyped_storage().nbytes()  # also of what is expanded
    assert torch.equal(layout, before)


def test_containers_keep_their_types() -> None:
    tree = {"a": [torch.zeros(1), (torch.ones(1), 3)], "b": Pair(torch.zeros(2), "text"), "c": None}
    found = copy_tree(tree)
    assert type(found["a"]) is list and type(found["a"][1]) is tuple and type(found["b"]) is Pair
    assert found["a"][1][1] == 3 and found["b"].right == "text" and found["c"] is None
    assert [path for path, _ in leaves(found)] == [path for path, _ in leaves(tree)]
    assert [path for path, _ in leaves(found)] == ["a[0]", "a[1][0]", "a[1][1]", "b[0]", "b[1]", "c"]
