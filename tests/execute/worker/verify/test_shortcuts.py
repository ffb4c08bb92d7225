import math
from collections.abc import Callable

import pytest
import torch

from pairbench.execute.worker.verify import distance
from pairbench.execute.worker.verify.distance import resolve_tolerance
from pairbench.execute.worker.verify.judge import Known, clearly_right, clearly_wrong, judge, same_outputs
from pairbench.model.case import Tolerance


def usual(_: str, path: str) -> Tolerance:
    return Tolerance()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 1e-7, 1e-4, 1e-2, 1.0, 1e4])
def test_what_is_clearly_right_is_never_wrong(dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    right = 0
    for shift in (0.0, 0.1, 0.4, 0.6, 0.9, 1.1, 2.0):
        for tolerance in (
            Tolerance(),
            Tolerance(rtol=1e-3, atol=1e-4),
            Tolerance(rtol=0, atol=0),
            Tolerance(atol_rms=1e-3),
            Tolerance(atol_rms=1e-3, rms_by_row=True),
            Tolerance(rtol=1e-3, atol_rms=1e-4, rel_l2=1e-4),
        ):
            expected = (scale * torch.randn(8, 8, generator=generator, dtype=torch.float64)).to(dtype)
            limit = resolve_tolerance(expected, tolerance)
            atol = limit.atol_of(0, 64, 64)
            atol = atol.view(8, 8) if isinstance(atol, torch.Tensor) else atol
            off = shift * (atol + limit.rtol * expected.double().abs())
            outputs = (expected.double() + off).to(dtype)
            clear = clearly_right(outputs, expected, lambda *_, limit=tolerance: limit, Known())
            assert not clear or judge(outputs, expected, None, lambda *_, limit=tolerance: limit).mismatch is None
            right += clear
    assert right >= 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1.01])
def test_one_element_that_is_off_is_found_in_a_large_output(monkeypatch: pytest.MonkeyPatch, bad: float) -> None:
    monkeypatch.setattr(distance, "_CHUNK", 64)
    expected, allowed = torch.ones(1000), resolve_tolerance(torch.ones(1000), Tolerance(rtol=0, atol_rms=1e-3))
    for place in (None, 0, 63, 64, 999):
        outputs = expected + 1e-5
        outputs[place] = 1.0 if place is None else bad
        assert distance.clearly_within(outputs, expected, allowed) is (place is None)
    assert resolve_tolerance(torch.tensor([1.0, math.nan, -1.0, math.inf]), Tolerance(atol_rms=1e-3)).atol < 1e-3


ONE, NAN = torch.tensor([1.0, 2.0]), torch.tensor([1.0, math.nan])


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        *((torch.tensor(values), ONE) for values in ([1.0, math.inf], [1.0, 2.1], [1.0, 2.0, 3.0], [1, 2])),
        *((other, ONE) for other in (NAN, [ONE], 1.0, ONE.to_sparse())),
        (ONE, torch.tensor([1.0, math.inf])),
        (NAN, NAN),
    ],
)
def test_what_is_not_plainly_the_same_is_not_clearly_right(outputs: object, expected: torch.Tensor) -> None:
    assert clearly_right(ONE.clone(), ONE, usual, Known())
    assert not clearly_right(outputs, expected, usual, Known())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_near_the_limit_is_clearly_right_too(dtype: torch.dtype) -> None:
    """A kernel that rounds in other places is off by most of the tolerance somewhere, and the whole judgement takes ten times as long."""
    expected = torch.full((64,), 1.0, dtype=dtype)
    outputs = expected.clone()
    for part, clear in ((0.4, True), (0.97, True), (1.03, False)):
        outputs[5] = 1 + part * 0.25
        assert clearly_right(outputs, expected, lambda *_: Tolerance(rtol=0.25, atol=0), Known()) is clear


