"""A margin that shrinks is seen before it is gone."""

import math
from dataclasses import replace

import pytest

from pairbench.analyze.compare.exact import judge_margin
from pairbench.model.comparison import GateOutcome
from tests.builders import make_run

RECORD = make_run(0)[0]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (0.9, 0.9, GateOutcome.UNCHANGED),
        (0.9, 0.6, GateOutcome.UNCHANGED),
        (1.0, 0.5, GateOutcome.UNCHANGED),
        (0.9, 0.3, GateOutcome.UNDECIDED),
        (0.2, 0.09, GateOutcome.UNDECIDED),
        (0.2, 0.18, GateOutcome.UNCHANGED),
        (0.2, 0.9, GateOutcome.UNCHANGED),
        (0.5, None, GateOutcome.UNDECIDED),
        (0.5, math.nan, GateOutcome.UNDECIDED),
    ],
)
def test_half_of_it_lost_and_less_than_half_left(before: float, now: float | None, expected: GateOutcome) -> None:
    (found,) = judge_margin(replace(RECORD, margin=before), replace(RECORD, margin=now))
    assert (found.metric, found.outcome) == ("margin", expected)
    assert (found.reference, found.current) == (before, now)


def test_the_oracle_rule_has_a_margin_too() -> None:
    before, now = (replace(RECORD, margin=None, oracle_ratio=ratio) for ratio in (0.5, 1.6))
    (found,) = judge_margin(before, now)
    assert (found.metric, found.outcome) == ("oracle_ratio", GateOutcome.UNDECIDED)
    assert "only 20 % of the oracle rule is left, before 75 %" in found.reason
    (fine,) = judge_margin(now, now)
    assert fine.outcome is GateOutcome.UNCHANGED


def test_without_a_reference_there_is_nothing_to_say() -> None:
    assert judge_margin(replace(RECORD, margin=None), RECORD) == []
