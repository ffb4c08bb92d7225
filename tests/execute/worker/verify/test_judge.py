import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing._comparison import default_tolerances

from pairbench.execute.worker.verify import distance as module
from pairbench.execute.worker.verify.distance import output_spacing, resolve_tolerance
from pairbench.execute.worker.verify.judge import (
    Known,
    OutputVerdict,
    clear_by_draw,
    judge,
    strays_right,
    worst,
)
from pairbench.model.case import EXACT, Tolerance
from pairbench.model.outcome import Correctness

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*FLOATS, torch.complex64, torch.complex128, torch.int64, torch.int8, torch.uint8, torch.bool]
INTERESTING = [0.0, -0.0, 1.0, -1.0, 3.0, 1e-5, 1.0000125, 1.5, 300.0, math.inf, -math.inf, math.nan, 2.0e-5, 1.001]


def mismatch(value: Any, expected: Any, oracle: Any = None, tolerance: Tolerance | None = None) -> str | None:
    return judge(value, expected, oracle, lambda *_: tolerance or Tolerance()).mismatch


def numbers(found: Any, expected: Any, oracle: Any = None, tolerance: Tolerance | None = None) -> Correctness:
    correctness = judge(found, expected, oracle, lambda *_: tolerance or Tolerance()).correctness
    assert correctness is not None
    return correctness


def as_tensor(values: list[float], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.tensor(values, dtype=torch.float64).to(dtype)
    finite = [0 if not math.isfinite(value) else int(abs(value)) % 100 for value in values]
    return torch.tensor(finite).to(dtype)


def close(value: torch.Tensor, expected: torch.Tensor, **resolve_tolerance: float) -> bool:
    try:
        torch.testing.assert_close(value, expected, equal_nan=True, check_stride=False, **resolve_tolerance)
    except AssertionError:
        return False
    return True


def at_the_limit(value: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """assert_close works in the tensor's own dtype, we in float64: at the very limit, theirs is the rounding."""
    rtol, atol = resolve_tolerance(expected, tolerance)
    wide = torch.complex128 if value.is_complex() else torch.float64
    difference = (value.to(wide) - expected.to(wide)).abs()
    limit = atol + rtol * expected.to(wide).abs()
    return bool((((difference - limit).abs() <= 1e-2 * limit) & (difference > 0) & limit.isfinite()).any())


def test_defaults_are_those_of_torch() -> None:
    found = {dtype: resolve_tolerance(torch.zeros(1, dtype=dtype), Tolerance()) for dtype in DTYPES}
    assert found == {dtype: default_tolerances(dtype) for dtype in DTYPES} and found.keys() >= module._DEFAULTS.keys()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=40)
@given(values=st.lists(st.tuples(st.sampled_from(INTERESTING), st.sampled_from(INTERESTING)), max_size=4))
def test_equal_to_assert_close_on_awkward_values(dtype: torch.dtype, values: list[tuple[float, float]]) -> None:
    value, expected = (as_tensor([pair[side] for pair in values], dtype) for side in (0, 1))
    if not at_the_limit(value, expected, Tolerance()):
        assert (mismatch(value, expected) is None) == close(value, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@settings(max_examples=50)
@given(
    base=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6),
    relative=st.floats(-3e-2, 3e-2),
    rtol=st.sampled_from([None, 0.0, 1e-6, 1e-3, 1e-2]),
    atol=st.sampled_from([None, 0.0, 1e-6, 1e-2, 10.0]),
)
def test_equal_to_assert_close_near_the_limit(
    dtype: torch.dtype, base: list[float], relative: float, rtol: float | None, atol: float | None
) -> None:
    expected = torch.tensor(base, dtype=torch.float64).to(dtype)
    value = (expected.double() * (1 + relative)).to(dtype)
    tolerance = Tolerance(rtol=rtol, atol=atol)
    given_limits = {} if tolerance.rtol is None else {"rtol": tolerance.rtol, "atol": tolerance.atol}
    if not at_the_limit(value, expected, tolerance):
        assert (mismatch(value, expected, tolerance=tolerance) is None) == close(value, expected, **given_limits)  # type: ignore[arg-type]


INFINITY = torch.tensor([math.inf])
NOTHING = torch.empty(0, 3)
ZEROS = torch.zeros(2)
OF_THE_WHOLE = Tolerance(atol=1.0, rel_l2=0.5)


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "right"),
    [
        # Equal infinities are equal, and others are not.
        (INFINITY, INFINITY.clone(), None, True),
        (-INFINITY, INFINITY, None, False),
        (torch.tensor([1e30]), INFINITY, None, False),
        (INFINITY, torch.tensor([1e30]), Tolerance(rtol=10.0), False),
        # EXACT takes a negative zero for zero, and nothing else.
        (torch.tensor([-0.0]), torch.tensor([0.0]), EXACT, True),
        (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]), EXACT, False),
        # Integers use the declared tolerance; float64 has 53 bits, beyond which two int64 may differ.
        (torch.tensor([5]), torch.tensor([6]), None, False),
        (torch.tensor([5]), torch.tensor([6]), Tolerance(atol=1), True),
        (torch.tensor([2**53 + 1]), torch.tensor([2**53]), None, False),
        # Plain values, and nothing at all.
        ({"n": 3, "name": "x", "none": None}, {"n": 3, "name": "x", "none": None}, None, True),
        (NOTHING, NOTHING.clone(), None, True),
        (1.0 + 1e-7, 1.0, None, True),
        (1.001, 1.0, None, False),
        (math.nan, math.nan, None, True),
        (math.nan, 1.0, None, False),
        (2e300, 1e300, None, False),
        (1 + 1e-8j, 1 + 0j, None, True),
        (1, 1.0, None, False),
        (True, 1, None, False),
        # Dicts, in any order.
        ({"b": torch.ones(2), "a": 1}, {"a": 1, "b": torch.ones(2)}, None, True),
        ({"b": torch.ones(2), "a": 1}, {"a": torch.ones(2), "b": 1}, None, False),
        ({"b": 1}, {"a": 1}, None, False),
        # A limit of the whole where the baseline is zero.
        (ZEROS, ZEROS.clone(), OF_THE_WHOLE, True),
        (torch.tensor([0.0, 0.1]), ZEROS, OF_THE_WHOLE, False),
    ],
)
def test_what_is_equal(value: Any, expected: Any, tolerance: Tolerance | None, right: bool) -> None:
    assert (mismatch(value, expected, tolerance=tolerance) is None) is right


