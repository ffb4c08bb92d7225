"""Lives of moves: what lasts, what was taken back and in which run, and what something else replaced."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.comparison import Attribution
from pairbench.model.record import Record, Series
from pairbench.site.events import MoveLife, lives_of
from tests.builders import CASES, DEVICE, SUITE, make_run

CASE = CASES[0]
FUSED = Series(device_name=DEVICE, suite=SUITE, case=CASE, implementation="fused", mode="eager")


def trend(levels: Mapping[int, Mapping[str, float]], *, driver: int = 1000, definition: int = 1000) -> Trend:
    """Return the trend of 48 runs of which those from some on are slower by factors."""
    records: list[Record] = []
    for day in range(48):
        since = max((first for first in levels if first <= day), default=None)
        run = make_run(day, cases=(CASE,), slower=levels[since] if since is not None else {})
        if day >= driver:
            run = tuple(replace(one, driver="580.2", environment_hash="e" * 16) for one in run)
        records += [replace(one, definition_hash="other") if day >= definition else one for one in run]
    return make_trend(records, FUSED)


def lives(trend: Trend) -> list[tuple[int, int | None, bool]]:
    return [(life.move.index, life.ended, life.superseded) for life in lives_of(trend)]


def test_what_lasts_lasts_and_what_was_taken_back_ended_there() -> None:
    assert lives(trend({12: {"fused": 1.1}})) == [(12, None, False)]
    assert lives(trend({12: {"fused": 1.1}, 24: {}})) == [(12, 24, False)]
    assert lives(trend({12: {"fused": 1.1}, 24: {"fused": 1.21}, 36: {}})) == [(12, 36, False), (24, 36, False)]


def test_half_a_recovery_is_none_and_more_than_one_is_a_gain() -> None:
    assert lives(trend({12: {"fused": 1.2}, 24: {"fused": 1.1}})) == [(12, None, False), (24, None, False)]
    assert lives(trend({12: {"fused": 1.1}, 24: {"fused": 0.8}})) == [(12, 24, False), (24, None, False)]


def test_a_gain_of_the_code_that_is_lost_is_a_regression() -> None:
    assert lives(trend({12: {"fused": 0.8}, 24: {}})) == [(12, 24, True), (24, None, False)]


def test_another_definition_takes_its_place() -> None:
    assert lives(trend({12: {"fused": 1.1}}, definition=30)) == [(12, 30, True)]


def test_a_machine_that_was_faster_for_a_while_is_no_regression_afterwards() -> None:
    assert lives(trend({12: {CASE: 0.9}, 24: {}})) == [(12, 24, False)]


@pytest.mark.parametrize("driver", [0.94, 1.05])
def test_an_environment_takes_back_nothing_that_the_code_did(driver: float) -> None:
    both = {CASE: driver}
    found = lives_of(trend({12: {"fused": 1.05}, 24: {"fused": 1.05, **both}}, driver=24))
    assert [(life.move.index, life.ended) for life in found] == [(12, None), (24, None)]
    assert [life.move.attribution for life in found] == [Attribution.CODE, Attribution.ENVIRONMENT]


@pytest.mark.parametrize("driver", [0.98, 1.03])
def test_beside_another_driver_the_change_is_that_of_the_code(driver: float) -> None:
    """5 % planted five runs after a driver that made all 2 % faster read +2.9 %."""
    moved = trend({15: {CASE: driver}, 20: {CASE: driver, "fused": 1.05}}, driver=15)
    (life,) = [one for one in lives_of(moved) if one.move.attribution is Attribution.CODE]
    assert isinstance(life, MoveLife) and life.move.index == 20
    assert life.move.size == pytest.approx(1.05, abs=0.004) and life.move.own == pytest.approx(1.05, abs=0.004)
    assert life.move.control == pytest.approx(1, abs=0.004)


def test_the_code_takes_back_nothing_that_an_environment_did() -> None:
    found = lives(trend({12: {CASE: 0.95}, 24: {CASE: 0.95, "fused": 1.05}}, driver=12))
    assert found == [(12, None, False), (24, None, False)]
