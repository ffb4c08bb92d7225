import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pairbench import Variant
from pairbench.errors import DeclarationError
from pairbench.execute.worker.calls import Make, as_dtype, build_inputs
from pairbench.execute.worker.trees import refill
from tests.execute.made import declare

CPU = torch.device("cpu")


@pytest.fixture
def make() -> Make:
    return Make(device=CPU, seed=7)


@pytest.mark.parametrize(
    "draw",
    [
        lambda make: make.normal(50),
        lambda make: make.normal(50, dtype="bfloat16", mean=3, scale=0.1),
        lambda make: make.normal(50, dtype="complex64"),
        lambda make: make.uniform(50, low=-1, high=2),
        lambda make: make.integers(50, low=-3, high=9),
    ],
)
def test_one_seed_one_value(draw: Any, make: Make) -> None:
    one, same, other = (draw(Make(device=CPU, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert not torch.equal(draw(make), draw(make)), "two draws differ"


def test_a_seed_means_nearly_the_same_in_every_dtype_but_float64_has_all_its_bits() -> None:
    plain, half, brain, double = (
        Make(device=CPU, seed=3).normal(100, dtype=dtype) for dtype in ("float32", "float16", "bfloat16", "float64")
    )
    assert torch.equal(half, plain.to(torch.float16)) and torch.equal(brain, plain.to(torch.bfloat16))
    assert not torch.equal(double, double.float().double())


def test_moments(make: Make) -> None:
    values = make.normal(20_000, mean=5.0, scale=0.5)
    assert abs(float(values.mean()) - 5) < 0.02 and abs(float(values.std()) - 0.5) < 0.02
    spread = make.uniform(20_000, low=-2.0, high=2.0)
    assert -2 <= float(spread.min()) < -1.99 and 1.99 < float(spread.max()) < 2
    whole = make.integers(20_000, low=-2, high=3)
    assert whole.unique().tolist() == [-2, -1, 0, 1, 2]


def test_rand_and_like(make: Make) -> None:
    assert torch.equal(Make(device=CPU, seed=7).rand(9, dtype="float64"), make.uniform(9, dtype="float64"))
    other = torch.zeros(3, 4, dtype=torch.bfloat16).t()
    found = make.like(torch.nn.Parameter(other), mean=5.0, scale=0.1)
    assert (found.shape, found.stride(), found.dtype) == (other.shape, other.stride(), other.dtype)
    assert not found.requires_grad and float(found.float().std()) > 0 and bool((found > 4).all())
    with pytest.raises(DeclarationError, match=r"make\.like was given a tensor of torch\.int64; make\.integers"):
        make.like(torch.arange(3))


def test_dtypes_have_names_and_an_unknown_one_is_named(make: Make) -> None:
    assert make.zeros(2, 3, dtype="int32").tolist() == [[0] * 3] * 2
    assert make.ones(2, dtype=torch.float16).dtype == torch.float16 and as_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(DeclarationError, match="dtype 'float31' is unknown, expected a torch dtype's name"):
        make.normal(2, dtype="float31")
    with pytest.raises(DeclarationError, match="dtype 'nn' is unknown"):
        make.zeros(2, dtype="nn")


def test_inputs_are_the_same_for_a_case_and_seed_and_differ_between_them() -> None:
    operator = declare(inputs=lambda make, n: {"x": make.normal(4)}, cases=[{"n": 4}, {"n": 8}])
    one, other = operator.cases
    first = build_inputs(operator, one, CPU, 0)["x"]
    assert torch.equal(first, build_inputs(operator, one, CPU, 0)["x"])
    assert not torch.equal(first, build_inputs(operator, one, CPU, 1)["x"])
    assert not torch.equal(first, build_inputs(operator, other, CPU, 0)["x"])


@pytest.mark.parametrize("value", [None, 3, [torch.zeros(1)], {3: torch.zeros(1)}])
def test_inputs_must_return_keyword_arguments(value: Any) -> None:
    refuse(r"inputs\(\) returned \w+, expected a dict of keyword arguments", inputs=lambda make, n: value)


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("constants", {"constants": ["weight"]}),
        ("state", {"state": ["weight"]}),
        ("consumes of 'v'", {"variants": {"v": Variant(lambda x: x * 2, consumes=["weight"])}}),
    ],
)
def test_named_inputs_must_be_there(what: str, changes: dict[str, Any]) -> None:
    refuse(rf"{what} names 'weight', but inputs\(\) returns only x", **changes)


def refuse(words: str, **changes: Any) -> None:
    operator = declare(**changes)
    with pytest.raises(DeclarationError, match=words):
        build_inputs(operator, operator.cases[0], CPU, 0)


def test_what_is_made_in_inference_mode_can_be_refilled() -> None:
    def inputs(make: Make, n: int) -> dict[str, Any]:
        with torch.inference_mode():
            return {"x": make.normal(n) + 0}

    operator = declare(inputs=inputs)
    found, fresh = (build_inputs(operator, operator.cases[0], CPU, seed) for seed in (0, 1))
    assert refill(found, fresh) and torch.equal(found["x"], fresh["x"])


def test_what_is_made_without_make_is_the_same_in_every_process() -> None:
    """The weights of an nn.Linear come from torch's own generator, which every process seeds by chance."""

    def inputs(make: Make, n: int) -> dict[str, Any]:
        with make.device:
            there = torch.rand(n)
        more = torch.tensor([random.random(), float(np.random.random_sample())])  # noqa: NPY002
        return {"x": make.ones(n), "layer": torch.nn.Linear(n, n), "there": there, "more": more}

    operator = declare(inputs=inputs)
    torch.manual_seed(1)
    first = build_inputs(operator, operator.cases[0], CPU, 0)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    second = build_inputs(operator, operator.cases[0], CPU, 0)
    other = build_inputs(operator, operator.cases[0], CPU, 1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first["there"], second["there"]) and not torch.equal(first["there"], other["there"])
    assert torch.equal(first["layer"].weight, second["layer"].weight) and torch.equal(first["more"], second["more"])
    assert not torch.equal(first["layer"].weight, other["layer"].weight)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (torch.Generator, r"'x' as a torch\.Generator, which moves with every call.*pass them as a tensor"),
        (lambda: [np.random.default_rng(1)], r"'x\[0\]' as a numpy\.Generator, which moves with every call"),
        (lambda: random.Random(1), r"'x' as a random\.Random, which moves with every call"),
        (lambda: iter([torch.ones(2)]), r"'x' as a list_iterator, which every call moves on; pass a list"),
        (lambda: np.array(["a", None]), r"'x' as a NumPy ndarray of object, expected an array of numbers"),
        (lambda: np.broadcast_to(np.ones(1), 4), r"'x' as a NumPy array that is read-only"),
        (lambda: np.ones(4)[::-1], r"'x' as a NumPy array that is .* a view which torch cannot have"),
        (lambda: torch.eye(3).to_sparse(), r"'x' as a torch\.sparse_coo tensor, expected dense ones"),
        (lambda: {"deep": [torch.eye(3).to_sparse_csr()]}, r"'x\.deep\[0\]' as a torch\.sparse_csr tensor"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_cannot_be_an_input_is_refused_with_what_to_do(made: Callable[[], Any], words: str) -> None:
    refuse(words, inputs=lambda make, n: {"x": made()})