@pytest.mark.parametrize(
    ("value", "expected", "words"),
    [
        (torch.zeros(3), torch.zeros(4), "output has the shape [3], the baseline's has [4]"),
        (torch.zeros(1, 4), torch.zeros(3, 4), "output has the shape [1, 4], the baseline's has [3, 4]"),
        (torch.zeros(2).double(), torch.zeros(2), "output is float64, the baseline's is float32"),
        (torch.zeros(2).long(), torch.zeros(2).int(), "output is int64, the baseline's is int32"),
        (None, torch.zeros(2), "output is None, the baseline's is a float32 tensor"),
        (torch.zeros(2), 3, "output is a float32 tensor, the baseline's is 3"),
        (3, 4, "output is 3, the baseline's is 4"),
        (3, 3.0, "output is 3, the baseline's is 3.0"),
        (torch.ones(1).double(), 1 + 1e-6 * torch.ones(1).double(), "the worst, at [0], is 1.0 instead of 1.000001"),
        ((torch.zeros(2), torch.zeros(2)), torch.zeros(2), "returns [0], [1], the baseline returns one value"),
        ({"a": torch.zeros(2)}, {"b": torch.zeros(2)}, "returns a, the baseline returns b"),
        ([], torch.zeros(2), "returns nothing, the baseline returns one value"),
        (torch.tensor([math.nan, 1.0]), torch.ones(2), "has NaN in 1 of 2 elements, the baseline's in 0"),
        (torch.ones(2), torch.tensor([math.nan, 1.0]), "has NaN in 0 of 2 elements, the baseline's in 1, 1 of them"),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2), torch.zeros(2)), "output [1] differs from the baseline's"),
        ({"low": torch.ones(2)}, {"low": torch.zeros(2)}, "output low differs from the baseline's"),
        (
            {"a": [ZEROS, (ZEROS, torch.ones(2))], "b": ZEROS},
            {"a": [ZEROS, (ZEROS, ZEROS)], "b": ZEROS},
            "output a[1][1] differs from the baseline's",
        ),
        # An output beside a state is named once.
        ({"output": ZEROS, "state": {"a": ZEROS}}, {"output": ZEROS + 1, "state": {"a": ZEROS}}, "output differs"),
        (
            {"output": ZEROS, "state": {"seen": ZEROS}},
            {"output": ZEROS, "state": {"seen": ZEROS + 1}},
            "output state.seen differs",
        ),
    ],
    ids=lambda value: value.replace(" ", "_")[:30] if isinstance(value, str) else "",
)
def test_a_mismatch_says_what_is_wrong(value: Any, expected: Any, words: str) -> None:
    assert words in str(mismatch(value, expected))


