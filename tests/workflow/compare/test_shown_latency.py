"""One P50: what a comparison prints of a run is what `show` prints of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.analyze.compare.rounds import latency_of_run, latency_of_runs
from pairbench.analyze.compare.runs import compare
from pairbench.config import Config
from pairbench.features.ab.measure import compare_interleaved
from pairbench.features.accept import accept_level
from pairbench.model.comparison import Change, Comparison, Judgement, Side
from pairbench.model.latency import CALL
from pairbench.model.record import Record
from pairbench.report.comparison import render_comparison
from pairbench.report.render import Terminal
from tests.builders import CASES, make_run, write_runs

ROUNDS = (399_000.0, 399_400.0, 586_000.0)
"""One of three processes was in another state: the median of all samples is that of most, the mean of the rounds is not."""


def two_states(record: Record) -> Record:
    return replace(record, call_p50_ns=399_200.0, round_p50_ns=ROUNDS, n_rounds=3)


def fused(changes: Sequence[Change]) -> Change:
    return next(one for one in changes if (one.series.implementation, one.series.case) == ("fused", CASES[0]))


def p50(change: Change) -> Judgement:
    return next(judgement for judgement in change.judgements if judgement.metric == CALL.p50)


def test_a_comparison_shows_the_p50_of_the_record() -> None:
    before = make_run(0, slower={"fused": 4.0})
    now = [two_states(record) if record.implementation == "fused" else record for record in make_run(1)]
    change = fused(compare(before, now))
    record = next(one for one in before if (one.implementation, one.case) == ("fused", CASES[0]))
    assert (p50(change).reference, p50(change).current) == (record.call_p50_ns, 399_200.0)
    assert p50(change).change and p50(change).change.estimate == pytest.approx(1.134, rel=0.01)  # type: ignore[union-attr]


def test_where_rounds_disagree_the_reason_gives_both_and_is_shown() -> None:
    before = make_run(0, slower={"fused": 4.0})
    now = [two_states(record) if record.implementation == "fused" else record for record in make_run(1)]
    changes = compare(before, now)
    assert "geometric mean, 399.6 us -> 453.7 us" in p50(fused(changes)).reason
    assert "399.2 us" in p50(fused(changes)).reason
    side = Side(asked="x", runs=("x",))
    text = render_comparison(Comparison(reference=side, current=side, changes=changes), "table", terminal=Terminal())
    assert "the rounds of a side disagree" in text and "399.8 us" in text and "399.2 us" in text


def test_where_they_agree_no_word_is_said_of_it() -> None:
    assert "disagree" not in p50(fused(compare(make_run(0), make_run(1)))).reason


def test_of_several_runs_the_median_is_shown_and_the_table_says_so() -> None:
    before = [record for number in range(3) for record in make_run(number, slower={"fused": 1 + number / 1000})]
    changes = compare(before, make_run(3))
    own = [one.call_p50_ns for one in before if (one.implementation, one.case) == ("fused", CASES[0])]
    assert p50(fused(changes)).reference == sorted(filter(None, own))[1]
    side = Side(asked="main", runs=("a", "b", "c"))
    for output in ("table", "markdown"):
        text = render_comparison(
            Comparison(reference=side, current=Side(asked="d", runs=("d",)), changes=changes),
            output,
            terminal=Terminal(),
        )
        assert "of several runs their median" in text and "geometric mean of the rounds" in text


def test_two_commits_in_turns_show_the_p50_of_their_records() -> None:
    before, now = make_run(0), make_run(1, slower={"fused": 1.1})
    change = fused(compare_interleaved(before, now))
    record = next(one for one in now if (one.implementation, one.case) == ("fused", CASES[0]))
    assert p50(change).current == record.call_p50_ns


def test_what_is_accepted_is_what_is_shown(tmp_path: Path) -> None:
    run = [two_states(record) for record in make_run(0)]
    write_runs(tmp_path, run)
    config = Config(root=tmp_path, store=str(tmp_path))
    stored = accept_level(config, "*-fused-eager", reason="right")
    assert {one.p50_ns for one, _ in stored.acceptances} == {399_200.0}


def test_rows_without_a_pooled_latency_or_with_none_at_all() -> None:
    record = make_run(0)[0]
    assert latency_of_run(replace(record, call_p50_ns=None, round_p50_ns=(1.0, 2.0, 9.0)), CALL.p50) == 2.0
    assert latency_of_run(replace(record, call_p50_ns=None, round_p50_ns=None), CALL.p50) is None
    assert str(latency_of_runs([], CALL.p50)) == "nan"
