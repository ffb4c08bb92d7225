from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench import Operator, Variant
from pairbench.errors import DeclarationError
from pairbench.execute.protocol import Heartbeat, ProfileCase, VerifyCase
from pairbench.execute.worker.calls import SEEDS, Call, build_inputs, make_call
from pairbench.execute.worker.stages import run_stage
from pairbench.execute.worker.timing.timers import CudaTimer
from pairbench.execute.worker.timing.values import Values
from pairbench.execute.worker.trees import copy_tree, refill, tensors
from pairbench.model.outcome import Profile, Status, Verification
from pairbench.suite.modules import load_suite
from tests.execute.made import CONFIG, declare, job_of

CPU = torch.device("cpu")
SUITE = load_suite(Path(__file__).parents[2] / "suites/consuming.py")
NAMES = {"swiglu": ("in_place", "undeclared"), "cross_entropy": ("in_logits", "undeclared")}


def at(operator: Operator, direction: str = "") -> tuple[Operator, Any]:
    case = next(case for case in operator.cases if dict(case.axes).get("direction", "") == direction)
    return operator.at(case), case


def made(operator: Operator, implementation: str, direction: str = "") -> tuple[Call, dict[str, Any]]:
    """Return a call, and inputs like its own."""
    directed, case = at(operator, direction)
    inputs = build_inputs(directed, case, CPU, SEEDS[0])
    return make_call(directed, directed.implementations[implementation], "eager", inputs), copy_tree(inputs)


def results(operator: Operator, direction: str, heartbeat: Heartbeat, kind: Callable[..., Any], **more: Any) -> Any:
    directed, case = at(operator, direction)
    return list(run_stage(replace(job_of(kind, directed, **more), case=case), directed, CONFIG, heartbeat))


def verified(name: str, direction: str, heartbeat: Heartbeat) -> dict[str, tuple[Status, str]]:
    asked = {"automatic_impostors": True, "declared_impostors": tuple(SUITE[name].impostors)}
    found = results(SUITE[name], direction, heartbeat, VerifyCase, **asked)
    return {one.entry.implementation: (one.status, str(one.reason or "")) for one in found if hasattr(one, "entry")}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["bwd", "fwd_bwd"])
def test_a_call_finds_its_inputs_as_they_were_however_often_it_is_made(name: str, direction: str) -> None:
    call, before = made(SUITE[name], NAMES[name][0], direction)
    addresses = [tensor.data_ptr() for tensor in tensors(call.kwargs)]
    first = copy_tree(call.observe())
    assert call.overwritten() == set(call.variant.consumes)
    for _ in range(3):
        assert all(map(torch.equal, tensors(call.observe()), tensors(first)))
    assert [tensor.data_ptr() for tensor in tensors(call.kwargs)] == addresses
    assert all(map(torch.equal, tensors(call.shared), tensors(before)))  # what the others are given


def test_new_values_reach_a_call_that_consumes_them_also_while_a_case_is_timed() -> None:
    operator, case = at(SUITE["scaled"])
    call, _ = made(SUITE["scaled"], "same")
    call.observe()
    fresh = build_inputs(operator, case, CPU, 7)
    assert refill(call.shared, fresh) and call.refill(fresh)
    assert torch.equal(call.observe(), fresh["a"] * 0.5 + fresh["b"])
    values = Values.of(operator, case, CPU, call.shared, 0.0)
    for index in (1, 2, 0):
        values.put(index)
        call.reset()
        assert torch.equal(call.run(), values.sets[index]["a"] * 0.5 + values.sets[index]["b"])


def test_a_list_that_is_emptied_is_no_value_that_is_overwritten() -> None:
    operator = declare(
        Variant(lambda xs: xs.pop(0) + xs[0], consumes=["xs"]),
        baseline=lambda xs: xs[0] + xs[1],
        inputs=lambda make, n: {"xs": [make.normal(n), make.normal(n)]},
    )
    call, _ = made(operator, "v")
    call.observe()
    assert call.overwritten() == {"xs"}
    with pytest.raises(DeclarationError, match="changes the shape or the structure of an input that it consumes"):
        call.observe()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