def test_the_worst_element_is_named_with_both_values_whatever_the_strides() -> None:
    expected = torch.ones(4, 5)
    value = expected.t().contiguous().t()
    assert mismatch(value, expected) is None
    value[1, 2], value[3, 4] = 1.5, 3.0
    found = str(mismatch(value, expected))
    assert "in 2 of 20 elements (10.00%) beyond rtol 1.3e-06 and atol 1e-05" in found
    assert "the worst, at [3, 4], is 3 instead of 1" in found
    assert "at [], is 2 instead of 1" in str(mismatch(torch.tensor(2.0), torch.tensor(1.0)))


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tensor compared in many pieces: the same numbers as in one."""
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(101, generator=generator)
    value = expected + 1e-3 * torch.randn(101, generator=generator)
    value[70] += 3
    value[14:28] = expected[14:28]  # two whole pieces that are equal
    oracle = expected.double() + 1e-8
    whole = judge(value, expected, oracle, lambda *_: Tolerance(rtol=1e-3, atol_rms=1e-3))
    monkeypatch.setattr(module, "_CHUNK", 7)
    pieces = judge(value, expected, oracle, lambda *_: Tolerance(rtol=1e-3, atol_rms=1e-3))
    assert whole.mismatch == pieces.mismatch and "at [70]" in str(whole.mismatch)
    assert whole.correctness and pieces.correctness
    for name in Correctness.__dataclass_fields__:
        assert getattr(pieces.correctness, name) == pytest.approx(getattr(whole.correctness, name), rel=1e-12)


def test_the_numbers() -> None:
    expected = torch.tensor([1.0, 2.0, 4.0, 8.0])
    value = torch.tensor([1.0, 2.5, 4.0, 7.0])
    oracle = torch.tensor([1.0, 2.0, 4.0, 8.5], dtype=torch.float64)
    found = numbers(value, expected, oracle, Tolerance(rtol=0.5, atol=0.25))
    assert found.max_abs_error == 1.5
    assert found.mean_abs_error == pytest.approx((0.5 + 1.5) / 4)
    assert found.rel_l2_error == pytest.approx(math.sqrt(0.5**2 + 1.5**2) / math.sqrt(1 + 4 + 16 + 8.5**2))
    spacing = float(np.spacing(np.float32(8.5)))
    assert found.oracle_ratio == pytest.approx(1.5 / (0.5 + spacing / 2))
    assert (found.rtol, found.atol) == (0.5, 0.25)
    assert found.mismatched_fraction == 0
    assert found.margin == pytest.approx(1 - 0.5 / (0.25 + 0.5 * 2))
    found = numbers(torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 3]), Tolerance(atol=1))
    assert found.oracle_ratio is None and found.max_abs_error == 1, "integers have errors, but no ratio"
    found = numbers(torch.ones(2), torch.ones(2))
    errors = (found.max_abs_error, found.mean_abs_error, found.rel_l2_error, found.oracle_ratio)
    assert errors == (None,) * 4, "without an oracle"
    assert found.margin == 1 and numbers(torch.ones(2) * 2, torch.ones(2)).margin < 0
    assert numbers(torch.tensor([math.inf, 1]), torch.ones(2)).margin == -math.inf


def test_an_rms_tolerance_follows_the_output() -> None:
    """The limit is a part of the output's root mean square: scaling everything changes no verdict."""
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(1000, generator=generator, dtype=torch.float64)
    value = expected + 5e-4
    for scale in (1e-6, 1.0, 1e6):
        assert mismatch(value * scale, expected * scale, tolerance=Tolerance(atol_rms=1e-3)) is None
        assert mismatch(value * scale, expected * scale, tolerance=Tolerance(atol_rms=1e-4)) is not None
    rtol, atol = resolve_tolerance(expected, Tolerance(atol_rms=1e-3))
    assert rtol == 0 and atol == pytest.approx(1e-3 * float(expected.square().mean().sqrt()))
    _, atol = resolve_tolerance(torch.tensor([math.inf, math.nan, 3.0, -4.0]), Tolerance(atol_rms=1.0))
    assert atol == pytest.approx(math.sqrt((9 + 16) / 4))


