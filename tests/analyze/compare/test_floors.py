"""Floors: from noise alone, whatever else happened in a series' past."""

import numpy as np
import pytest

from pairbench.analyze.compare.floors import Past, calibrate_from, floors_of, noise, past_of
from pairbench.analyze.compare.rounds import Floats
from pairbench.model.record import Series
from tests.builders import ended, make_run

SPREAD = 0.01
TRUE = 1.96 * np.sqrt(2) * SPREAD
RUNS = 20


def past(count: int = 500) -> Floats:
    return np.random.default_rng(0).normal(0, SPREAD, (count, RUNS))


def kinds(like: Floats) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    return np.zeros(like.shape, dtype=np.int64)


def typical(levels: Floats) -> float:
    return float(np.median(noise(levels, kinds(levels))[0]))


def test_plain_noise_and_most_changes_are_below_it() -> None:
    levels = past()
    found, number = noise(levels, kinds(levels))
    assert np.median(found) == pytest.approx(TRUE, rel=0.06)
    assert np.median(number) == RUNS - 1
    assert np.mean(np.abs(np.diff(levels, axis=1)) <= found[:, None]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("places", [slice(12, None), slice(7, 8)])
def test_a_step_and_a_spike_are_no_noise(places: slice) -> None:
    levels = past()
    levels[:, places] += 0.1
    assert typical(levels) == pytest.approx(TRUE, rel=0.08)


def test_a_series_of_two_modes_is_noisy() -> None:
    levels = past()
    levels += 0.08 * (np.arange(RUNS) // 3 % 2)
    assert typical(levels) > 2 * TRUE


def test_changes_of_code_are_no_noise() -> None:
    levels = past()
    levels[:, 10:] += 0.03
    marked = kinds(levels)
    marked[:, 10:] = 1
    found, number = noise(levels, marked)
    assert np.median(found) == pytest.approx(TRUE, rel=0.08) and number.max() == RUNS - 2


def test_gaps_are_left_out() -> None:
    levels = past()
    levels[:, 5] = np.nan
    found, number = noise(levels, kinds(levels))
    assert np.median(found) == pytest.approx(TRUE, rel=0.1) and number.max() == RUNS - 3


SERIES = Series(device_name="D", suite="s.py", case="op[n=1]", implementation="fast", mode="eager")


def history(p50: list[float]) -> list[Past]:
    return [Past(value, 2 * value, None, "call", ("same",)) for value in p50]


def test_floors_need_enough_runs_of_one_code() -> None:
    levels = (1000 * np.exp(past(1)[0])).tolist()
    assert floors_of({SERIES: history(levels[:4])}) == {}
    found = floors_of({SERIES: history(levels)}, source="calibration")[SERIES]
    assert (found.runs, found.source) == (RUNS, "calibration") and found.p50 == pytest.approx(found.p95)
    changing = [Past(1000.0 + number, 2000.0, None, "call", (str(number),)) for number in range(8)]
    assert floors_of({}) == floors_of({SERIES: changing}) == {}


def test_what_was_not_measured_is_no_past() -> None:
    record = make_run(0)[0]
    found = past_of(record)
    assert found is not None and found.p50_ns == pytest.approx(record.call_p50_ns, rel=0.01)
    assert past_of(ended(record, "failed")) is None


def test_calibration_compares_every_pair_and_counts_what_it_calls_a_change() -> None:
    runs = [make_run(number) for number in range(5)]
    floors, comparisons, judged, alarms = calibrate_from(runs)
    assert (comparisons, judged, alarms) == (10, 40, 0)
    assert set(floors) == {Series.of(record) for record in runs[0]}
    assert all(0 < floor.p50 < 0.02 and floor.source == "calibration" for floor in floors.values())
    one = f"{runs[0][1].case}-fused"
    assert calibrate_from([*runs[:4], make_run(4, slower={one: 1.1})]).alarms == 4