def test_what_is_declared_is_judged_as_ever(name: str, direction: str, heartbeat: Heartbeat) -> None:
    declared, undeclared = NAMES[name]
    found = verified(name, direction, heartbeat)
    assert found["baseline"] == found[declared] == (Status.VERIFIED, "")
    if (name, direction) == ("swiglu", "fwd"):  # which overwrites nothing
        assert found[undeclared] == (Status.VERIFIED, "")
        return
    names = SUITE[name].variants[declared].consumes
    status, reason = found[undeclared]
    assert status is Status.MISMATCHED and f"declare consumes={names!r} if its caller may lose" in reason
    if (
        name == "cross_entropy"
    ):  # a name that no call writes is told, but not of a forward alone: the backward may write it
        told = "" if direction == "fwd" else "consumes names 'target', which no call writes"
        assert found["too_much"] == (Status.VERIFIED, told)


def test_a_backward_may_overwrite_the_output_s_gradient_and_what_was_saved(heartbeat: Heartbeat) -> None:
    found = verified("square", "bwd", heartbeat)
    assert found["in_gradient"] == (Status.VERIFIED, "")
    assert found["undeclared"][0] is found["half"][0] is Status.MISMATCHED
    assert "declare consumes=('output gradient',)" in found["undeclared"][1]
    assert "its second backward over one graph" in found["half"][1] and "('saved tensors',)" in found["half"][1]


@pytest.mark.parametrize(("consumed", "built"), [("output gradient", 1), ("saved tensors", 3), ("a", 3)])
def test_a_graph_is_built_again_only_where_it_may_be_overwritten(consumed: str, built: int) -> None:
    forwards = list[int]()

    def counted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        forwards.append(1)
        return a * b

    directed, case = at(SUITE["square"], "bwd")
    call = make_call(directed, Variant(counted, consumes=[consumed]), "eager", build_inputs(directed, case, CPU, 0))
    for _ in range(3):
        call.observe()
    assert len(forwards) == built


