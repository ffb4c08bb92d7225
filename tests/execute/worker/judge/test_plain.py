"""Outputs as bytes: they arrive as they were, nothing of theirs is called on the way, and no description makes the judge read what is not there."""

import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.judge.plain import Refused, as_judged, clear, export, read, readable, refused, write
from pairbench.execute.worker.trees import leaves, same_bits


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@pytest.fixture
def file() -> Iterator[int]:
    made = os.memfd_create("outputs")
    yield made
    os.close(made)


def sent(outputs: Any, file: int) -> dict[str, Any]:
    return read(write(export(outputs), file), file)


@dataclass
class Data:
    x: torch.Tensor
    y: Any = None


@dataclass(slots=True)
class Slots:
    x: torch.Tensor


X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "outputs",
    [
        X,
        X.transpose(0, 2),
        X[:, 1:, ::2],
        X[0, 0, 0],
        torch.empty(0, 3),
        torch.empty(0, 3).as_strided((0, 3), (0, 1)),
        torch.ones(3, 1).expand(3, 5),
        X.to(torch.bfloat16),
        X.to(torch.complex128),
        X > 3,
        X.to(torch.int64)[1],
        torch.nn.Parameter(X),
        (X * 2).requires_grad_(),
        {"a": X / 0, "b": [X + 1, (None, 2, 0.5, float("inf"), "text", True, 1j)]},
        Pair(X, X + 1),
        OrderedDict(z=X, a=X + 1),
        X.topk(2),
    ],
)
def test_outputs_arrive_as_they_were(outputs: Any, file: int) -> None:
    found, expected = sent(outputs, file), dict(leaves(outputs))
    assert list(found) == list(expected) == list(as_judged(outputs))
    for path, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert same_bits(found[path], value)
        else:
            assert type(found[path]) is type(value) and found[path] == value


SPARSE = torch.tensor([[0.0, 2.0], [3.0, 0.0]])


