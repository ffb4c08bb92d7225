from dataclasses import replace

import pytest

from pairbench.analyze.compare.runs import compare
from pairbench.features.ab import with_outputs
from pairbench.model.comparison import Attribution, Change, GateOutcome
from pairbench.model.outcome import Agreement, Correctness, OutputsCompared
from pairbench.model.plan import Entry
from pairbench.model.record import Record, Series
from tests.builders import ended, make_run, only

FUSED = Entry(implementation="fused", mode="eager")


def sides(slower: dict[str, float] | None = None) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Return two sides with the same environment, which agree but for the planted change."""
    return make_run(0), tuple(replace(record, run_id="now") for record in make_run(0, slower=slower))


def outputs(records: tuple[Record, ...], agreement: Agreement, **more: object) -> dict[Series, OutputsCompared]:
    found = OutputsCompared(entry=FUSED, agreement=agreement, **more)  # type: ignore[arg-type]
    return {series: found for record in only(records, implementation="fused") if (series := Series.of(record))}


def in_turns(
    before: tuple[Record, ...], now: tuple[Record, ...], known: dict[Series, OutputsCompared] | None = None
) -> tuple[Change, ...]:
    changes = compare(before, now, interleaved=True)
    return tuple(with_outputs(change, (known or {}).get(change.series)) for change in changes)


def of(changes: tuple[Change, ...], implementation: str) -> list[Change]:
    return [change for change in changes if change.series.implementation == implementation]


def test_the_same_is_unchanged() -> None:
    found = in_turns(*sides())
    assert {change.outcome for change in found} == {GateOutcome.UNCHANGED} and len(found) == 4


def test_what_slows_variant_and_control_alike_is_the_code_for_the_machine_was_the_same() -> None:
    found = in_turns(*sides({"fused": 1.05, "baseline": 1.05}))
    assert {(change.outcome, change.attribution) for change in found} == {(GateOutcome.REGRESSION, Attribution.CODE)}
    assert all(change.control is not None and change.control.estimate == pytest.approx(1.05) for change in found)
    assert all("its control moved +5.0 %" in change.reason for change in found)


def test_a_count_is_judged_exactly() -> None:
    before, now = sides()
    found = in_turns(before, tuple(replace(record, ops_per_call=7) for record in now))
    assert {change.outcome for change in of(found, "baseline")} == {GateOutcome.REGRESSION}


def test_outputs_that_contradict_each_other_fail_whatever_the_latency() -> None:
    before, now = sides({"fused": 0.5})
    different = outputs(now, Agreement.DIFFERENT, reason="output differs in 3 of 4 elements")
    for change in of(in_turns(before, now, different), "fused"):
        assert change.outcome is GateOutcome.FAILED and change.attribution is Attribution.CODE
        assert change.judgements[0].metric == "outputs" and "3 of 4 elements" in change.reason


@pytest.mark.parametrize("agreement", [Agreement.EQUAL, Agreement.WITHIN])
def test_outputs_that_agree_change_nothing_and_are_told(agreement: Agreement) -> None:
    before, now = sides()
    unknown = dict.fromkeys(("max_abs_error", "mean_abs_error", "rel_l2_error", "oracle_ratio"))
    distances = Correctness(**unknown, mismatched_fraction=0.0, rtol=0.0, atol=1.0, margin=0.25)
    found = in_turns(before, now, outputs(now, agreement, correctness=distances))
    for change in of(found, "fused"):
        assert change.outcome is GateOutcome.UNCHANGED and change.judgements[-1].metric == "outputs"
        assert ("25 %" in change.judgements[-1].reason) is (agreement is Agreement.WITHIN)


def test_outputs_that_nobody_could_compare_leave_it_undecided_but_hide_no_regression() -> None:
    before, now = sides({"fused": 1.1})
    unknown = outputs(now, Agreement.UNKNOWN, reason="the inputs differ")
    assert {change.outcome for change in of(in_turns(before, now, unknown), "fused")} == {GateOutcome.REGRESSION}
    for change in of(in_turns(before, before, unknown), "fused"):
        assert change.outcome is GateOutcome.UNDECIDED and "the inputs differ" in change.reason


def test_what_is_not_on_both_sides_keeps_its_name() -> None:
    before, now = sides()
    found = in_turns(before[:3], (*now[:2], ended(now[3], "failed", "boom")))
    assert sorted(change.outcome.value for change in found) == ["failed", "missing", "unchanged", "unchanged"]