def test_what_is_overwritten_is_explained_where_it_was_saved_and_where_torch_refuses_it() -> None:
    class Doubled(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> Any:
            ctx.save_for_backward(a * 2)
            return a.square()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return ctx.saved_tensors[0].mul_(gradients[0])

    directed, case = at(SUITE["square"], "bwd")
    inputs = build_inputs(directed, case, CPU, 0)
    variants = [Variant(lambda a, b: Doubled.apply(a) + b, consumes=names) for names in ([], ["saved tensors"])]
    once, again = (make_call(directed, one, "eager", inputs) for one in variants)
    once.observe()
    with pytest.raises(DeclarationError, match=r"overwrites what was saved .* declare consumes=\('saved tensors',\)"):
        once.run()
    assert torch.equal(again.observe()["gradient of a"], copy_tree(again.observe())["gradient of a"])
    directed, case = at(SUITE["swiglu"], "fwd")
    variant = Variant(lambda a, b: a.mul_(b), consumes=["a"])
    call = make_call(directed, variant, "eager", build_inputs(directed, case, CPU, 0))
    with pytest.raises(DeclarationError, match="writes in place to an input that needs a gradient"):
        call.observe()


def test_a_baseline_may_overwrite_its_inputs_and_an_impostor_too(heartbeat: Heartbeat) -> None:
    found = verified("scaled", "", heartbeat)
    assert found["baseline"] == found["apart"] == found["same"] == (Status.VERIFIED, "")
    assert found["wrong"][0] is Status.MISMATCHED and "differs from the baseline's in 64 of 64" in found["wrong"][1]
    assert "declare consumes=('a',)" in found["undeclared"][1]


def test_it_is_profiled_as_it_is_called(heartbeat: Heartbeat) -> None:
    """The copy that restores is no part of a call's operators and memory."""
    found = {one.entry.implementation: one for one in results(SUITE["scaled"], "", heartbeat, ProfileCase)}
    for name, ops, values in (("baseline", 2, 0), ("same", 3, 1), ("apart", 2, 2)):
        assert isinstance(found[name], Profile)
        assert (found[name].ops, found[name].peak_bytes // (4 * 16 * 4)) == (ops, values), name


def test_the_host_s_time_is_taken_of_calls_that_find_their_inputs_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()
    monkeypatch.setattr("pairbench.execute.worker.trusted.synchronize", lambda: order.append("wait"))
    CudaTimer.sample_host(object.__new__(CudaTimer), lambda: order.append("run"), lambda: order.append("reset"))
    assert order == ["reset", "run", "reset", "wait", "run", "wait"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"consumes": ["x"], "constants": ["x"]}, "'baseline' consumes 'x', which is declared as constant"),
        ({"consumes": ["x"], "state": ["x"]}, "'baseline' consumes 'x', which is declared as state"),
        ({"consumes": "x"}, r"consumes is 'x', expected a list of input names: \['x'\]"),
        ({"consumes": 1}, "consumes is 1, expected a list of input names"),
        ({"consumes": ["output gradient"]}, "there is no backward without gradients="),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        declare(**changes)


@pytest.mark.parametrize("nothing", [None, (), {}, (None, None), {"y": [None]}])
def test_a_call_that_gives_nothing_to_compare_is_a_fault_of_the_declaration(nothing: Any, heartbeat: Heartbeat) -> None:
    base, other = verified_of(declare(lambda x: nothing, baseline=lambda x: nothing), heartbeat)
    assert base[0] is Status.FAILED and "returns nothing to compare, and no state is declared" in base[1]
    assert other[0] is Status.SKIPPED and "nothing to verify against: the baseline failed" in other[1]


def test_what_is_left_in_state_is_something_to_compare(heartbeat: Heartbeat) -> None:
    def into(x: torch.Tensor) -> None:
        x.mul_(2)

    found = verified_of(declare(lambda x: None, baseline=into, state=["x"], reset=True), heartbeat)
    assert [status for status, _ in found] == [Status.VERIFIED, Status.MISMATCHED]


def test_a_variant_beside_a_baseline_that_is_refused_is_skipped(heartbeat: Heartbeat) -> None:
    found = verified("refused", "", heartbeat)
    assert found["baseline"][0] is Status.MISMATCHED and found["v"][0] is Status.SKIPPED
    assert "nothing to verify against: the baseline mismatched (changes its input 'b'" in found["v"][1]


@pytest.mark.parametrize(
    "constant",
    [
        lambda x: torch.zeros(4),
        lambda x: x.shape,
        lambda x: (x > 1e9, 3),
        lambda x: "done",
        lambda x: (12 + x.mean() / 100).bfloat16(),  # it rounds to one value, which passes
    ],
)
def test_an_output_that_is_the_same_for_all_inputs_is_a_fault_unless_it_is_meant(
    constant: Callable[..., Any], heartbeat: Heartbeat
) -> None:
    base, other = verified_of(declare(constant, baseline=constant), heartbeat)
    assert base[0] is Status.FAILED and "the output is the same for all inputs, so anything passes" in base[1]
    assert other[0] is Status.SKIPPED
    meant = declare(constant, baseline=constant, accepts_constant=True)
    assert [status for status, _ in verified_of(meant, heartbeat)] == [Status.VERIFIED] * 2


@pytest.mark.parametrize(
    ("baseline", "variant", "changes"),
    [
        # One of its outputs varies.
        (lambda x: (torch.zeros(4), x), lambda x: (torch.zeros(4), x.clone()), {}),
        # There is no number in it, which a shape tells.
        (lambda x: x[:0], lambda x: x[8:], {}),
        # Its inputs are the same for all seeds.
        (lambda x: x + 1, lambda x: 1 + x, {"inputs": lambda make, n: {"x": torch.ones(n)}}),
        # So small that there is one answer.
        (lambda x: x.softmax(-1), torch.ones_like, {"cases": {"edge": [{"n": 1}]}}),
        # The same for two seeds by chance.
        (lambda x: x[0] > 0, lambda x: x[0].sign() == 1, {}),
    ],
)
def test_an_output_that_may_vary_is_no_fault(
    baseline: Any, variant: Any, changes: dict[str, Any], heartbeat: Heartbeat
) -> None:
    found = verified_of(declare(variant, baseline=baseline, **changes), heartbeat)
    assert [status for status, _ in found] == [Status.VERIFIED] * 2, found


def verified_of(operator: Operator, heartbeat: Heartbeat) -> list[tuple[Status, str]]:
    asked = {"automatic_impostors": False, "declared_impostors": ()}
    found = results(operator, "", heartbeat, VerifyCase, **asked)
    return [(one.status, str(one.reason)) for one in found if isinstance(one, Verification) or one.entry]
