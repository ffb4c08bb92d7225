import math
from typing import Any

import pytest
import torch

from pairbench.execute.protocol import VerifyCase
from pairbench.execute.worker.stages import run_stage
from pairbench.execute.worker.verify import audit
from pairbench.execute.worker.verify.audit import audit_automatic, audit_declared, audit_other_inputs
from pairbench.execute.worker.verify.case import ExpectedOutputs, make_expected
from pairbench.execute.worker.verify.judge import judge
from pairbench.model.case import EXACT, Tolerance
from pairbench.model.operator import Operator, Variant
from pairbench.model.outcome import ImpostorResult, Status, Verification
from tests.execute.made import CONFIG, declare, job_of, new_heartbeat

CPU = torch.device("cpu")


def audited(outputs: Any, tolerance: Any = None) -> dict[str, ImpostorResult]:
    reference = ExpectedOutputs(make=dict, outputs=outputs)
    return {found.impostor: found for found in audit_automatic(declare(tolerance=tolerance), reference)}


def test_a_float_output_is_spoilt_in_every_way() -> None:
    found = audited(torch.arange(1.0, 13.0).reshape(3, 4))
    shifted = [f"shifted by one along axis {axis}" for axis in (0, 1)]
    assert list(found) == ["zeros", "mean", *shifted, "tail left unwritten"]
    assert all(result.rejected and not result.declared for result in found.values())
    assert "differs from the baseline's in 12 of 12 elements" in found["zeros"].reason
    assert "in 6 of 12 elements" in found["tail left unwritten"].reason


SHIFTED = "shifted by one along axis 0"


@pytest.mark.parametrize(
    ("outputs", "tried"),
    [
        (torch.zeros(4), []),
        (torch.ones(4), ["zeros", "tail left unwritten"]),
        (torch.tensor([0.0, 0.0, 1.0]), ["zeros", "mean", SHIFTED, "tail left unwritten"]),
        (torch.tensor([1.0, 1.0, 0.0]), ["zeros", "mean", SHIFTED]),
        (torch.tensor([[1.0], [2.0]]), ["zeros", "mean", SHIFTED, "tail left unwritten"]),
        (torch.tensor([3, 4]), ["zeros", SHIFTED, "tail left unwritten"]),
        (torch.tensor([True, False]), ["zeros", SHIFTED]),
        (torch.tensor(3.0), ["zeros", "tail left unwritten"]),
        (torch.empty(0, 3), []),
        (torch.tensor([math.nan, 1.0, 2.0]), ["zeros", "mean", SHIFTED, "tail left unwritten"]),
    ],
)
def test_what_is_right_is_no_impostor(outputs: torch.Tensor, tried: list[str]) -> None:
    found = audited(outputs)
    assert list(found) == tried
    assert all(result.rejected for result in found.values())


def test_a_loose_tolerance_lets_through_what_it_cannot_tell() -> None:
    found = audited(torch.tensor([0.5, -0.25, 0.125]), Tolerance(atol=10.0))
    assert {name for name, result in found.items() if not result.rejected} == set(found)
    assert "cannot tell right from wrong" in found["zeros"].reason
    values = torch.full((64,), 100.0)
    values[-8:] = 0.5
    found = audited(values, Tolerance(atol=1.0))
    assert not found["tail left unwritten"].rejected and found["zeros"].rejected
    values[-8:-1] = 100.0
    assert audited(values, Tolerance(atol=1.0))["tail left unwritten"].rejected, "one value may be small by chance"


def references(operator: Operator) -> tuple[ExpectedOutputs, ExpectedOutputs]:
    first, second = ({"x": torch.full((4,), value) + torch.arange(4.0)} for value in (1.0, 5.0))
    return make_expected(operator, first), make_expected(operator, second)


LOOSE = Tolerance(rtol=0.016, atol=1e-5)
MEAN = Tolerance(rtol=0.016, atol=1e-5, rel_l2=0.016)
"""No oracle is asked."""