def test_what_is_known_of_a_baseline_changes_no_verdict() -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(64, generator=generator)
    oracle, known = expected.double() + 1e-9, Known()
    for off in (0.0, 1e-7, 1e-3, 1e-7):
        given = (expected + off, expected, oracle, lambda *_: Tolerance(atol_rms=1e-6))
        assert judge(*given, known) == judge(*given)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([NAN], [NAN.clone()], True),
        ([NAN.to(torch.complex64)], [NAN.to(torch.complex64)], True),
        ([torch.tensor([1, 2])], [torch.tensor([1, 3])], False),
        ([ONE], [torch.tensor([1.0, 2.0 + 2**-22])], False),
        *(([NAN], other, False) for other in ([torch.ones(2)], [NAN.flip(0)], [NAN.double()], NAN, [NAN, 3], [3])),
        *(([NAN], other, False) for other in ([torch.tensor([1.0, math.nan, 2.0])], [NAN.to_sparse()])),
    ],
)
def test_the_same_outputs_are_the_same_to_the_bit(one: object, other: object, same: bool) -> None:
    assert same_outputs(one, other) is same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "tolerance", [Tolerance(), Tolerance(rtol=0, atol=0), Tolerance(atol_rms=1e-3, rms_by_row=True)]
)
def test_the_largest_part_of_a_limit_is_that_of_float64(
    dtype: torch.dtype, tolerance: Tolerance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distance, "_CHUNK", 100)
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(40, 9, generator=generator).to(dtype)
    allowed = resolve_tolerance(expected, tolerance)
    for used in (1e-3, 0.5, 0.9999, 1.0, 1.0001, 3.0):
        noise = used * (2 * torch.rand(40, 9, generator=generator, dtype=torch.float64) - 1)
        atol = allowed.atol.unsqueeze(1) if isinstance(allowed.atol, torch.Tensor) else allowed.atol
        value = (expected.double() + noise * (atol + allowed.rtol * expected.double().abs())).to(dtype)
        for odd in (None, math.nan, math.inf):
            if odd is not None:
                value[3, 3] = expected[3, 3] = odd  # equal in both
                value[7, 7], expected[7, 7] = odd, 1.0
            quick = distance.tally(value, expected, None, allowed)
            with monkeypatch.context() as patched:
                patched.setattr(distance, "_ROUGH", ())
                assert distance.tally(value, expected, None, allowed) == quick


def test_distances_leave_out_what_is_not_finite_in_both() -> None:
    value = torch.tensor([1.0, math.inf, math.nan, 2.0, math.inf])
    truth = torch.tensor([1.0, math.inf, 3.0, 2.5, 1e300], dtype=torch.float64)
    found = distance.distance(value, truth)
    assert found == distance.distance(value[[0, 3]], truth[[0, 3]]) == (0.5, 2.5, 0.5, 0.25, 7.25)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (torch.zeros_like, "in 100 of its last 100 elements"),
        (lambda x: torch.cat([x[:-2], torch.zeros(2)]), "in 2 of its last 100 elements"),
        (lambda x: torch.cat([torch.zeros(2), x[2:]]), None),  # `judge` has to look at all
        (lambda x: x, None),
    ],
)
def test_large_outputs_are_wrong_by_their_last_elements(
    spoil: Callable[[torch.Tensor], torch.Tensor], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = torch.linspace(1.0, 2.0, 1000)
    assert clearly_wrong(spoil(right), right, usual, Known()) is None  # it is not large
    monkeypatch.setattr(distance, "_CHUNK", 100)
    why = clearly_wrong(spoil(right), right, usual, Known())
    assert why == (says and f"output differs from the baseline's {says}")


def test_few_wrong_elements_may_be_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.ones(100_000)
    wrong = torch.cat([right[:-10], torch.zeros(10)])
    monkeypatch.setattr(distance, "_CHUNK", 100)
    assert clearly_wrong(wrong, right, usual, Known()) is None
    assert judge(wrong, right, None, usual).mismatch
