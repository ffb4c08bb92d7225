import pytest

from tests.fleet.simulate import Costs, lining_up, simulate

COSTS = Costs(command_s=0.01, look_s=0.0, scheduler_s=0.001)


def test_hosts_that_take_long_are_what_takes_long() -> None:
    one = simulate(10, 1000, 100.0, COSTS)
    assert one.hours * 3600 == pytest.approx(100 * 100, rel=0.01)
    assert one.hosts_busy > 0.99


def test_short_units_wait_for_the_command() -> None:
    one = simulate(500, 10_000, 1.0, COSTS)
    assert one.hours * 3600 == pytest.approx(10_000 * 0.01, rel=0.05)
    assert one.command_busy == pytest.approx(1.0, abs=0.05)


def test_a_long_line_costs_no_more_for_each_unit() -> None:
    assert lining_up(100, 20_000) < 20
