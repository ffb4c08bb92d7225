"""A level that was accepted is no news; what goes beyond it is."""

from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.exact import AcceptedLevel, acceptance_of
from pairbench.analyze.compare.runs import compare
from pairbench.errors import UsageError
from pairbench.model.comparison import Acceptance, Change, GateOutcome
from pairbench.model.record import Series
from tests.builders import ended, make_run, run_id_of

MANY = tuple(f"rms_norm[tokens={number}]" for number in range(20))
BEFORE = make_run(0, cases=MANY)
RECORD = BEFORE[7]
SERIES = Series.of(RECORD)
assert SERIES is not None
ONE = f"{RECORD.case}-{RECORD.implementation}"
LEVEL = Acceptance(
    series=SERIES,
    definition_hash=RECORD.definition_hash,
    p50_ns=110_000.0,
    p95_ns=115_500.0,
    exact={"launches_per_call": 2, "peak_bytes": 1 << 24, "margin": 0.1},
    run_id=run_id_of(1),
    at="2026-01-02T00:00:00+00:00",
    reason="correct at last",
)


def judged(acceptance: Acceptance | None = LEVEL, slower: float = 1.0, **columns: Any) -> Change:
    run = [
        replace(record, **columns) if Series.of(record) == SERIES else record
        for record in make_run(2, cases=MANY, slower={ONE: slower})
    ]
    changes = compare(BEFORE, run, accepted={acceptance.series: acceptance} if acceptance else {})
    (found,) = [change for change in changes if change.series == SERIES]
    return found


@pytest.mark.parametrize("worse", [{"slower": 1.1}, {"launches_per_call": 2}, {"peak_bytes": 1 << 24}, {"margin": 0.2}])
def test_what_was_accepted_is_unchanged_and_says_why(worse: dict[str, Any]) -> None:
    assert judged(None, **worse).outcome in (GateOutcome.REGRESSION, GateOutcome.UNDECIDED)
    found = judged(**worse)
    assert (found.outcome, found.accepted) == (GateOutcome.UNCHANGED, "correct at last")
    assert "correct at last" in found.reason and run_id_of(1) in found.reason


@pytest.mark.parametrize(
    "worse",
    [{"slower": 1.15}, {"launches_per_call": 3}, {"kernels_per_call": 2}, {"peak_bytes": 1 << 25}, {"margin": 0.05}],
)
def test_what_goes_beyond_is_not_covered(worse: dict[str, Any]) -> None:
    found = judged(**worse)
    assert found.outcome is judged(None, **worse).outcome is not GateOutcome.UNCHANGED
    assert found.accepted is None


@pytest.mark.parametrize(
    ("acceptance", "columns"),
    [
        (LEVEL, {"slower": 1.1, "launches_per_call": 3}),  # one accepted worsening does not cover another
        (replace(LEVEL, definition_hash="other"), {"slower": 1.1}),
        (replace(LEVEL, p50_ns=None), {"slower": 1.1}),
    ],
)
def test_another_worsening_question_or_level_was_not_accepted(acceptance: Acceptance, columns: dict[str, Any]) -> None:
    found = judged(acceptance, **columns)
    assert (found.outcome, found.accepted) == (GateOutcome.REGRESSION, None)
    unmoved = judged(acceptance)
    assert (unmoved.outcome, unmoved.accepted) == (GateOutcome.UNCHANGED, None)


@pytest.mark.parametrize(
    ("metric", "value", "within"),
    [
        ("call_p50_ns", 110_000.0 * 1.08, True),
        ("call_p50_ns", 110_000.0 * 1.081, False),
        ("call_p95_ns", 115_500.0 * 1.08, True),
        ("call_p95_ns", 115_500.0 * 1.081, False),
        ("call_p50_ns", None, False),
        ("launches_per_call", 2, True),
        ("launches_per_call", 3, False),
        ("peak_bytes", (1 << 24) + (1 << 20), True),
        ("peak_bytes", (1 << 24) + (1 << 20) + 1, False),
        ("margin", 0.1, True),
        ("margin", 0.09, False),
        ("ops_per_call", 1, False),
    ],
)
def test_what_an_accepted_level_covers(metric: str, value: float | None, within: bool) -> None:
    level = AcceptedLevel(acceptance=LEVEL, minimum_effect=0.08)
    assert level.covers(metric, value, LEVEL.definition_hash) == within
    assert not level.covers(metric, value, "another definition")


def test_what_is_accepted_is_the_runs_own_latency_and_counts() -> None:
    found = acceptance_of(LEVEL.series, [RECORD], run_id=RECORD.run_id, at="2026", reason="right")
    assert (found.p50_ns, found.p95_ns) == (RECORD.call_p50_ns, RECORD.call_p95_ns)
    assert found.exact["launches_per_call"] == RECORD.launches_per_call and found.exact["margin"] == RECORD.margin
    with pytest.raises(UsageError, match=r"has no level to accept in run .*: failed: made up"):
        acceptance_of(LEVEL.series, [ended(RECORD, "failed")], run_id=RECORD.run_id, at="2026", reason="right")
