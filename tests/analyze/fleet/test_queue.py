"""Which host measures which unit, on fleets that are made up."""

import datetime as dt
from dataclasses import replace

import pytest

from pairbench.features.fleet.queue import Last, Waiting, requirement
from pairbench.model.unit import Host, Offer, Unit

NOW = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
UNIT = Unit(operators=("ops.py::a",), device="nvidia-h200")


def gpu(number: int, model: str = "nvidia-h200") -> Offer:
    uuid = f"GPU-{number}"
    return Offer(identity=uuid, kind="cuda", model=model, selector="cuda:0", environment_hash="e")


def host(number: int, *offers: Offer) -> Host:
    return Host(name=f"host{number}", address=f"tcp://{number}", offers=offers or (gpu(number),))


def last(number: int, hours: float) -> Last:
    return Last(identity=f"GPU-{number}", host=f"host{number}", seen=NOW - dt.timedelta(hours=hours))


@pytest.mark.parametrize(
    ("before", "present", "needs"),
    [
        (None, {"GPU-1"}, "nvidia-h200"),
        (last(1, 1), {"GPU-1", "GPU-2"}, "GPU-1"),
        (last(1, 1000), {"GPU-1", "GPU-2"}, "GPU-1"),  # it is here, however long ago that was
        (last(1, 23), {"GPU-2"}, "GPU-1"),
        (last(1, 25), {"GPU-2"}, "nvidia-h200"),
    ],
)
def test_a_series_stays_on_its_gpu_until_that_was_away_for_a_day(
    before: Last | None, present: set[str], needs: str
) -> None:
    assert requirement(UNIT, before, present, NOW) == needs


def test_a_host_takes_first_what_nobody_else_may() -> None:
    pinned, free = replace(UNIT, operators=("ops.py::pinned",)), replace(UNIT, operators=("ops.py::free",))
    waiting = Waiting([free, pinned], {pinned: last(2, 1)}, {"GPU-1", "GPU-2"}, NOW)
    assert waiting.take(host(2)) == (pinned, gpu(2))
    assert waiting.take(host(1)) == (free, gpu(1))
    assert waiting.take(host(1)) is None
    assert not waiting


def test_a_host_with_several_gpus_measures_on_the_one_that_is_asked_for() -> None:
    waiting = Waiting([UNIT], {UNIT: last(2, 1)}, {"GPU-1", "GPU-2"}, NOW)
    assert waiting.take(host(1, gpu(1), gpu(2))) == (UNIT, gpu(2))


def test_what_no_host_has_is_named_and_given_up_together() -> None:
    other = replace(UNIT, device="nvidia-h100")
    waiting = Waiting([UNIT, other, replace(other, rounds=2)], {}, {"GPU-1"}, NOW)
    assert waiting.missing([host(1)]) == {"nvidia-h100": 2}
    assert waiting.give_up("nvidia-h100") == [other, replace(other, rounds=2)]
    assert waiting.units() == [UNIT]


def test_what_comes_back_is_next() -> None:
    first, second = UNIT, replace(UNIT, rounds=2)
    waiting = Waiting([second], {}, {"GPU-1"}, NOW)
    waiting.put_back(first)
    assert waiting.take(host(1)) == (first, gpu(1))
