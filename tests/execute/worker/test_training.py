import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench import REASSOCIATED, Operator, Tolerance
from pairbench.errors import DeclarationError
from pairbench.execute.worker import training
from pairbench.execute.worker.calls import Call, build_inputs, make_call
from pairbench.execute.worker.describe.operators import hashes_of
from pairbench.execute.worker.training import arguments
from pairbench.execute.worker.trees import leaves, refill
from pairbench.execute.worker.verify.audit import audit_automatic, audit_declared
from pairbench.execute.worker.verify.case import make_expected, verify_entry
from pairbench.model.case import OUTPUT_GRADIENTS
from pairbench.model.outcome import Status
from pairbench.suite.modules import load_suite
from tests.execute.made import declare, entry

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
SUITE = load_suite(ROOT / "tests/suites/training.py")
# Loaded by the tests of them alone: each process of pytest collects all tests.
TRAINING = [
    path for path in sorted((ROOT / "suites/train").glob("*.py")) if not path.name.startswith(("kernels", "train"))
]


def at(
    operator: Operator, direction: str, seed: int = 0, like: dict[str, Any] | None = None, **axes: object
) -> tuple[Operator, dict[str, Any]]:
    """Return an operator at the first case of a direction, if it has any, and its inputs."""
    wanted = {"direction": direction, **axes} if operator.gradients else axes
    case = next(case for case in operator.cases if wanted.items() <= dict(case.axes).items())
    return operator.at(case), build_inputs(operator.at(case), case, CPU, seed, like)


def call_of(operator: Operator, direction: str, implementation: str = "baseline", mode: str = "eager") -> Call:
    directed, inputs = at(operator, direction)
    return make_call(directed, directed.implementations[implementation], mode, inputs)


def status_of(implementation: str, direction: str, operator: Operator = SUITE["wrong"]) -> tuple[Status, str]:
    references = tuple(make_expected(*at(operator, direction, seed)) for seed in (0, 1))
    directed, _ = at(operator, direction)
    try:
        found = verify_entry(directed, entry(implementation), references, CPU)
    except DeclarationError as error:
        return Status.FAILED, str(error)
    return found.status, str(found.reason)


@pytest.mark.parametrize("name", ["right", "modules"])
def test_gradients_are_those_of_autograd(name: str) -> None:
    operator = SUITE[name]
    call = call_of(operator, "fwd_bwd")
    found = call.observe()
    assert call.training
    outputs = operator.baseline.function(**call.training.kwargs)
    given = call.shared[OUTPUT_GRADIENTS]
    roots = dict(leaves(outputs))
    targets = list(call.training.targets.values())
    right = torch.autograd.grad([roots[path] for path in given], targets, list(given.values()))
    for target, gradient in zip(operator.gradients, right, strict=True):
        torch.testing.assert_close(found[f"gradient of {target}"], gradient)
    torch.testing.assert_close(found["output"], outputs)
    assert all(not tensor.requires_grad for _, tensor in leaves(found))


def test_backward_goes_over_one_graph_until_the_values_change() -> None:
    operator = SUITE["right"]
    forwards = []

    def counted(x: torch.Tensor, weight: torch.Tensor) -> Any:
        forwards.append(1)
        return operator.baseline.function(x=x, weight=weight)

    directed, inputs = at(operator, "bwd")
    call = make_call(directed, type(operator.baseline)(counted), "eager", inputs)
    first, again = call.observe(), call.observe()
    assert len(forwards) == 1 and torch.equal(first["gradient of x"], again["gradient of x"])
    _, fresh = at(operator, "bwd", seed=5)
    refill(call.shared, fresh)
    changed, right = call.observe(), make_call(directed, operator.baseline, "eager", fresh).observe()
    assert len(forwards) == 2
    torch.testing.assert_close(changed["gradient of x"], right["gradient of x"])


def test_a_captured_backward_is_behind_a_forward_that_is_replayed_for_new_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[tuple[Any, Any, Any]]()

    def capture_behind(first: Any, call: Any, _pool: Any, *, ready: Any, **_: Any) -> None:
        made.append((first, call, ready))

    monkeypatch.setattr(training, "capture_behind", capture_behind)
    call = call_of(SUITE["right"], "bwd")
    call.capture()
    ((first, run, ready),) = made
    assert first.__self__ is not call.training  # nodes of a graph remember the stream in which they were made
    replays = list[int]()

    def replay() -> None:
        replays.append(1)
        first()

    ready(replay)
    ready(replay)
    assert len(replays) == 1
    _, fresh = at(SUITE["right"], "bwd")
    fresh["x"] = fresh["x"].detach() * 2
    refill(call.shared, fresh)
    ready(replay)
    assert len(replays) == 2
    torch.testing.assert_close(run()["gradient of x"], call.observe()["gradient of x"])


