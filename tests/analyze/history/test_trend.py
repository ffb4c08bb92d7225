"""Trends of made-up runs: where they moved, the likely cause, and the verdict on the newest runs, before there can be a changepoint."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.compare.exact import AcceptedLevel
from pairbench.analyze.history.trend import NewestRuns, Trend, judge_newest, make_trend
from pairbench.model.comparison import Acceptance, Attribution, Floor, GateOutcome, Verdict
from pairbench.model.record import Record, Series
from pairbench.stats import Floats
from tests.builders import CASES, DEVICE, SUITE, detect, ended, make_run, run_id_of, sha

CASE = CASES[0]
FUSED = Series(device_name=DEVICE, suite=SUITE, case=CASE, implementation="fused", mode="eager")
BASELINE = replace(FUSED, implementation="baseline")

Vary = Callable[[int, Record], Record]


def runs(
    number: int, slower: Mapping[int, Mapping[str, float]] | None = None, vary: Vary = lambda _, record: record
) -> list[Record]:
    """Return a run a day, with factors by what is slower from which day on."""
    records = []
    for day in range(number):
        factors: dict[str, float] = {}
        for since, which in (slower or {}).items():
            factors |= which if day >= since else {}
        records += [vary(day, record) for record in make_run(24 * day, cases=[CASE], slower=factors)]
    return records


def new_source(day: int, record: Record) -> Record:
    return replace(record, implementation_hash="new") if day >= 20 and record.implementation == "fused" else record


def new_driver(since: int) -> Vary:
    return lambda day, record: replace(record, driver="580.2", environment_hash="g") if day >= since else record


def newest(trend: Trend) -> tuple[GateOutcome, Verdict | None, Attribution | None]:
    assert trend.newest is not None
    return trend.newest.outcome, trend.newest.verdict, trend.newest.attribution


def test_nothing_moved() -> None:
    trend = make_trend(runs(40), FUSED)
    assert (trend.moves, trend.eras, trend.definitions, trend.notes) == ((), (), (), ())
    (level,) = trend.levels
    assert (level.start, level.stop) == (0, 39)
    assert level.p50_ns == pytest.approx(1e5, rel=0.002) and level.speedup == pytest.approx(2, rel=0.002)
    assert newest(trend) == (GateOutcome.UNCHANGED, Verdict.SAME, None)


def test_a_variant_that_moved_alone_is_the_code() -> None:
    trend = make_trend(runs(40, {20: {"fused": 1.05}}, new_source), FUSED)
    (move,) = trend.moves
    assert (move.before, move.index) == (19, 20)
    assert [trend.points[place].record.commit for place in (move.before, move.index)] == [sha(24 * 19), sha(24 * 20)]
    assert move.own == pytest.approx(1.05, rel=0.003) and move.control == pytest.approx(1, abs=0.003)
    assert (move.attribution, move.implementation_changed) == (Attribution.CODE, True)
    assert "its source changed" in move.reason
    assert [(level.start, level.stop) for level in trend.levels] == [(0, 19), (20, 39)]
    assert newest(trend) == (GateOutcome.UNCHANGED, Verdict.SAME, None), "a level that is old is no news"


def test_what_moves_both_is_the_machine_or_the_environment_and_a_control_alone_no_doing_of_the_series() -> None:
    (move,) = make_trend(runs(40, {20: {CASE: 1.06}}), FUSED).moves
    assert move.attribution is Attribution.MACHINE
    assert move.control == pytest.approx(1.06, rel=0.003) and "its control moved +6" in move.reason
    trend = make_trend(runs(40, {20: {CASE: 1.06}}, new_driver(20)), FUSED)
    (move,), (era,) = trend.moves, trend.eras
    assert move.attribution is Attribution.ENVIRONMENT
    assert [str(change) for change in move.era] == ["driver 580.1 -> 580.2"]
    assert (era.index, era.changes) == (20, move.era)
    (move,), (theirs,) = (make_trend(runs(40, {20: {"baseline": 1.2}}), side).moves for side in (FUSED, BASELINE))
    assert move.attribution is None and move.own == pytest.approx(1, abs=0.003)
    assert "only the speedup changed" in move.reason and theirs.attribution is Attribution.CODE


def test_the_speedup_shows_what_the_machine_hides() -> None:
    """A machine that wanders by 3 % hides 3 % of the variant; the control wanders along."""

    def wander(day: int, record: Record) -> Record:
        assert record.call_p50_ns is not None
        return replace(record, call_p50_ns=record.call_p50_ns * (1 + 0.03 * math.sin(2.4 * day)))

    trend = make_trend(runs(60, {30: {"fused": 1.03}}, wander), FUSED)
    (move,) = trend.moves
    assert abs(move.index - 30) <= 1 and move.own == pytest.approx(1.03, abs=0.02)
    assert move.attribution is Attribution.CODE


def test_a_new_definition_splits_and_is_no_move() -> None:
    def vary(day: int, record: Record) -> Record:
        return replace(record, definition_hash="new") if day >= 20 else record

    trend = make_trend(runs(40, {20: {CASE: 3.0}}, vary), FUSED)
    assert (trend.definitions, trend.moves) == ((20,), ())
    assert [(level.start, level.stop) for level in trend.levels] == [(0, 19), (20, 39)]
    first = make_trend(runs(21, {20: {CASE: 3.0}}, vary), FUSED)
    assert newest(first) == (GateOutcome.NEW, None, None)


def test_gaps_stay_and_disturb_nothing() -> None:
    def vary(day: int, record: Record) -> Record:
        return ended(record, "timeout", "took too long") if day in (5, 19, 20, 21) else record

    trend = make_trend(runs(40, {20: {"fused": 1.05}}, vary), FUSED)
    (move,) = trend.moves
    assert (move.before, move.index) == (18, 22)
    assert [place for place, point in enumerate(trend.points) if point.p50 is None] == [5, 19, 20, 21]


REGRESSION = (GateOutcome.REGRESSION, Verdict.SLOWER, Attribution.CODE)


@pytest.mark.parametrize(
    ("number", "expected", "words"),
    [
        (21, (GateOutcome.UNDECIDED, Verdict.SLOWER, Attribution.CODE), "one run alone is a suspect"),
        (22, REGRESSION, ""),
        (24, REGRESSION, f"since run {run_id_of(24 * 20)}"),
        (28, REGRESSION, f"since run {run_id_of(24 * 20)}"),
        (29, (GateOutcome.UNCHANGED, Verdict.SAME, None), ""),
    ],
)
def test_one_slow_run_is_a_suspect_and_a_new_level_is_news_until_it_is_old(
    number: int, expected: tuple[object, ...], words: str
) -> None:
    trend = make_trend(runs(number, {20: {"fused": 1.05}}), FUSED)
    assert newest(trend) == expected and trend.newest and words in trend.newest.reason


@pytest.mark.parametrize(
    ("slower", "vary", "expected"),
    [
        ({CASE: 1.05}, new_driver(99), (GateOutcome.UNDECIDED, Verdict.SLOWER, Attribution.MACHINE)),
        ({CASE: 1.05}, new_driver(20), (GateOutcome.UNDECIDED, Verdict.SLOWER, Attribution.ENVIRONMENT)),
        ({"fused": 0.9}, new_driver(99), (GateOutcome.IMPROVEMENT, Verdict.FASTER, Attribution.CODE)),
        ({CASE: 0.9}, new_driver(99), (GateOutcome.UNDECIDED, Verdict.FASTER, Attribution.MACHINE)),
    ],
)
@pytest.mark.parametrize("number", [22, 25])
def test_only_the_code_makes_a_regression(
    slower: Mapping[str, float], vary: Vary, expected: tuple[object, ...], number: int
) -> None:
    assert newest(make_trend(runs(number, {20: slower}, vary), FUSED)) == expected


def test_a_newest_run_that_failed_is_a_failure() -> None:
    def vary(day: int, record: Record) -> Record:
        return ended(record, "mismatched", "12 % differ") if day == 20 else record

    trend = make_trend(runs(21, None, vary), FUSED)
    assert newest(trend) == (GateOutcome.FAILED, None, None)
    assert trend.newest and trend.newest.reason == "mismatched: 12 % differ"
    skipped = make_trend([ended(record, "skipped", "needs sm_100") for record in runs(1)], FUSED)
    assert newest(skipped)[0] is GateOutcome.UNDECIDED


def test_the_newest_runs_only() -> None:
    trend = make_trend(runs(40, {20: {"fused": 1.05}}), FUSED, last=15)
    assert [point.record.run_id for point in trend.points] == [run_id_of(24 * day) for day in range(25, 40)]
    assert trend.moves == ()


def test_a_floor_keeps_noise_from_being_news() -> None:
    records = runs(30, {26: {"fused": 1.03}})
    assert make_trend(records, FUSED).moves
    assert not make_trend(records, FUSED, floor=Floor(p50=0.2, p95=0.2, runs=9, source="history")).moves


@pytest.mark.parametrize("p50_ns", [1.05e5, 1.01e5])
def test_a_level_that_was_accepted_is_no_regression(p50_ns: float) -> None:
    acceptance = Acceptance(
        series=FUSED, definition_hash="d" * 16, p50_ns=p50_ns, p95_ns=None, run_id="R", at="2026", reason="odd sizes"
    )
    accepted = AcceptedLevel(acceptance=acceptance, minimum_effect=0.02)
    trend = make_trend(runs(25, {20: {"fused": 1.05}}), FUSED, accepted=accepted)
    covered = p50_ns == 1.05e5
    outcome = GateOutcome.UNCHANGED if covered else GateOutcome.REGRESSION
    assert newest(trend) == (outcome, Verdict.SLOWER, Attribution.CODE)
    assert trend.newest and ("accepted in R: odd sizes" in trend.newest.reason) == covered


def test_few_runs_are_undecided() -> None:
    trend = make_trend([], FUSED)
    assert (len(trend.points), trend.newest, trend.levels) == (0, None, ())
    for number in (1, 2, 3):
        assert newest(make_trend(runs(number), FUSED))[0] is GateOutcome.UNDECIDED


def test_another_gpu_of_the_model_is_a_level_of_its_own_and_never_the_code() -> None:
    """The source changes along and the control stays, which would be the code on one GPU."""

    def vary(day: int, record: Record) -> Record:
        changed = new_source(day, record)
        return replace(changed, device_uuid="GPU-1") if day >= 20 else changed

    trend = make_trend(runs(40, {20: {"fused": 1.06}}, vary), FUSED)
    (move,) = trend.moves
    assert (move.index, move.attribution) == (20, Attribution.MACHINE)
    assert move.reason.startswith("another GPU of the model, GPU-0 -> GPU-1")
    assert [(era.index, str(era.changes[0])) for era in trend.eras] == [(20, "another GPU of the model GPU-0 -> GPU-1")]


def test_several_gpus_at_once_and_unnamed_ones_are_no_other_gpu() -> None:
    """As `run --device all` has them on one host: a move on all of them is a move."""
    one = runs(40, {20: {"fused": 1.06}}, new_source)
    several = [*one, *(replace(record, device_uuid="GPU-1") for record in one)]
    for records in (several, [replace(record, device_uuid=None) for record in one]):
        trend = make_trend(records, FUSED)
        assert not trend.eras and [move.attribution for move in trend.moves] == [Attribution.CODE]


FASTER, SLOWER, SAME, UNDECIDED = Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED


def series(cv: float, *steps: tuple[int, float], before: int = 40, seed: int = 0) -> Floats:
    """Return log latencies: so many runs at 1000 ns, then (runs, times 1000 ns) pieces."""
    shape = [np.zeros(before), *(np.full(runs, math.log(times)) for runs, times in steps)]
    values = np.concatenate(shape) + math.log(1000)
    noisy: Floats = values + cv * np.random.default_rng(seed).standard_normal(len(values))
    return noisy


def judged(levels: Floats, **options: Any) -> NewestRuns:
    return judge_newest(levels, detect(levels, **options), **options)


MODES = np.tile([0.0, 0.0, 0.05, 0.05, 0.0], 10)
ODD = np.isin(np.arange(40), [3, 11, 19, 39]) * 0.05
SPIKES = series(0.005, (1, 1.3)) + math.log(1.2) * np.isin(np.arange(41), [5, 17, 30])


@pytest.mark.parametrize(
    ("levels", "options", "verdict", "effect"),
    [
        pytest.param(series(0.003), {}, SAME, 1.0, id="quiet"),
        pytest.param(series(0.003, (20, 1.1)), {}, SAME, 1.0, id="old step"),
        pytest.param(series(0.001, (3, 1.015)), {}, SAME, 1.015, id="small"),
        pytest.param(series(0.001, (3, 1.015)), {"minimum_effect": 0.01}, SLOWER, 1.015, id="small enough"),
        pytest.param(series(0.003, (1, 1.05), before=12), {}, SLOWER, 1.05, id="off"),
        pytest.param(series(0.003, (1, 1.05), before=12), {"floor": 0.08}, UNDECIDED, 1.013, id="within its floor"),
        pytest.param((MODES + series(0.004, before=50))[:-1], {}, UNDECIDED, 1.05, id="other mode"),
        pytest.param(series(0.004) + ODD, {}, UNDECIDED, 1.058, id="odd among three"),
        pytest.param(SPIKES, {}, UNDECIDED, 1.3, id="one more spike"),
        pytest.param(np.append(SPIKES, math.log(1300)), {}, SLOWER, 1.3, id="two in a row"),
        *(pytest.param(series(0.005, (n, 1.06)), {}, SLOWER, 1.06, id=f"{n} slower") for n in (1, 2, 3)),
        *(pytest.param(series(0.005, (n, 0.94)), {}, FASTER, 0.94, id=f"{n} faster") for n in (1, 2, 3)),
    ],
)
def test_the_newest_runs_of_a_series(
    levels: Floats, options: dict[str, float], verdict: Verdict, effect: float
) -> None:
    found = judged(levels, **options)
    assert found.verdict is verdict
    assert found.effect == pytest.approx(effect, abs=0.01)


def test_a_noisy_series_proves_nothing() -> None:
    found = [judged(series(0.03, seed=seed)) for seed in range(20)]
    assert {each.verdict for each in found} == {UNDECIDED}
    assert {each.reason for each in found} == {
        "too noisy a series to tell from so few runs",
        "off its level, but noise may explain it",
    }


def test_a_run_that_is_back_on_the_old_level_is_undecided() -> None:
    levels = series(0.005, (5, 1.05))
    found = judge_newest(np.append(levels, math.log(1000)), detect(levels))
    assert found.verdict is UNDECIDED and found.reason.endswith("nearer to the old one")


@pytest.mark.parametrize("levels", [[], [0.0], [0.0] * 5, [0.0, 0.1] * 2, [0.0] * 20 + [math.nan]])
def test_too_short_a_series_and_a_newest_run_without_a_value_are_undecided(levels: list[float]) -> None:
    found = judge_newest(levels, ())
    assert (found.verdict, found.runs, found.effect) == (UNDECIDED, 0, None)
    assert (found.reason == "the newest run has no value") == (len(levels) in (0, 21))


def test_runs_without_a_value_change_nothing() -> None:
    levels = series(0.005, (1, 1.06))
    gaps = np.insert(levels, [3, 20, 40], np.nan)
    assert judge_newest(gaps, detect(gaps)) == judge_newest(levels, detect(levels))


def test_nothing_new_is_seldom_called_slower_or_faster() -> None:
    wrong = [judged(series(0.02, seed=seed)).verdict in {SLOWER, FASTER} for seed in range(100)]
    assert np.mean(wrong) <= 0.03


@pytest.mark.parametrize("beside", [False, True])
def test_a_drift_is_one_move_that_no_commit_made(beside: bool) -> None:
    """Of a variant alone it is the code's; that its control shares is the machine's. A driver's step within takes nothing off it."""
    records: list[Record] = []
    for day in range(50):
        factor = 1.002 ** max(0, day - 20)
        slower = {"fused": factor, "baseline": factor if beside else 1.0}
        driver: dict[str, Any] = {"driver": "580.2", "environment_hash": "g"} if day >= 40 else {}
        slower = {name: one * (0.985 if driver else 1.0) for name, one in slower.items()}
        records += make_run(24 * day, cases=[CASE], slower=slower, cv=0.004, **driver)
    trend = make_trend(records, FUSED)
    (move,) = trend.moves
    assert move.last == 49 and move.index == pytest.approx(21, abs=4)
    assert move.attribution is (Attribution.MACHINE if beside else Attribution.CODE)
    assert move.own == pytest.approx(1.002**29, rel=0.01)
    assert move.relative == pytest.approx(1.0 if beside else 1.002**29, rel=0.01)
    assert f" % a run since about {records[2 * move.index].started_at[:10]}, +5." in move.reason
    assert newest(trend) == (
        GateOutcome.UNDECIDED if beside else GateOutcome.REGRESSION,
        Verdict.SLOWER,
        move.attribution,
    )
    assert [level.rise > 1.01 for level in trend.levels] == [False, True, True]
