from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.analyze.compare.rounds import latency_of_run, latency_of_runs
from pairbench.analyze.compare.runs import compare
from pairbench.config import Config, load_config
from pairbench.features.levels import accept_level
from pairbench.model.comparison import Change, Comparison, Floor, Judgement, Side
from pairbench.model.record import CALL, Record, Series
from pairbench.report.comparison import render_comparison
from pairbench.report.render import Terminal
from pairbench.store.documents import write_document
from pairbench.store.reader import RunIndex
from pairbench.workflow.comparer import Comparer
from pairbench.workflow.lookup import newest_calibrations, past_floors, widest
from tests.builders import CASES, change_of, judgement_of, make_calibration, make_run, only, write_runs

NOW = make_run(20)
SERIES = {series for record in NOW if (series := Series.of(record))}
ONE = min(SERIES)
CALIBRATION = make_calibration({ONE: Floor(p50=0.04, p95=0.05, runs=2, source="calibration")})


def test_floors_come_from_earlier_clean_runs_of_the_device(tmp_path: Path) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(8)), NOW, make_run(21))
    index = RunIndex.of_store(tmp_path)
    current = index.beginning(NOW[0].run_id)
    found = past_floors(index, current, SERIES)
    assert found.keys() == SERIES
    assert all(floor.runs == 8 and floor.source == "history" and 0.001 < floor.p50 < 0.02 for floor in found.values())
    assert past_floors(index, current, {ONE}).keys() == {ONE}


def test_dirty_runs_other_devices_and_the_run_itself_say_nothing(tmp_path: Path) -> None:
    others = [make_run(number, device_name="NVIDIA B200") for number in range(5)]
    write_runs(tmp_path, *others, *(make_run(number, dirty=True) for number in range(5, 10)), NOW)
    index = RunIndex.of_store(tmp_path)
    assert past_floors(index, index.first(1), SERIES) == {}


def test_the_newest_calibration_of_the_same_environment_counts() -> None:
    later = replace(CALIBRATION, calibration_id="c2", made_at="2024-02-01T00:00:00+00:00", floors={})
    elsewhere = replace(
        CALIBRATION, calibration_id="c3", made_at="2024-03-01T00:00:00+00:00", environment_hash="0" * 16
    )
    other = replace(CALIBRATION, device_name="NVIDIA B200")
    shown, floors = newest_calibrations([elsewhere, later, other, CALIBRATION], NOW)
    assert shown == (later,) and floors == CALIBRATION.floors
    assert newest_calibrations([elsewhere, other], NOW)[0] == (elsewhere,)
    assert newest_calibrations([other], NOW) == ((), {})


def test_the_wider_floor_holds() -> None:
    narrow = Floor(p50=0.01, p95=0.2, runs=30, source="history")
    assert widest({ONE: narrow}, CALIBRATION.floors) == CALIBRATION.floors
    assert widest({ONE: narrow}, {}) == {ONE: narrow}


def test_a_calibrated_floor_keeps_noise_from_being_an_alarm(tmp_path: Path) -> None:
    runs = [make_run(0), make_run(1), make_run(2, slower={f"{ONE.case}-{ONE.implementation}": 1.05})]
    write_runs(tmp_path / "results", *runs)
    config = load_config(tmp_path, store=str(tmp_path / "results"))
    assert Comparer.open(config).compare().exit_code() == 1
    write_document(config.store, CALIBRATION)
    judged = Comparer.open(config).compare()
    assert judged.exit_code() == 0 and judged.comparison.calibrations == (CALIBRATION,)


ROUNDS = (399_000.0, 399_400.0, 586_000.0)
"""One of three processes was in another state: the median of all samples is that of most, the mean of the rounds is not."""


def two_states(record: Record) -> Record:
    return replace(record, call_p50_ns=399_200.0, round_p50_ns=ROUNDS, n_rounds=3)


def p50(changes: Sequence[Change]) -> Judgement:
    return judgement_of(change_of(changes, CASES[0]), CALL.p50)


def p50_of(records: Sequence[Record]) -> float | None:
    (record,) = only(records, implementation="fused", case=CASES[0])
    return record.call_p50_ns


def rendered(changes: tuple[Change, ...], *reference: str, output: str = "table") -> str:
    before, now = Side(asked="main", runs=reference), Side(asked="d", runs=("d",))
    return render_comparison(Comparison(reference=before, current=now, changes=changes), output, terminal=Terminal())


def test_a_comparison_shows_the_p50_of_the_record_and_where_rounds_disagree_the_reason_gives_both() -> None:
    before = make_run(0, slower={"fused": 4.0})
    now = [two_states(record) if record.implementation == "fused" else record for record in make_run(1)]
    changes = compare(before, now)
    judged = p50(changes)
    assert (judged.reference, judged.current) == (p50_of(before), 399_200.0)
    assert judged.change and judged.change.estimate == pytest.approx(1.134, rel=0.01)
    assert "geometric mean, 399.6 us -> 453.7 us" in judged.reason and "399.2 us" in judged.reason
    text = rendered(changes, "a")
    assert "the rounds of a side disagree" in text and "399.8 us" in text and "399.2 us" in text
    assert "disagree" not in p50(compare(make_run(0), make_run(1))).reason


def test_of_several_runs_the_median_is_shown_and_the_table_says_so() -> None:
    before = [record for number in range(3) for record in make_run(number, slower={"fused": 1 + number / 1000})]
    changes = compare(before, make_run(3))
    own = [one.call_p50_ns or 0.0 for one in only(before, implementation="fused", case=CASES[0])]
    assert p50(changes).reference == sorted(own)[1]
    for output in ("table", "markdown"):
        text = rendered(changes, "a", "b", "c", output=output)
        assert "of several runs their median" in text and "geometric mean of the rounds" in text


def test_two_commits_in_turns_show_the_p50_of_their_records() -> None:
    before, now = make_run(0), make_run(1, slower={"fused": 1.1})
    assert p50(compare(before, now, interleaved=True)).current == p50_of(now)


def test_what_is_accepted_is_what_is_shown(tmp_path: Path) -> None:
    run = [two_states(record) for record in make_run(0)]
    write_runs(tmp_path, run)
    config = Config(root=tmp_path, store=str(tmp_path))
    stored = accept_level(config, "*-fused-eager", reason="right")
    assert {one.p50_ns for one, _ in stored.value} == {399_200.0}


def test_rows_without_a_pooled_latency_or_with_none_at_all() -> None:
    record = make_run(0)[0]
    assert latency_of_run(replace(record, call_p50_ns=None, round_p50_ns=(1.0, 2.0, 9.0)), CALL.p50) == 2.0
    assert latency_of_run(replace(record, call_p50_ns=None, round_p50_ns=None), CALL.p50) is None
    assert str(latency_of_runs([], CALL.p50)) == "nan"