@pytest.mark.parametrize(
    ("baseline", "changes", "passes"),
    [
        (lambda x: x * 2, {}, False),
        (lambda x: 12 + x.mean() / 100, {}, False),
        (lambda x: 12 + x.mean() / 100, {"tolerance": LOOSE}, False),
        (lambda x: 12 + x.mean() / 100, {"tolerance": MEAN}, True),
        (lambda x: (x, 12 + x.mean() / 100), {"tolerance": MEAN}, False),
        (lambda x: 12 + x.mean() / 100, {"tolerance": MEAN, "accepts_constant": True}, None),
        (lambda x: 1 - x.softmax(-1).sum(-1), {}, None),  # rounding alone is left of it
        (lambda x: x.argmax(-1), {}, None),  # equal
        # Alike for two of the inputs.
        (lambda x: 12 + (x[0] - 1) / 100 + (x[0] - 7).relu(), {"tolerance": MEAN}, False),
    ],
)
def test_the_output_for_other_inputs_is_an_impostor(
    baseline: Any, changes: dict[str, Any], passes: bool | None
) -> None:
    operator = declare(baseline, baseline=baseline, **changes)
    more = [{"x": torch.full((4,), value) + torch.arange(4.0)} for value in (6.0, 9.0)]
    found = audit_other_inputs(operator, operator.cases[0], references(operator), more)
    assert (found and not found.rejected) == passes


def test_a_case_whose_outputs_hardly_vary_is_verified_and_its_records_say_so() -> None:
    mean = lambda x: 12 + x.mean() / 100  # noqa: E731
    operator = declare(baseline=mean, variants={"same": mean, "wrong": lambda x: 13 + x.mean()}, tolerance=MEAN)
    job = job_of(VerifyCase, operator, automatic_impostors=True, declared_impostors=())
    found = [one for one in run_stage(job, operator, CONFIG, new_heartbeat()) if isinstance(one, Verification)]
    assert [one.status for one in found] == [Status.VERIFIED, Status.VERIFIED, Status.MISMATCHED]
    said = "the baseline's outputs for other inputs would pass as well"
    assert [said in str(one.reason) for one in found] == [True, True, False]


def declared(impostor: Any) -> ImpostorResult:
    operator = declare(baseline=lambda x: x * 2, impostors={"wrong": impostor})
    return audit_declared(operator, "wrong", references(operator), CPU)


def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no such shape")


def caches() -> Any:
    """Return what is wrong for one seed of two."""
    answers: list[torch.Tensor] = []
    return lambda x: answers.append(x * 2) or answers[0]  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("impostor", "tried", "rejected", "words"),
    [
        (lambda x: x * 3, True, True, "differs from the baseline's in 4 of 4 elements"),
        (lambda x: x + x, True, False, "accepted"),
        (raises, True, True, "ValueError: no such shape"),
        (caches, True, True, "differs from the baseline's"),
        (Variant(lambda x: x * 2, valid=lambda x: "only wrong for odd sizes"), False, False, "not to be tried here"),
        (Variant(lambda x: x * 2, valid=lambda x: False), False, False, "not to be tried here"),
        (Variant(lambda x: x * 3, valid=lambda x: True), True, True, "differs"),
    ],
)
def test_a_declared_impostor_is_tried_where_it_is_valid_and_rejected_where_it_is_wrong(
    impostor: Any, tried: bool, rejected: bool, words: str
) -> None:
    found = declared(impostor() if impostor is caches else impostor)
    assert found.declared and (found.tried, found.tried and found.rejected) == (tried, rejected)
    assert words in found.reason


def test_an_impostor_cannot_spoil_the_reference() -> None:
    def overwrites(x: torch.Tensor) -> torch.Tensor:
        return x.zero_()

    operator = declare(baseline=lambda x: x * 2, impostors={"wrong": overwrites}, tolerance=EXACT)
    both = references(operator)
    before = [reference.inputs["x"].clone() for reference in both]
    found = audit_declared(operator, "wrong", both, CPU)
    assert found.rejected
    assert all(torch.equal(old, new.inputs["x"]) for old, new in zip(before, both, strict=True))


def test_each_of_several_outputs_is_spoilt_and_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = list[list[str]]()

    def counting(outputs: Any, *rest: Any) -> Any:
        judged.append(list(outputs))
        return judge(outputs, *rest)

    monkeypatch.setattr(audit, "judge", counting)
    found = audited({"caches": [torch.arange(1.0, 9.0) for _ in range(2)], "high": (torch.tensor([3, 4]),), "index": 5})
    assert all(result.rejected for result in found.values())
    tried = {"caches[0]": 4, "caches[1]": 4, "high[0]": 3}
    assert sorted(map(tuple, judged)) == sorted((path,) for path, times in tried.items() for _ in range(times))
    for place, path in enumerate(tried):
        assert f"output {path} differs" in found[f"zeros of output {place}"].reason
