"""The contract's exit codes, for every outcome."""

import pytest

from pairbench.model.comparison import Change, Comparison, EraChange, GateOutcome, Side, Verdict
from pairbench.model.record import Series

SERIES = Series(device_name="D", suite="s.py", case="op[n=1]", implementation="fast", mode="eager")


def comparison(*found: tuple[GateOutcome, Verdict | None], problems: tuple[str, ...] = ()) -> Comparison:
    changes = tuple(
        Change(series=SERIES, role="variant", tier=None, outcome=outcome, verdict=verdict, reason="")
        for outcome, verdict in found
    )
    side = Side(asked="", runs=())
    return Comparison(reference=side, current=side, changes=changes, problems=problems)


GOOD = (GateOutcome.UNCHANGED, Verdict.SAME)


@pytest.mark.parametrize(
    ("outcome", "plain", "strict"),
    [
        (GateOutcome.REGRESSION, 1, 1),
        (GateOutcome.FAILED, 1, 1),
        (GateOutcome.UNDECIDED, 0, 3),
        (GateOutcome.MISSING, 0, 3),
        (GateOutcome.INCOMPARABLE, 0, 3),
        (GateOutcome.NEW, 0, 0),
        (GateOutcome.IMPROVEMENT, 0, 0),
        (GateOutcome.UNCHANGED, 0, 0),
    ],
)
def test_each_outcome_beside_a_good_one(outcome: GateOutcome, plain: int, strict: int) -> None:
    found = comparison(GOOD, (outcome, None))
    assert (found.exit_code(), found.exit_code(strict=True)) == (plain, strict)
    assert found.outcomes[outcome] >= 1


@pytest.mark.parametrize("found", [[], [(GateOutcome.NEW, None)], [(GateOutcome.UNCHANGED, None)]])
def test_strict_wants_something_to_have_been_compared_and_everything_read(
    found: list[tuple[GateOutcome, Verdict | None]],
) -> None:
    """All new, or skipped on both sides: nothing was looked at. Or not everything could be read."""
    for one in (comparison(*found), comparison(GOOD, problems=("x.parquet: damaged",))):
        assert (one.exit_code(), one.exit_code(strict=True)) == (0, 3)


def test_an_era_change_reads_well() -> None:
    assert str(EraChange(field="driver", reference="580.1", current="580.2")) == "driver 580.1 -> 580.2"
    assert str(EraChange(field="triton", reference=None, current="3.6")) == "triton none -> 3.6"