def test_an_rms_tolerance_by_row_follows_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every row were an output of its own, however the work is cut into pieces."""
    by_row = Tolerance(rtol=1e-3, atol_rms=1e-2, rms_by_row=True)
    whole = Tolerance(rtol=1e-3, atol_rms=1e-2)
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1e-3, 1.0, 1e3, 0.0]).reshape(2, 2, 1)
    expected = torch.randn(2, 2, 50, generator=generator, dtype=torch.float64) * scale
    for chunk in (1 << 24, 60, 7):
        monkeypatch.setattr(module, "_CHUNK", chunk)
        for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for part in (0.9, 1.1):
                value = expected.clone()
                allowed = resolve_tolerance(expected[place], whole)
                value[(*place, 7)] += part * (float(allowed.atol) + allowed.rtol * float(expected[(*place, 7)].abs()))
                assert (mismatch(value, expected, tolerance=by_row) is None) == (part < 1 or place == (1, 1))
        value = expected.clone()
        value[1, 0, 3] += 1e5
        found = numbers(value, expected, tolerance=by_row)
        assert found.atol == pytest.approx(float(resolve_tolerance(expected[1, 0], whole).atol)), (
            "that of the worst element's row"
        )
    # Of a single row it is that of the output, and so it is where there is no row.
    assert resolve_tolerance(expected[0, 1], by_row) == resolve_tolerance(expected[0, 1], whole)
    assert resolve_tolerance(torch.tensor(3.0), by_row) == resolve_tolerance(torch.tensor(3.0), whole)
    assert resolve_tolerance(torch.empty(0, 4), by_row) == resolve_tolerance(torch.empty(0, 4), whole)


def test_the_oracle_rule_allows_twice_the_baselines_error_or_one_spacing() -> None:
    truth, loose = torch.ones(8, dtype=torch.float64), Tolerance(rtol=1.0)
    baseline = (truth + 2**-10).float()
    assert mismatch((truth + 1.9 * 2**-10).float(), baseline, truth, loose) is None
    beyond = (truth + 2.1 * 2**-10).float()
    assert "within the tolerance, but its largest error against the float64 oracle is 2.1 times the baseline's" in str(
        mismatch(beyond, baseline, truth, loose)
    )
    assert mismatch(beyond, baseline, None, loose) is None
    assert mismatch(torch.ones(8), torch.full((8,), 1.0 + 1e-6), truth) is None, "a better answer than the baseline's"
    exact = truth.float()
    assert mismatch(exact + 2**-23, exact, truth, loose) is None
    assert "the oracle rule allows 2" in str(mismatch(exact + 3 * 2**-23, exact, truth, loose))


def test_a_limit_of_the_whole_takes_the_place_of_the_oracle_rule() -> None:
    expected = torch.tensor([3.0, 4.0])
    oracle = expected.double()  # the baseline is exact, so by the oracle rule nothing else is right
    coarse = Tolerance(atol=1.0, rel_l2=0.1)
    assert mismatch(torch.tensor([3.3, 4.3]), expected, oracle, coarse) is None
    said = mismatch(torch.tensor([3.5, 4.0]), expected, oracle, Tolerance(atol=1.0, rel_l2=0.09))
    assert said is not None and "off the baseline's by 0.1 as a whole" in said and "0.09 is allowed" in said
    assert "oracle rule" in str(mismatch(torch.tensor([3.3, 4.3]), expected, oracle, Tolerance(atol=1.0)))
    assert mismatch(torch.tensor([4.5, 4.0]), expected, oracle, Tolerance(atol=1.0, rel_l2=1.0)) is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@given(magnitude=st.floats(1e-4, 6e4))
def test_spacing_is_that_of_numpy(dtype: torch.dtype, magnitude: float) -> None:
    numpy_type: Any = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}[dtype]
    rounded = float(numpy_type(magnitude))
    assert output_spacing(rounded, dtype) == float(np.spacing(numpy_type(rounded)))
    if dtype is torch.float32:
        assert output_spacing(0.0, dtype) == float(np.spacing(np.float32(0)))
        assert output_spacing(1e-40, dtype) == float(np.spacing(np.float32(1e-40)))
        assert output_spacing(1.0, torch.bfloat16) == 2**-7


def test_the_worst_of_several() -> None:
    def made(margin: float, error: float | None, rtol: float) -> OutputVerdict:
        names = dict.fromkeys(("max_abs_error", "rel_l2_error", "oracle_ratio"), error)
        rest = {"mean_abs_error": None, "mismatched_fraction": 0.0, "rtol": rtol, "atol": 0.0, "margin": margin}
        return OutputVerdict(mismatch=None, correctness=Correctness(**names, **rest))  # type: ignore[arg-type]

    nothing = OutputVerdict(mismatch=None, correctness=None)
    found = worst((nothing, made(0.5, 3.0, 0.1), made(0.2, 1.0, 0.2), made(0.9, None, 0.3)))
    assert found and (found.margin, found.rtol, found.max_abs_error, found.oracle_ratio) == (0.2, 0.2, 3.0, 3.0)
    assert found.mean_abs_error is None


def many(**others: float) -> torch.Tensor:
    """Return bf16 ones, with other values at the places `at_N`."""
    values = torch.ones(20_000, dtype=torch.bfloat16)
    for place, value in others.items():
        values[int(place.removeprefix("at_"))] = value
    return values


TWO_SPACINGS = Tolerance(rtol=1.6e-2)
TRUTH = torch.ones(20_000, dtype=torch.float64)


def test_an_element_in_ten_thousand_may_be_off_the_baseline_if_it_is_right() -> None:
    """The baseline is three spacings above the variant there, and the truth lies between them."""
    value, expected = many(at_5=0.99), many(at_5=1.015625)
    found = judge(value, expected, TRUTH, lambda *_: TWO_SPACINGS)
    assert (found.mismatch, found.strays) == (None, 1)
    assert found.correctness is not None
    assert found.correctness.margin == 1.0
    assert found.correctness.mismatched_fraction == 1 / 20_000
    assert "in 1 of 20000" in str(mismatch(value, expected, None, TWO_SPACINGS))


@pytest.mark.parametrize(
    ("variant", "baseline", "let_through"),
    [
        pytest.param({"at_7": 0.9765625}, {"at_5": 1.0234375}, True, id="as far as the baseline elsewhere"),
        pytest.param({"at_7": 0.9765625}, {"at_7": 1.0078125}, False, id="the baseline keeps the tolerance"),
        pytest.param({"at_7": 0.97265625}, {"at_7": 1.0234375}, False, id="further than the baseline"),
        pytest.param({"at_7": 0.9765625, "at_8": 0.9765625}, {"at_7": 1.0234375}, False, id="more of them"),
        pytest.param(
            {"at_7": 0.9765625, "at_8": 0.984375}, {"at_7": 1.0234375, "at_8": 1.0078125}, True, id="beside a right one"
        ),
        pytest.param({"at_7": 0.96484375}, {"at_7": 1.0625}, False, id="beyond twice the tolerance"),
        # A baseline as bad, so that the oracle rule has nothing against the variant.
        pytest.param({"at_5": 1.0625}, {"at_5": 0.9375}, False, id="off both"),
        pytest.param(*({f"at_{at}": value for at in (5, 6, 7)} for value in (0.99, 1.015625)), False, id="not few"),
    ],
)
def test_a_stray_is_as_near_to_the_truth_as_the_baseline(
    variant: dict[str, float], baseline: dict[str, float], let_through: bool
) -> None:
    """Two spacings are 0.016 here: the baseline does not keep them to the truth itself."""
    found = judge(many(**variant), many(**baseline), TRUTH, lambda *_: TWO_SPACINGS)
    assert (found.mismatch is None) == let_through
    assert (found.strays > 0) == let_through
    assert let_through or not quickly_right(many(**variant), many(**baseline), TRUTH)


def quickly_right(value: torch.Tensor, expected: torch.Tensor, truth: torch.Tensor) -> bool:
    return strays_right(value, expected, truth, lambda *_: TWO_SPACINGS, Known())


def test_strays_are_found_without_a_look_at_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 300)
    assert quickly_right(many(at_5=0.99, at_9=0.99), many(at_5=1.015625), TRUTH)
    assert quickly_right(many(), many(), TRUTH)
    assert not quickly_right(many(at_5=0.99), many(at_5=1.015625), many(at_5=1.0625).double())
    assert not quickly_right(many(at_5=math.nan), many(at_5=1.015625), TRUTH)
    small, few = many(at_5=0.99, at_6=0.99)[:9_000], many(at_5=1.015625, at_6=1.015625)[:9_000]
    assert "in 2 of 9000" in str(mismatch(small, few, TRUTH[:9_000], TWO_SPACINGS)), "strays are few"
    value, expected, truth = (tensor.view(10_000, 2) for tensor in (many(at_5=0.99), many(at_5=1.015625), TRUTH))
    by_row = Tolerance(rtol=0, atol=0, atol_rms=1.6e-2, rms_by_row=True)
    assert strays_right(value, expected, truth, lambda *_: by_row, Known())
    assert not strays_right(value, expected, truth, lambda *_: replace(by_row, atol_rms=1e-3), Known())


def clear(value: Any, expected: Any, tolerance: Tolerance | None = None) -> bool:
    return clear_by_draw(value, expected, lambda *_: tolerance or Tolerance())


LARGE = torch.randn(5_000_000, generator=torch.Generator().manual_seed(0))


def test_a_large_output_is_clear_where_elements_of_it_are() -> None:
    assert clear(LARGE.clone(), LARGE)
    assert clear(LARGE * (1 + 4e-7), LARGE) and not clear(LARGE * (1 + 1e-4), LARGE)
    assert clear({"y": LARGE.bfloat16()}, {"y": LARGE.bfloat16()}) and not clear({"z": LARGE}, {"y": LARGE})


@pytest.mark.parametrize("wrong", [0.0, math.nan, math.inf])
def test_what_leaves_out_a_thousandth_of_a_large_output_is_never_clear(wrong: float) -> None:
    for start in (0, 1_234_567, len(LARGE) - 5_000):
        lies = LARGE.clone()
        lies[start : start + 5_000] = wrong
        assert not clear(lies, LARGE)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_nothing_beyond_the_tolerance_is_clear(dtype: torch.dtype, size: int) -> None:
    """It is so even where one element of many is off, and where a large value makes the RMS of the others."""
    expected = LARGE[:size].to(dtype)
    expected[-1] = 100.0
    for tolerance in (Tolerance(), Tolerance(rtol=1e-2, atol=0.0, atol_rms=1e-2), EXACT):
        allowed = resolve_tolerance(expected, tolerance)
        limit = allowed.atol + allowed.rtol * expected.double().abs()
        for part, place in ((1.1, 0), (1.1, size // 2), (0.2, 0)):
            value = expected.double()
            value[place] += part * limit[place]
            value = value.to(dtype)
            assert not clear(value, expected, tolerance) or mismatch(value, expected, tolerance=tolerance) is None
        assert clear(expected.clone(), expected, tolerance)


def test_what_cannot_be_told_from_a_part_is_left_to_the_judge() -> None:
    expected = torch.tensor([1.0, 2.0, math.inf, 4.0])
    assert not clear(torch.tensor([1.0, 9.0, math.inf, 4.0]), expected, Tolerance(atol_rms=1e-3))
    huge = torch.tensor([3e38, 1.0, 2.0])
    assert not clear(torch.tensor([3e38, 1.0, 5.0]), huge, Tolerance(atol_rms=1e-3)), "its RMS is infinite in float32"
    rows = torch.tensor([[1e4, 1e4], [1.0, 1.0]])
    off = torch.tensor([[1e4, 1e4], [1.5, 1.0]])
    assert not clear(off, rows, Tolerance(rtol=0.0, atol=0.0, atol_rms=1e-2, rms_by_row=True))
    assert not clear(LARGE, LARGE, Tolerance(rel_l2=0.1)) and not clear(torch.ones(3).long(), torch.ones(3).long())