def test_gradients_of_outputs_are_seeded_and_never_one_and_for_further_inputs_no_baseline_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = SUITE["right"]
    directed, first = at(operator, "bwd")
    _, second = at(operator, "bwd", seed=1)
    assert not (first[OUTPUT_GRADIENTS][""] == 1).any()
    assert OUTPUT_GRADIENTS not in arguments(first) and directed.direction == "bwd"
    assert OUTPUT_GRADIENTS not in at(operator, "fwd")[1]
    assert torch.equal(first[OUTPUT_GRADIENTS][""], at(operator, "bwd")[1][OUTPUT_GRADIENTS][""])
    monkeypatch.setattr("pairbench.execute.worker.calls.make_call", None)
    _, again = at(operator, "bwd", seed=1, like=first)
    assert torch.equal(again[OUTPUT_GRADIENTS][""], second[OUTPUT_GRADIENTS][""])


@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
@pytest.mark.parametrize(
    ("operator", "implementation"),
    [*itertools.product(["right"], ["library", "function", "in_place"]), ("modules", "by_hand")],
)  # the last has several outputs, and an input that is used twice
def test_what_is_right_is_verified(operator: str, implementation: str, direction: str) -> None:
    assert status_of(implementation, direction, SUITE[operator])[0] is Status.VERIFIED


def product(**changes: Any) -> Operator:
    """Return a product of two inputs with a gradient each."""
    return declare(
        lambda x, weight: x * weight,
        baseline=lambda x, weight: x * weight,
        inputs=lambda make, n: {"x": make.normal(n), "weight": make.normal(n)},
        gradients=["x", "weight"],
        **changes,
    )


@pytest.mark.parametrize(
    ("implementation", "direction", "sentence"),
    [
        ("detached", "fwd", "detached from 'x' or 'weight'"),
        ("detached", "bwd", "detached from 'x' or 'weight'"),
        ("one_way", "bwd", "has no backward: You must implement"),
        ("one_way", "fwd_bwd", "has no backward: You must implement"),
        ("forgetful", "bwd", "its gradient of 'weight' is None"),
        ("accumulates", "fwd", "calls backward() itself, which adds to x.grad"),
        ("accumulates", "bwd", "calls backward() itself, which adds to x.grad"),
        ("lazy", "bwd", "gradient of x is a Strange, expected a plain torch.Tensor"),
        ("greedy", "bwd", "changes its input 'output gradient'"),
        ("greedy", "fwd_bwd", "changes its input 'output gradient'"),
        ("overwrites", "bwd", "its second backward over one graph"),
        ("unscaled", "bwd", "gradient of x differs from the baseline's"),
        ("unscaled", "fwd_bwd", "gradient of x differs from the baseline's"),
    ],
)
def test_mistakes_get_sentences(implementation: str, direction: str, sentence: str) -> None:
    status, reason = status_of(implementation, direction)
    assert status in (Status.FAILED, Status.MISMATCHED) and sentence in reason


