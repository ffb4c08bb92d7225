"""One implementation beside its reference, in this process: what verification sees and what it leaves as it was."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.execute.protocol import CaseJob
from pairbench.execute.worker.calls import SEEDS, build_inputs
from pairbench.execute.worker.flags import read_flags, read_variables, restore_flags, watched_flags
from pairbench.execute.worker.guard import SuiteFaultError
from pairbench.execute.worker.stages import begin_case
from pairbench.execute.worker.trees import named_tensors
from pairbench.execute.worker.verify.audit import audit_automatic
from pairbench.execute.worker.verify.case import (
    ExpectedOutputs,
    check_baseline,
    make_expected,
    verify_entry,
    without_casts,
)
from pairbench.model.case import EXACT, REASSOCIATED, REASSOCIATED_BY_ROW, Tolerance
from pairbench.model.environment import Settings
from pairbench.model.operator import Operator, Variant
from pairbench.model.outcome import Status, Verification
from tests.execute import made
from tests.execute.made import CONFIG, VARIANT, entry

CPU = torch.device("cpu")


def declare(variant: Any = lambda x: x * 2, **changes: Any) -> Operator:
    plain: dict[str, Any] = {
        "baseline": lambda x: x + x,
        "inputs": lambda make, rows: {"x": make.normal(rows, 8)},
        "cases": [{"rows": 4}],
    }
    return made.declare(variant, **{**plain, **changes})


def references(operator: Operator) -> tuple[ExpectedOutputs, ...]:
    return tuple(make_expected(operator, build_inputs(operator, operator.cases[0], CPU, seed)) for seed in SEEDS)


def verify(operator: Operator, mode: str = "eager") -> Verification:
    return verify_entry(operator, entry("v", mode), references(operator), CPU)


def test_what_is_right_has_its_margin_and_what_is_wrong_its_numbers() -> None:
    found = verify(declare())
    assert (found.status, found.reason, found.uncapturable) == (Status.VERIFIED, None, None)
    assert found.correctness is not None and found.correctness.margin == 1
    assert found.first_call_ns is not None and found.first_call_ns > 0
    found = verify(declare(lambda x: x * 2.01))
    assert found.status is Status.MISMATCHED and "differs from the baseline's in 32 of 32" in str(found.reason)
    assert found.correctness is not None and found.correctness.mismatched_fraction == 1
    assert found.correctness.margin < 0


def picky() -> Any:
    """Return a kernel that is right for the values it was tuned on, hence for one seed."""
    sums: list[float] = []
    return lambda x: x * 2 if sums.append(float(x.sum())) or sums[-1] == sums[0] else x * 3  # type: ignore[func-returns-value]


def tuned() -> Any:
    """Return a kernel whose tuner has tried its configurations on the output, hence wrong in its first call."""
    calls = itertools.count()
    return lambda x: x * 2 if next(calls) else x * 3


# The last returns memory that it never wrote, in which the baseline's answer may still be.
@pytest.mark.parametrize("kernel", [picky, tuned, lambda: torch.empty_like])
def test_what_is_right_now_and_then_is_wrong(kernel: Any) -> None:
    assert verify(declare(kernel())).status is Status.MISMATCHED


def test_what_is_wrong_by_the_baseline_alone_says_why_the_oracle_was_not_asked() -> None:
    def too_large(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    found = verify(declare(lambda x: x * 2.01, oracle=too_large))
    assert found.status is Status.MISMATCHED
    assert "(no oracle: " in str(found.reason) and "out of memory" in str(found.reason)


def test_memory_that_each_call_returns_is_named_and_legal() -> None:
    two, weight = [torch.empty(4, 8), torch.empty(4, 8)], torch.ones(3)

    def reuses(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x, out=two[0])

    def takes_turns(x: torch.Tensor) -> torch.Tensor:
        two.reverse()
        return reuses(x)

    def through_numpy(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x, out=torch.from_numpy(two[0].numpy()))

    def a_part(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + x, weight[1:]

    operators = [declare(variant) for variant in (reuses, takes_turns, through_numpy)]
    for operator in (*operators, declare(a_part, baseline=lambda x: (x + x, torch.ones(2)))):
        found = verify(operator)
        assert found.status is Status.VERIFIED and found.reuses_output is True
    assert verify(declare(lambda x: x, baseline=lambda x: x.clone())).status is Status.VERIFIED, "nor is its input's"


def test_memory_of_arguments_and_none_at_all_is_the_caller_s() -> None:
    """A view of an input, of what was prepared or of a state is not what an earlier call has returned; nor are outputs without elements."""

    def views(x: torch.Tensor, total: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total.copy_(x)
        return x + x, x[1:], total.view(-1), head, x[:0], torch.empty(0)

    def copies(x: torch.Tensor, total: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total.copy_(x)
        return x + x, x[1:].clone(), x.flatten().clone(), weight[:2].clone(), x[:0], torch.empty(0)

    operator = declare(
        Variant(
            lambda x, total, head, weight: views(x, total, head), prepare=lambda weight: {"head": weight[:2].clone()}
        ),
        baseline=copies,
        inputs=lambda make, rows: {"x": make.normal(rows, 8), "total": make.zeros(rows, 8), "weight": make.normal(8)},
        constants=["weight"],
        state=["total"],
    )
    found = verify(operator)
    assert found.status is Status.VERIFIED, found.reason
    assert found.reuses_output is False
    assert verify(declare()).reuses_output is False


def test_a_changed_input_is_named_and_the_reference_is_safe() -> None:
    operator = declare(lambda x: x.mul_(2))
    both = references(operator)
    before = both[0].inputs["x"].clone()
    found = verify_entry(operator, VARIANT, both, CPU)
    assert found.status is Status.MISMATCHED and "changes its input 'x'" in str(found.reason)
    assert torch.equal(both[0].inputs["x"], before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["baseline", "oracle"])
def test_a_baseline_or_oracle_that_changes_its_inputs_spoils_nothing(name: str, dtype: str) -> None:
    inputs = lambda make, rows: {"x": make.normal(rows, 8, dtype=dtype)}  # noqa: E731
    operator = declare(inputs=inputs, **{name: lambda x: x.mul_(2)})
    given = build_inputs(operator, operator.cases[0], CPU, 0)
    before = given["x"].clone()
    reference = make_expected(operator, given)
    assert torch.equal(given["x"], before)
    torch.testing.assert_close(reference.oracle, (before * 2).double())


def test_state_is_each_calls_own_and_judged() -> None:
    def keeps(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2

    assert verify(declare(keeps, baseline=keeps, state=["x"])).status is Status.VERIFIED
    found = verify(declare(lambda x: (x + 1) * 2, baseline=keeps, state=["x"]))
    assert found.status is Status.MISMATCHED and "output state.x differs" in str(found.reason)


@pytest.mark.parametrize("at_call", [1, 3])
@pytest.mark.parametrize("raises", [False, True])
def test_changed_flags_are_named_and_put_back(raises: bool, at_call: int) -> None:
    before, calls = read_flags(), itertools.count(1)

    def changes(x: torch.Tensor) -> torch.Tensor:
        if next(calls) == at_call:
            torch.backends.cuda.matmul.allow_tf32 = not before["matmul.allow_tf32"]
            torch.use_deterministic_algorithms(True)
            if raises:
                raise ValueError("boom")
        return x * 2

    if raises:
        with pytest.raises(ValueError, match="boom"):
            verify(declare(changes))
    else:
        found = verify(declare(changes))
        assert found.status is Status.FAILED and "matmul.allow_tf32" in str(found.reason)
        assert "deterministic_algorithms False -> True" in str(found.reason)
    assert read_flags() == before


def test_variables_that_matter_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HOME_SWEET_HOME", "1")
    found = read_variables()
    assert found["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert "CUDA_VISIBLE_DEVICES" not in found and "HOME_SWEET_HOME" not in found


def test_another_shape_for_another_seed_is_a_fault_of_the_suite() -> None:
    rows = iter([4, 5])
    operator = declare(inputs=lambda make, rows_: {"x": make.normal(next(rows), 8)}, cases=[{"rows_": 4}])
    with pytest.raises(SuiteFaultError, match="other shapes or dtypes for another seed; a case is one shape"):
        verify(operator)


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (None, "None"),
        (lambda x: x * 2.1, "the baseline is wrong: it is off the float64 oracle by"),
        (lambda x: x[:1], "the oracle returns shapes [[1, 8]], the baseline [[4, 8]]"),
    ],
)
def test_a_baseline_that_is_far_off_its_oracle_is_not_believed(oracle: Any, words: str) -> None:
    operator = declare(oracle=oracle)
    assert words in str(check_baseline(references(operator)[0], operator.tolerance_for))


def test_a_baseline_that_cannot_compute_in_float64_has_no_oracle_and_a_declared_one_that_fails_is_a_fault() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.float32, "float32 only"
        return x + x

    found = verify(declare(baseline=picky))
    assert found.status is Status.VERIFIED
    assert "no oracle: " in str(found.reason) and "float32 only" in str(found.reason)
    with pytest.raises(AssertionError, match="float32 only"):
        references(declare(oracle=picky))


class Norm(torch.nn.Module):  # type: ignore[misc]
    """A norm that computes in float32, whatever its inputs are, as modules of many libraries do."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.weight, self.kind = torch.nn.Parameter(torch.ones(8)), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        casts = {
            "float": x.float,
            "to": lambda: x.to(torch.float32),
            "keyword": lambda: x.to(dtype=torch.float32),
            "softmax": lambda: x + 0 * torch.softmax(x, -1, torch.float32),
            "buffer": lambda: torch.empty_like(x, dtype=torch.float32).copy_(x),
        }
        wide = casts[self.kind]()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).type_as(x)


