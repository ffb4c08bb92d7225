"""Which units a store has, from made-up rows."""

from pairbench.features.fleet.queue import stored_units, whole_runs
from pairbench.model.outcome import NOT_REACHED
from pairbench.model.unit import Host, Offer, Unit, marked, unit_of

UNIT = Unit(operators=("ops.py::a",), device="cpu", commit="a" * 40)
OFFER = Offer(identity="cpu-here", kind="cpu", model="some-cpu", selector="cpu", environment_hash="here")
HOSTS = [Host(name="here", address="tcp://1", offers=(OFFER,))]


def rows(unit: Unit, environment: str = "here", **more: str | None) -> list[dict[str, str | None]]:
    return [
        {"run_id": marked("20260101T000000-aaaaaa", unit.key), "environment_hash": environment, "reason": None, **more}
    ]


def stored(*several: dict[str, str | None], unit: Unit = UNIT) -> list[Unit]:
    return list(stored_units([unit], whole_runs(several), HOSTS))


def test_a_run_says_which_unit_it_was_made_for() -> None:
    assert unit_of(marked("20260101T000000-aaaaaa", UNIT.key)) == UNIT.key
    assert (
        marked("20260101T000000-aaaaaa", None) == marked("20260101T000000-aaaaaa", "../x") == "20260101T000000-aaaaaa"
    )
    assert unit_of("20260101T000000-aaaaaa") is None


def test_a_unit_is_there_by_commit_and_environment_and_whole() -> None:
    assert stored(*rows(UNIT)) == [UNIT]
    assert not stored(*rows(UNIT, "another driver"))
    assert not stored(*rows(UNIT), *rows(UNIT, reason=NOT_REACHED))
    assert not stored(*rows(Unit(operators=("ops.py::a",), device="cpu", commit="b" * 40)))


def test_files_without_a_commit_may_have_changed() -> None:
    unit = Unit(operators=("ops.py::a",), device="cpu")
    assert not stored(*rows(unit), unit=unit)