@pytest.mark.parametrize(
    ("made", "paths"),
    [
        (lambda: Data(X), ["x", "y"]),
        (lambda: Slots(X), ["x"]),
        (SPARSE.to_sparse, ["sparse_coo"]),
        (lambda: [SPARSE.to_sparse_csr()], ["[0].sparse_csr"]),
        (SPARSE.to_mkldnn, ["mkldnn"]),
        (lambda: torch.quantize_per_tensor(SPARSE, 0.5, 0, torch.qint8), ["qint8"]),
        (lambda: torch.nested.nested_tensor([SPARSE[0], SPARSE[1]]), ["nested[0]", "nested[1]"]),
        (
            lambda: torch.nested.nested_tensor([SPARSE[0], SPARSE[1]], layout=torch.jagged),
            ["jagged.values", "jagged.offsets", "jagged.lengths"],
        ),
        (lambda: SPARSE.numpy()[:, ::-1], ["numpy"]),
        (lambda: np.float32(2), ["numpy"]),
        (lambda: torch.float32, [""]),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of kinds that are in beta or deprecated
def test_whatever_holds_values_is_read_by_them(made: Any, paths: list[str], file: int) -> None:
    output = made()
    found = sent(output, file)
    assert list(found) == paths == list(as_judged(output))
    assert not any(isinstance(leaf, Refused) for leaf in found.values())
    if paths[0].partition("[0].")[2] or paths == ["mkldnn"]:
        assert torch.equal(found[paths[0]], SPARSE)


def test_what_is_lazy_stays_so(file: int) -> None:
    value = torch.randn(3, dtype=torch.complex64)
    assert sent(value.conj(), file)[""].is_conj() and torch.equal(sent(value.conj(), file)[""], value.conj())
    imaginary = value.conj().imag
    assert sent(imaginary, file)[""].is_neg() and torch.equal(sent(imaginary, file)[""], imaginary)


def test_a_module_s_state_is_read_without_its_methods(file: int) -> None:
    class Hostile(torch.nn.BatchNorm1d):  # type: ignore[misc]
        def state_dict(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

    module = torch.nn.Sequential(torch.nn.Linear(2, 3), Hostile(3))
    plain = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    assert list(sent({"state": module}, file)) == [f"state.{name}" for name in plain.state_dict()]


@dataclass
class Computes:
    x: Any

    def __post_init__(self) -> None:
        self.__dict__.clear()

    def __getattr__(self, name: str) -> Any:
        assert name != "x"
        raise AttributeError(name)


class Pretends(type):
    @property
    def __dataclass_fields__(cls) -> Any:
        raise AssertionError


class Meta(metaclass=Pretends):
    pass


class Lazy(torch.Tensor):  # type: ignore[misc]
    pass


class Thing:
    def __repr__(self) -> str:
        raise AssertionError

    __str__ = __eq__ = __hash__ = __repr__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (X.as_subclass(Lazy), "a Lazy, expected a plain torch.Tensor"),
        (Computes(X), "a dataclass Computes, whose x is computed as it is read"),
        (Meta(), "a Meta, expected tensors"),
        (Thing(), "a Thing, expected tensors, numbers"),
        (object(), "an object, expected tensors"),
        ((value for value in [X]), "a generator, expected tensors"),
        (np.array(["text"]), "a NumPy array of no numbers"),
        (X.to("meta"), "on the device meta, where tensors have no values"),
        ({Thing.__name__: {object(): X}}, "a dict with a key of the type object"),
    ],
)
def test_what_cannot_be_read_as_data_is_refused_where_it_is(output: Any, why: str, file: int) -> None:
    found = sent([X, output], file)
    (refused,) = [value for value in found.values() if isinstance(value, Refused)]
    assert refused.why.startswith(why)
    with pytest.raises(DeclarationError, match=r"output \[1\]"):
        as_judged([X, output])


@pytest.mark.parametrize("name", ["detach", "double", "is_conj", "numel", "__torch_function__"])
def test_no_attribute_of_a_tensor_s_own_is_called(name: str, file: int) -> None:
    def compute(*_: Any, **__: Any) -> None:
        raise AssertionError

    output = torch.zeros(3)
    setattr(output, name, compute)
    assert f"an attribute {name!r} of its own" in sent(output, file)[""].why
    assert "output [0] is a tensor with an attribute" in str(refused(readable([output])))


def test_an_attribute_of_another_name_is_harmless(file: int) -> None:
    output = torch.ones(3)
    output.origin = "here"
    assert refused(readable(output)) is None and torch.equal(sent(output, file)[""], output)


def test_a_cycle_ends(file: int) -> None:
    outputs: list[Any] = [X]
    outputs.append(outputs)
    assert sent(outputs, file)[""].why == "nested too deeply"


FLOATS = ["tensor", "float32", [4], [4], 16, "cpu", False, False]


@pytest.mark.parametrize(
    "described",
    [
        "no JSON",
        "[1]",
        json.dumps([["", ["value", [1]]]]),
        json.dumps([["", ["unknown"]]]),
        json.dumps([["", ["tensor", "float32", [400], [400], 1600, "cpu", False, False]]]),
        json.dumps([["", ["tensor", "float32", [2], [4], 16, "cpu", False, False]]]),
        json.dumps([["", ["tensor", "float32", [-4], [-4], 16, "cpu", False, False]]]),
        json.dumps([["", ["tensor", "nn", [4], [4], 16, "cpu", False, False]]]),
        json.dumps([["", ["tensor", "float64", [4], [4], 16, "cpu", False, False]]]),
        json.dumps([["a", FLOATS], ["b", FLOATS]]),
    ],
)
def test_a_description_of_what_is_not_there_is_refused(described: str, file: int) -> None:
    os.pwrite(file, bytes(16), 0)
    assert torch.equal(read(json.dumps([["", FLOATS]]), file)[""], torch.zeros(4))
    with pytest.raises(DeclarationError, match="cannot be read"):
        read(described, file)


def test_a_copy_is_of_when_it_was_made_and_much_memory_is_given_back(file: int) -> None:
    output = torch.zeros(4)
    copied = export(output)
    output.fill_(7)
    assert torch.equal(read(write(copied, file), file)[""], torch.zeros(4))
    os.pwrite(file, b"x", 1 << 20)
    clear(file)
    assert os.fstat(file).st_size == (1 << 20) + 1
    os.ftruncate(file, 1 << 26)
    clear(file)
    assert os.fstat(file).st_size == 0
