import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.errors import DeclarationError
from pairbench.model.case import EXACT, REASSOCIATED, TF32_SPACING, Tolerance, with_tf32

limits = st.floats(0, 1e300)


@given(limits)
def test_one_limit_makes_the_others_zero_and_none_leaves_the_defaults_of_the_dtype(limit: float) -> None:
    assert Tolerance(rtol=limit) == Tolerance(rtol=limit, atol=0.0)
    assert Tolerance(atol=limit) == Tolerance(rtol=0.0, atol=limit)
    assert Tolerance(rtol=0.0) == Tolerance(atol=0.0) == EXACT
    if limit:
        assert Tolerance(atol_rms=limit) == Tolerance(rtol=0.0, atol=0.0, atol_rms=limit)
    assert (Tolerance().rtol, Tolerance().atol, Tolerance().atol_rms) == (None, None, 0.0)


@pytest.mark.parametrize("name", ["rtol", "atol", "atol_rms"])
@pytest.mark.parametrize("value", [-1e-9, math.inf, math.nan, "1e-3", [1e-3]])
def test_what_is_no_limit_is_refused(name: str, value: object) -> None:
    with pytest.raises(DeclarationError, match=rf"Tolerance: {name} is .*, expected a finite number, 0 or more"):
        Tolerance(**{name: value})  # type: ignore[arg-type]


def test_rows_are_a_yes_or_no() -> None:
    with pytest.raises(DeclarationError, match="Tolerance: rms_by_row is -1, expected True or False"):
        Tolerance(rms_by_row=-1)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="rms_by_row is True without atol_rms"):
        Tolerance(rtol=1e-3, rms_by_row=True)


def test_reassociated_is_wider_for_narrower_dtypes() -> None:
    order = [REASSOCIATED[dtype] for dtype in ("float64", "float32", "float16", "bfloat16")]
    rtols = [tolerance.rtol for tolerance in order if tolerance.rtol is not None]
    assert len(rtols) == 4
    assert rtols == sorted(rtols)
    assert [tolerance.atol_rms for tolerance in order] == sorted(tolerance.atol_rms for tolerance in order)


def test_a_limit_that_nobody_set_is_in_no_definition_hash() -> None:
    """They are made of this text, and files of earlier releases hold them."""
    assert repr(REASSOCIATED["float32"]) == "Tolerance(rtol=0.0001, atol=0.0, atol_rms=1e-05)"
    assert repr(Tolerance(rtol=0.5)) == "Tolerance(rtol=0.5, atol=0.0, atol_rms=0.0)"
    assert repr(Tolerance(atol_rms=1, rms_by_row=True)).endswith("atol_rms=1, rms_by_row=True)")
    assert repr(Tolerance(atol=1, rel_l2=0.5)) == "Tolerance(rtol=0.0, atol=1, atol_rms=0.0, rel_l2=0.5)"


@given(limits, limits, limits, limits)
def test_tf32_widens_what_is_less_and_leaves_what_is_more(rtol: float, atol: float, rms: float, whole: float) -> None:
    given = Tolerance(rtol=rtol, atol=atol, atol_rms=rms, rel_l2=whole)
    wider = with_tf32(given)
    assert wider.atol == given.atol and wider.spacing == TF32_SPACING
    assert wider.rtol == max(rtol, TF32_SPACING) and wider.atol_rms == max(rms, TF32_SPACING)
    assert wider.rel_l2 == max(whole, TF32_SPACING)
    assert with_tf32(wider) == wider


def test_tf32_adds_no_limit_and_keeps_data_exact() -> None:
    assert with_tf32(EXACT) == EXACT
    assert with_tf32(Tolerance()) == Tolerance(
        rtol=TF32_SPACING, atol=1e-5, atol_rms=TF32_SPACING, spacing=TF32_SPACING
    )
    assert with_tf32(Tolerance(rtol=1e-6, atol_rms=1e-6, rms_by_row=True)).rms_by_row
