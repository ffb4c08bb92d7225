import math

import pytest
import torch

from pairbench.execute.worker.verify.distance import resolve_tolerance
from pairbench.execute.worker.verify.judge import Known, clearly_right, judge, same_outputs
from pairbench.model.tolerance import Tolerance


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


@pytest.mark.parametrize(
    "outputs",
    [
        torch.tensor([1.0, math.nan]),
        torch.tensor([1.0, math.inf]),
        torch.tensor([1.0, 2.1]),
        torch.tensor([1.0, 2.0, 3.0]),
        torch.tensor([1, 2]),
        [torch.tensor([1.0, 2.0])],
        1.0,
        torch.tensor([1.0, 2.0]).to_sparse(),
    ],
)
def test_what_is_not_plainly_the_same_is_not_clearly_right(outputs: object) -> None:
    given = torch.tensor([1.0, 2.0])
    assert clearly_right(torch.tensor([1.0, 2.0]), given, usual, Known())
    assert not clearly_right(outputs, given, usual, Known())
    assert not clearly_right(given, torch.tensor([1.0, math.inf]), usual, Known())
    assert not clearly_right(torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), usual, Known())


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
    ("other", "same"),
    [
        ([torch.tensor([1.0, math.nan])], True),
        ([torch.tensor([1.0, 1.0])], False),
        ([torch.tensor([1.0, math.nan], dtype=torch.float64)], False),
        ([torch.tensor([1.0, math.nan, 2.0])], False),
        (torch.tensor([1.0, math.nan]), False),
        ([torch.tensor([1.0, math.nan]), 3], False),
        ([torch.tensor([1.0, math.nan]).to_sparse()], False),
        ([3], False),
    ],
)
def test_the_same_outputs_are_the_same_to_the_bit(other: object, same: bool) -> None:
    assert same_outputs([torch.tensor([1.0, math.nan])], other) is same
