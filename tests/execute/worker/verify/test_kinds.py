from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.verify.audit import audit_automatic
from pairbench.execute.worker.verify.case import check_baseline, why_random
from pairbench.execute.worker.verify.distance import off_the_distribution
from pairbench.execute.worker.verify.judge import Known, judge
from pairbench.model.case import Tolerance
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status
from tests.execute.worker.verify.test_case import declare, references, verify

F = torch.nn.functional


def norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def wide(baseline: Any, variant: Any = None, **changes: Any) -> Operator:
    plain: dict[str, Any] = {"inputs": lambda make, rows: {"x": make.uniform(rows, 500, low=1, high=2)}}
    return declare(variant or baseline, baseline=baseline, **{**plain, "cases": [{"rows": 16}], **changes})


ZEROS = {
    "mean of a norm": lambda x: norm(x).mean(-1),
    "one less its parts": lambda x: 1 - torch.softmax(x, -1).sum(-1),
    "sin(k pi)": lambda x: torch.sin((x * 10).round() * torch.pi),
}

OTHERS: dict[str, Any] = {"sin(k pi)": lambda x: -torch.cos((x * 10).round() * torch.pi + torch.pi / 2)}


@pytest.mark.parametrize("tolerance", [None, Tolerance(rtol=1e-4, atol_rms=1e-5), Tolerance(rtol=0, atol=1e-5)])
@pytest.mark.parametrize("name", ZEROS)
def test_an_exact_zero_is_held_to_the_size_of_the_inputs(name: str, tolerance: Any) -> None:
    baseline: Any = ZEROS[name]
    for variant in (OTHERS.get(name, lambda x: baseline(x.flip(-1))), lambda x: torch.zeros_like(baseline(x))):
        operator = wide(baseline, variant, tolerance=tolerance)
        first = references(operator)[0]
        assert check_baseline(first, operator.tolerance_for) is None
        assert not audit_automatic(operator, first)
        found = verify(operator)
        assert found.status is Status.VERIFIED, found.reason
    assert verify(wide(baseline, lambda x: baseline(x) + 1e-3, tolerance=tolerance)).status is Status.MISMATCHED


def residual(make: Any, rows: int) -> dict[str, torch.Tensor]:
    a, x = make.normal(rows, rows), make.normal(rows)
    return {"a": a, "x": x, "b": (a.double() @ x.double()).float()}


def test_what_rounding_leaves_takes_an_explicit_atol_and_the_message_says_so() -> None:
    def declared(variant: Any = None, tolerance: Tolerance | None = Tolerance(atol=1e-4)) -> Operator:  # noqa: B008 (frozen)
        baseline = lambda a, x, b: a @ x - b  # noqa: E731
        return wide(baseline, variant, inputs=residual, cases=[{"rows": 64}], tolerance=tolerance)

    plain = declared(tolerance=None)
    wrong = str(check_baseline(references(plain)[0], plain.tolerance_for))
    assert "if this output is what rounding leaves" in wrong and "Tolerance(atol=" in wrong
    obeyed = declared(lambda a, x, b: (a * x).sum(-1) - b)
    assert check_baseline(references(obeyed)[0], obeyed.tolerance_for) is None
    assert verify(obeyed).status is Status.VERIFIED
    assert verify(declared(lambda a, x, b: a @ x - b + 1e-3)).status is Status.MISMATCHED


def test_a_small_output_is_no_exact_zero() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * (x.dtype == torch.float64)

    operator = wide(broken, inputs=lambda make, rows: {"x": make.normal(rows, 20000)})
    assert "the baseline is wrong" in str(check_baseline(references(operator)[0], operator.tolerance_for))
    right = wide(lambda x: torch.softmax(x, -1), torch.zeros_like, tolerance=Tolerance(rtol=1e-2, atol=1e-2))
    assert verify(right).status is Status.MISMATCHED


DRAWN = Tolerance(random=64)


def dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5, True)


def seeded(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return x + torch.randn_like(x)


RANDOM: dict[str, tuple[Any, str]] = {
    "dropout": (dropout, "two calls on equal inputs differ"),
    "bernoulli": (lambda x: torch.bernoulli(x - 1), "two calls on equal inputs differ"),
    "randperm": (lambda x: torch.randperm(len(x)), "two calls on equal inputs differ"),
    "a seed inside": (seeded, "draws random numbers (randn_like), and others in float64"),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_baseline_is_named_as_such(name: str) -> None:
    baseline, words = RANDOM[name]
    operator = wide(baseline)
    first = references(operator)[0]
    off = check_baseline(first, operator.tolerance_for)
    why = str(why_random(operator, first, off_the_oracle=off is not None))
    assert words in why and "Tolerance(random=256)" in why


def test_what_is_not_random_is_called_once_more_only_where_the_oracle_cannot_tell() -> None:
    for baseline in (lambda x: x * 2, lambda x: x.argmax(-1), lambda x: x.tolist()[0]):
        operator = wide(baseline)
        assert why_random(operator, references(operator)[0], off_the_oracle=False) is None


def same_for_all(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand(1) < 0.5) * 2


def remembering() -> Any:
    kept: dict[str, torch.Tensor] = {}
    return lambda x: x * kept.setdefault("mask", (torch.rand_like(x) < 0.5) * 2.0)


@pytest.mark.parametrize(
    ("variant", "right"),
    [
        (lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)) * 2, True),
        (lambda x: F.dropout(x, 0.4, True), False),
        (lambda x: F.dropout(x, 0.5, True) * 1.05, False),
        (lambda x: x + 0, False),
        (same_for_all, False),
        (remembering(), False),
        (lambda x: F.dropout(x, 0.5, True)[:1], False),
        (lambda x: torch.full_like(x, float("nan")), False),
    ],
)
def test_draws_are_judged_by_their_distribution(variant: Any, right: bool) -> None:
    assert (verify(wide(dropout, variant, tolerance=DRAWN)).status is Status.VERIFIED) is right