@pytest.mark.parametrize("kind", ["float", "to", "keyword", "softmax", "buffer"])
@pytest.mark.parametrize("direction", ["", "bwd"])
def test_the_oracle_of_a_baseline_that_casts_to_float32_is_float64(kind: str, direction: str) -> None:
    operator = declare(
        baseline=lambda module, x: module(x),
        inputs=lambda make, rows: {"module": make.module(lambda: Norm(kind)), "x": make.normal(rows, 8)},
        **({"gradients": ["x"], "cases": [{"rows": 4, "direction": direction}]} if direction else {}),
    )
    operator = operator.at(operator.cases[0])
    first = references(operator)[0]
    outputs, oracle = named_tensors(first.outputs), named_tensors(first.oracle)
    assert {one.dtype for one in oracle.values()} == {torch.float64}
    assert 0 < max(float((outputs[path] - exact).abs().max()) for path, exact in oracle.items()) < 1e-6


def test_a_cast_in_the_oracle_is_a_copy_still() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + x.float().mul_(2)

    exact = torch.ones(2, dtype=torch.float64)
    assert without_casts(lambda: shifted(exact)).tolist() == [3, 3] and exact.tolist() == [1, 1]


@pytest.mark.parametrize(
    "baseline",
    [
        lambda x: x.float() @ torch.eye(8),
        lambda x: rounded(x.float(), bits=20).mul(1.0),
        lambda x: (x.float().view(torch.int32) & -2).view(torch.float32),
    ],
)
def test_a_baseline_that_needs_its_casts_has_them_in_the_oracle(baseline: Any) -> None:
    found = verify(declare(baseline, baseline=baseline))
    assert (found.status, found.reason) == (Status.VERIFIED, None)