def test_a_baseline_without_room_for_its_forward_is_out_of_memory_and_nothing_else() -> None:
    def too_large(x: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    operator = declare(too_large, baseline=too_large, gradients=["x"])
    with pytest.raises(torch.OutOfMemoryError):
        at(operator, "bwd")


def test_grad_that_accumulates_is_named_where_no_gradients_are_declared() -> None:
    status, reason = status_of("baseline", "", SUITE["undeclared"])
    assert status is Status.MISMATCHED
    assert "x.grad, to which each call adds: declare gradients=('x',)" in reason


@pytest.mark.parametrize(
    ("operator", "impostors"),
    [
        (
            SUITE["modules"],
            {"zeros as gradient of x", "not scaled by the output's gradient as gradient of module.bias"},
        ),
        (product(), {"the gradient of weight as gradient of x"}),
    ],
    ids=["modules", "product"],
)
def test_spoilt_gradients_are_rejected(operator: Operator, impostors: set[str]) -> None:
    directed, inputs = at(operator, "bwd")
    results = audit_automatic(directed, make_expected(directed, inputs))
    assert impostors <= {result.impostor for result in results} and all(result.rejected for result in results)


def test_declared_impostors_are_tried_where_outputs_and_gradients_are_judged() -> None:
    for direction in ("fwd", "bwd", "fwd_bwd"):
        directed, inputs = at(SUITE["right"], direction)
        result = audit_declared(directed, "unscaled", (make_expected(directed, inputs),), CPU)
        assert (result.tried, result.rejected) == (direction == "fwd_bwd",) * 2


def test_gradients_have_tolerances_of_their_own() -> None:
    own = {"weight": Tolerance(rtol=0.5), "float32": Tolerance(rtol=0.25)}
    operator = product(tolerance=REASSOCIATED, gradient_tolerance=own)
    assert operator.tolerance_for("float32") == operator.tolerance_for("float32", "output") == REASSOCIATED["float32"]
    assert operator.tolerance_for("float32", "gradient of weight") == Tolerance(rtol=0.5)
    assert operator.tolerance_for("float32", "output.gradient of x") == Tolerance(rtol=0.25)


def test_what_forward_saves_is_counted_once_and_without_inputs() -> None:
    saved = {name: call_of(SUITE["right"], "fwd", name).training.saved_bytes() for name in ("function", "in_place")}  # type: ignore[union-attr]
    assert saved["function"] == 6 * 4  # a number for each row
    assert saved["in_place"] > 6 * 32 * 4


def test_calls_share_no_leaf_and_no_grad() -> None:
    directed, inputs = at(SUITE["modules"], "bwd")
    one, other = (make_call(directed, directed.baseline, "eager", inputs) for _ in range(2))
    assert one.training and other.training
    for name, target in one.training.targets.items():
        assert target is not other.training.targets[name]
        assert target.data_ptr() == other.training.targets[name].data_ptr()
    assert one.training.kwargs["module"] is not inputs["module"] is one.kwargs["module"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("y", "gradients names 'y', but inputs\\(\\) returns only x, index"),
        ("index", "gradients names 'index', which is of torch.int64"),
    ],
)
def test_names_that_cannot_have_a_gradient(name: str, message: str) -> None:
    inputs = lambda make, n: {"x": make.normal(n), "index": make.integers(n, high=n)}  # noqa: E731
    with pytest.raises(DeclarationError, match=message):
        at(declare(inputs=inputs, gradients=[name]), "fwd")


def test_a_hash_knows_gradients_and_nothing_else_changed() -> None:
    path = ROOT / "tests/suites/training.py"

    def declared(**changes: Any) -> str:
        f: Callable[..., Any] = SUITE["right"].baseline.function
        case = [dict(tokens=6, hidden=32)]
        op = Operator("op", baseline=f, variants={"same": f}, inputs=SUITE["right"].inputs, cases=case, **changes)
        return hashes_of(path, op)[0]

    hashes = {declared(), declared(gradients=["x"]), declared(gradients=["x", "weight"])}
    assert len(hashes | {declared(gradients=["x"], gradient_tolerance=REASSOCIATED)}) == 4


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_the_oracle_agrees_with_finite_differences(path: Path) -> None:
    """Of each training operator: torch's gradcheck of the baseline in float64, and the oracle beside what it has checked."""
    for operator in load_suite(path).values():
        compare_with_finite_differences(operator)


def compare_with_finite_differences(operator: Operator) -> None:
    directed, inputs = at(operator, "bwd", dtype="float64")
    call = make_call(directed, directed.baseline, "eager", inputs)
    assert call.training is not None
    names, targets = zip(*call.training.targets.items(), strict=True)
    kwargs, given = call.training.kwargs, inputs[OUTPUT_GRADIENTS]

    def weighed(*values: torch.Tensor) -> torch.Tensor:
        outputs = dict(leaves(operator.baseline.function(**{**kwargs, **dict(zip(names, values, strict=True))})))
        return torch.stack([(outputs[path] * given[path]).sum() for path in given]).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.autograd.gradcheck(weighed, targets)
    oracle: Any = make_expected(directed, inputs).oracle
    for target, gradient in zip(names, torch.autograd.grad(weighed(*targets), targets), strict=True):
        torch.testing.assert_close(oracle[f"gradient of {target}"], gradient)
