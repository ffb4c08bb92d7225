import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.features.fleet.drive import Last, Waiting, last_devices, requirement, runs_of, stored_units, whole_runs
from pairbench.model.outcome import NOT_REACHED
from pairbench.model.unit import Host, Unit, marked, unit_of
from pairbench.store.location import StoreLocation
from tests.builders import CASES, make_run, write_runs
from tests.fleet.fleet import offer

NOW = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
UNIT = Unit(operators=("ops.py::a",), device="nvidia-h200")


def host(number: int, *gpus: int) -> Host:
    offers = tuple(offer(f"GPU-{gpu}") for gpu in gpus or (number,))
    return Host(name=f"host{number}", address=f"tcp://{number}", offers=offers)


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


def test_a_host_takes_first_what_nobody_else_may_and_what_comes_back_is_next() -> None:
    pinned, free = replace(UNIT, operators=("ops.py::pinned",)), replace(UNIT, operators=("ops.py::free",))
    waiting = Waiting([free, pinned], {pinned: last(2, 1)}, {"GPU-1", "GPU-2"}, NOW)
    assert waiting.take(host(2)) == (pinned, offer("GPU-2"))
    assert waiting.take(host(1)) == (free, offer("GPU-1"))
    assert waiting.take(host(1)) is None and not waiting
    waiting.put_back(pinned)
    assert waiting.take(host(1, 1, 2)) == (pinned, offer("GPU-2"))


def test_what_no_host_has_is_named_and_given_up_together() -> None:
    other = replace(UNIT, device="nvidia-h100")
    waiting = Waiting([UNIT, other, replace(other, rounds=2)], {}, {"GPU-1"}, NOW)
    assert waiting.missing([host(1)]) == {"nvidia-h100": 2}
    assert waiting.give_up("nvidia-h100") == [other, replace(other, rounds=2)]
    assert waiting.units() == [UNIT]


CPU_UNIT = Unit(operators=("ops.py::a",), device="cpu", commit="a" * 40)
OFFER = offer("cpu-here", kind="cpu", model="some-cpu", selector="cpu")
HOSTS = [Host(name="here", address="tcp://1", offers=(OFFER,))]


def row(unit: Unit, environment: str = OFFER.environment_hash, reason: str | None = None) -> dict[str, str | None]:
    return {"run_id": marked("20260101T000000-aaaaaa", unit.key), "environment_hash": environment, "reason": reason}


def stored(*several: dict[str, str | None], unit: Unit = CPU_UNIT) -> list[Unit]:
    return list(stored_units([unit], whole_runs(several), HOSTS))


def test_a_run_says_which_unit_it_was_made_for() -> None:
    assert unit_of(marked("20260101T000000-aaaaaa", CPU_UNIT.key)) == CPU_UNIT.key
    assert (
        marked("20260101T000000-aaaaaa", None) == marked("20260101T000000-aaaaaa", "../x") == "20260101T000000-aaaaaa"
    )
    assert unit_of("20260101T000000-aaaaaa") is None


def test_a_unit_is_there_by_commit_and_environment_and_whole() -> None:
    assert stored(row(CPU_UNIT)) == [CPU_UNIT]
    assert not stored(row(CPU_UNIT, "another driver"))
    assert not stored(row(CPU_UNIT), row(CPU_UNIT, reason=NOT_REACHED))
    assert not stored(row(replace(CPU_UNIT, commit="b" * 40)))
    without = replace(CPU_UNIT, commit=None)  # its files may have changed
    assert not stored(row(without), unit=without)


NORM = Unit(operators=("suites/norm.py::rms_norm",), device="nvidia-h200", commit="a" * 40)


def test_the_gpu_that_measured_a_series_last(tmp_path: Path) -> None:
    for number, gpu in enumerate(("GPU-1", "GPU-2", "GPU-1")):
        write_runs(tmp_path, make_run(number, device_uuid=gpu))
    write_runs(tmp_path, make_run(9, cases=["other[n=1]"], device_uuid="GPU-2"))
    found = last_devices(StoreLocation.of(tmp_path), [NORM, replace(NORM, device="cpu")])
    assert [(unit.device, last.identity) for unit, last in found.items()] == [("nvidia-h200", "GPU-1")]
    assert f"{found[NORM].seen:%H}" == "02"
    one = replace(NORM, operators=(f"suites/norm.py::{CASES[0]}",), device="GPU-2")
    other = last_devices(StoreLocation.of(tmp_path), [one])[one]
    assert (other.identity, f"{other.seen:%H}") == ("GPU-2", "09")


def test_runs_of_units_are_found_by_their_names(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0), make_run(1, run_id=marked("20240101T010000-aaaaaa", NORM.key)))
    found = runs_of(StoreLocation.of(tmp_path), [NORM, replace(NORM, rounds=7)])
    assert {key: list(runs) for key, runs in found.items()} == {NORM.key: [f"20240101T010000-aaaaaa-u{NORM.key}"]}
    assert runs_of(StoreLocation.of(tmp_path / "nothing"), [NORM]) == {}