def test_a_cast_to_fewer_bits_than_float32_is_a_part_of_the_question() -> None:
    baseline = lambda x: x.to(torch.bfloat16).to(x.dtype) * 2  # noqa: E731
    operator = declare(baseline, baseline=baseline)
    assert check_baseline(references(operator)[0], operator.tolerance_for) is None


def rounded(x: torch.Tensor, *, bits: int = 10, cut: bool = False) -> torch.Tensor:
    """Round float32 to fewer bits of mantissa, ten as TF32 does: to the nearest, or towards zero as hardware may do."""
    if x.dtype != torch.float32:
        return x  # the oracle
    unit = 1 << (23 - bits)
    whole = x.contiguous().view(torch.int32)
    return (whole if cut else whole + unit // 2).bitwise_and(-unit).view(torch.float32)


def product(a: torch.Tensor, b: torch.Tensor, **how: Any) -> torch.Tensor:
    return rounded(a, **how) @ rounded(b, **how)


EXACTLY = dict[str, Any](bits=23)
CUT = dict[str, Any](cut=True)
NEAREST = dict[str, Any]()
PRODUCTS: dict[str, Any] = {
    "one": product,
    "two": lambda a, b, **how: product(torch.nn.functional.gelu(product(a, b, **how)), b, **how),
    "other order": lambda a, b, **how: product(a[:, :64], b[:64], **how) + product(a[:, 64:], b[64:], **how),
    "what cancels": lambda a, b, **how: product(a + 1, b, **how) - product(a + 1, b.flip(0), **how),
}


def multiply(baseline: Any, variant: Any, **changes: Any) -> Operator:
    plain: dict[str, Any] = {
        "baseline": baseline,
        "inputs": lambda make, rows: {"a": make.normal(rows, 128), "b": make.normal(128, 128)},
        "cases": [{"rows": 256}],
        "tolerance": REASSOCIATED,
    }
    return declare(variant, **{**plain, **changes})


def in_tf32(operator: Operator) -> Operator:
    return operator.at(operator.cases[0], tf32=True)


TOLERANCES = (None, REASSOCIATED, REASSOCIATED_BY_ROW, Tolerance(rel_l2=1e-5, atol_rms=1e-5))
ROUNDINGS = [(NEAREST, EXACTLY), (EXACTLY, NEAREST), (EXACTLY, CUT), (CUT, NEAREST), (NEAREST, CUT)]


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("pair", range(len(ROUNDINGS)))
def test_products_in_tf32_are_right_where_it_is_allowed_and_only_there(pair: int, kind: str) -> None:
    """Each tolerance with each kind, and with each pair of roundings."""
    (ours, theirs), computed = ROUNDINGS[pair], PRODUCTS[kind]
    tolerance = TOLERANCES[(pair + [*PRODUCTS].index(kind)) % len(TOLERANCES)]
    operator = multiply(lambda a, b: computed(a, b, **ours), lambda a, b: computed(a, b, **theirs), tolerance=tolerance)
    assert verify(operator).status is Status.MISMATCHED
    found = verify(in_tf32(operator))
    assert found.status is Status.VERIFIED, found.reason
    (reference, _) = references(operator)
    assert check_baseline(reference, in_tf32(operator).tolerance_for) is None


def test_a_baseline_in_tf32_is_held_to_tf32s_rounding() -> None:
    baseline = multiply(lambda a, b: product(a, b, cut=True), product)
    (reference, _) = references(baseline)
    wrong = check_baseline(reference, baseline.tolerance_for)
    assert wrong is not None and "where rounding explains less than 0.000345" in wrong
    assert check_baseline(reference, in_tf32(baseline).tolerance_for) is None
    # A block of eight that is left out of 128 is an error of a quarter.
    broken = multiply(lambda a, b: a[:, 8:] @ b[8:], product, oracle=product)
    (reference, _) = references(broken)
    wrong = check_baseline(reference, in_tf32(broken).tolerance_for)
    assert wrong is not None and "where rounding explains less than 0.0625" in wrong


@pytest.mark.parametrize(
    ("baseline", "wrong", "tolerance"),
    [
        (product, lambda a, b: product(a, b, bits=7), REASSOCIATED),  # fewer bits than TF32 has
        (product, lambda a, b: product(a[:, :-1], b[:-1]), REASSOCIATED),
        (product, lambda a, b: product(a, b) * 1.01, REASSOCIATED),
        (product, lambda a, b: product(a.bfloat16(), b.bfloat16()).float(), REASSOCIATED),
        (product, lambda a, b: torch.zeros_like(a), REASSOCIATED),
        (lambda a, b: a.flip(0), lambda a, b: rounded(a).flip(0), EXACT),  # moved data stays exact
    ],
)
def test_what_is_wrong_is_wrong_in_tf32(baseline: Any, wrong: Any, tolerance: Any) -> None:
    assert verify(in_tf32(multiply(baseline, wrong, tolerance=tolerance))).status is Status.MISMATCHED


@pytest.mark.parametrize("tolerance", [None, REASSOCIATED])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_impostors_are_rejected_in_tf32(kind: str, tolerance: Any) -> None:
    computed = PRODUCTS[kind]
    operator = in_tf32(multiply(computed, computed, tolerance=tolerance))
    found = audit_automatic(operator, references(operator)[0])
    assert len(found) == 5 and all(one.rejected for one in found)


def test_a_case_pins_its_precision_whatever_a_suite_has_changed() -> None:
    before = watched_flags()
    operator = declare(cases=[{"rows": 4, "tf32": True}, {"rows": 4, "tf32": False}, {"rows": 4}])
    try:
        for case, setting, wanted in zip(operator.cases, (False, True, True), (True, False, True), strict=True):
            torch.set_float32_matmul_precision("medium")
            for newer in (torch.backends, torch.backends.cudnn, torch.backends.mkldnn, torch.backends.mkldnn.conv):
                newer.fp32_precision = "tf32"
            job = CaseJob(path=Path("op.py"), operator="op", case=case, entries=())
            begin_case(replace(CONFIG, settings=Settings(tf32=setting)), job, operator)
            flags = read_flags()
            assert flags["matmul.allow_tf32"] is flags["cudnn.allow_tf32"] is wanted
            assert torch.get_float32_matmul_precision() == ("high" if wanted else "highest")
            precisions = {torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.rnn.fp32_precision}
            assert precisions == ({"tf32"} if wanted else {"none"})
            assert torch.backends.mkldnn.matmul.fp32_precision == torch.backends.mkldnn.conv.fp32_precision == "none"
    finally:
        restore_flags(before)