def test_right_draws_are_never_refused() -> None:
    torch.manual_seed(0)
    for _ in range(60):
        for draw in (torch.randn(2, 32, 200), torch.rand(2, 32, 1)):
            mine, theirs = ([*draws] for draws in draw + 1)
            assert off_the_distribution(mine, theirs, rtol=1.3e-6, atol=1e-5) is None


def test_each_output_of_a_call_that_draws_is_judged_by_itself_and_a_single_draw_by_the_baseline_s_range() -> None:
    def noise(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.randn_like(x), torch.rand(1), x * 2

    drawn = Tolerance(random=32)
    found = verify(wide(noise, tolerance=drawn))
    assert found.status is Status.VERIFIED, found.reason
    other = verify(wide(noise, lambda x: (*noise(x)[:2], x * 2.01), tolerance=drawn))
    assert "output [2] has another mean" in str(other.reason)
    x = torch.rand(16, 500) + 1
    expected = {f"draw {number}": dropout(x) for number in range(64)}

    def mismatch(value: torch.Tensor) -> str | None:
        return judge(value, expected, None, lambda *_: DRAWN, Known()).mismatch

    assert mismatch(dropout(x)) is None
    assert "far outside of what 64 calls of the baseline give" in str(mismatch(dropout(x + 5)))
    assert mismatch(dropout(x)[0]) is not None


def test_random_outputs_are_audited_like_others() -> None:
    operator = wide(dropout, tolerance=Tolerance(random=256))
    found = audit_automatic(operator, references(operator)[0])
    assert [one.impostor for one in found] == ["zeros", "mean", "tail left unwritten"]
    assert all(one.rejected for one in found)


@pytest.mark.parametrize("random", [1, 31, -1, 2.5, True])
def test_too_few_draws_are_refused(random: Any) -> None:
    with pytest.raises(DeclarationError, match="expected a number of calls, 32 or more"):
        Tolerance(random=random)


TIES = {"int64": Tolerance(ties="x")}


def tied(make: Any, rows: int) -> dict[str, torch.Tensor]:
    return {"x": make.integers(rows, 64, high=8).float()}


def backwards(x: torch.Tensor, k: int = 8, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    values, found = x.flip(dim).sort(dim=dim, descending=True, stable=True)
    return values.narrow(dim, 0, k), (x.shape[dim] - 1 - found).narrow(dim, 0, k)


def first_of_each(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same index for all values that are equal."""
    values = x.topk(8).values
    return values, (x.unsqueeze(-2) == values.unsqueeze(-1)).float().argmax(-1)


INDICES: list[tuple[Any, Any, Any, bool]] = [
    (lambda x: tuple(x.topk(8)), backwards, TIES, True),
    (lambda x: tuple(x.topk(8)), backwards, None, False),
    (lambda x: tuple(x.topk(8, dim=0)), lambda x: backwards(x, dim=0), TIES, True),
    (lambda x: tuple(x.sort(descending=True, dim=0)), lambda x: backwards(x, 16, 0), {"int64": Tolerance(ties=("x", 0))}, True),
    (lambda x: tuple(x.topk(8)), first_of_each, TIES, False),
    (lambda x: tuple(x.topk(8)), lambda x: (x.topk(8).values, (x.topk(8).indices + 1) % 64), TIES, False),
    (lambda x: tuple(x.topk(8)), lambda x: (x.topk(8).values, x.topk(8).indices + 64), TIES, False),
    (lambda x: x.argmax(-1), lambda x: 63 - x.flip(-1).argmax(-1), TIES, True),
    (lambda x: x.argmax(), lambda x: x.numel() - 1 - x.flatten().flip(0).argmax(), TIES, True),
]  # fmt: skip


@pytest.mark.parametrize(("baseline", "variant", "tolerance", "right"), INDICES)
def test_indices_of_equal_values_are_equal_where_ties_says_so(
    baseline: Any, variant: Any, tolerance: Any, right: bool
) -> None:
    found = verify(wide(baseline, variant, inputs=tied, tolerance=tolerance))
    assert (found.status is Status.VERIFIED) is right, found.reason


@pytest.mark.parametrize(("ties", "words"), [("y", "among the inputs"), (("x", 0), "do not point along one axis")])
def test_ties_that_name_no_such_input_are_refused(ties: Any, words: str) -> None:
    baseline = lambda x: tuple(x.topk(8))  # noqa: E731
    with pytest.raises(DeclarationError, match=words):
        verify(wide(baseline, backwards, inputs=tied, tolerance={"int64": Tolerance(ties=ties)}))


def test_calls_on_the_same_inputs_are_compared_to_the_bit() -> None:
    calls: list[int] = []

    def wavers(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2 + 1e-7 * (len(calls) % 3)

    assert verify(declare()).repeat_error == 0
    found = verify(declare(wavers))
    assert found.status is Status.VERIFIED and 1e-8 < (found.repeat_error or 0) < 1e-6
