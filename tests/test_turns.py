"""What CI leaves to another commit: some slow tests, and nothing else."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import turns
from tests.conftest import ABOUT, EVERY_TIME, ROOT, TURNS, on_turn

FILES = [f"tests/folder/test_{letter}.py" for letter in "abcdefg"]


@dataclass(frozen=True)
class Item:
    """A collected test."""

    path: Path
    slow: bool

    def get_closest_marker(self, name: str) -> object | None:
        return self if name == "slow" and self.slow else None


def collected() -> list[Any]:
    return [Item(ROOT / file, slow) for file in (*FILES, *EVERY_TIME) for slow in (False, True)]


def test_each_slow_test_has_a_turn_and_others_wait_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "changed_lately", lambda *places: {FILES[0]} & {*places, *(FILES * ("tests" in places))})
    run: Counter[Any] = Counter()
    for number in range(TURNS):
        monkeypatch.setattr(turns, "turn", lambda of, number=number: number % of)
        here, later = on_turn(collected())
        assert sorted(map(str, (*here, *later))) == sorted(map(str, collected())) and len(later) >= 4
        run.update(here)
    often = {item for item, times in run.items() if times == TURNS}
    assert often == {
        item
        for item in collected()
        if not item.slow or item.path in {ROOT / FILES[0], *(ROOT / file for file in EVERY_TIME)}
    }
    assert {times for item, times in run.items() if item not in often} == {1}


def test_where_what_they_are_about_changed_lately_none_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "changed_lately", lambda *places: {*places} & {"dashboards"})
    monkeypatch.setattr(turns, "turn", lambda _: 0)
    folders = ("tests/site/", "tests/fleet/")
    items: list[Any] = [Item(ROOT / f"{folder}test_{letter}.py", slow=True) for folder in folders for letter in "abc"]
    here, later = on_turn(items)
    assert {*items[:3]} <= {*here} and len(later) >= 2
    assert all((ROOT / place).exists() for folder, places in ABOUT.items() for place in (folder, *places))
    monkeypatch.setattr(turns, "turn", lambda _: None)
    assert on_turn(items) == (items, [])


def test_a_turn_is_of_the_commit_and_only_where_a_part_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "git", lambda *_: "0000000b1234\n")
    monkeypatch.delenv("PAIRBENCH_SLOW", raising=False)
    assert turns.turn(3) is None
    monkeypatch.setenv("PAIRBENCH_SLOW", "part")
    assert [turns.turn(number) for number in (2, 3, 8)] == [1, 2, 3]
    monkeypatch.setattr(turns, "git", lambda *_: "")
    assert turns.turn(3) is None, "nothing tells where there is no checkout"
