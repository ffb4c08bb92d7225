"""Commits of the past measured on the CPU and stored as runs of their commits, in any order and as often as asked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairbench.store.reader import read_frame
from tests.cli.conftest import settle
from tests.commands import Done, call
from tests.lab.bisect.planted import git, plant

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

COMMITS, SLOWER, BROKEN = 6, 4, {2}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], Callable[..., Done]]:
    place = tmp_path_factory.mktemp("backfill")
    variables = settle(place, case_seconds=0.05, min_samples=20) | {"XDG_STATE_HOME": str(place / "state")}
    folder = place / "repo"
    shas = plant(folder, COMMITS, slower=SLOWER, more=9, broken=BROKEN, amounts=(2.0, 8.0))
    (place / "pyproject.toml").rename(folder / "pyproject.toml")

    def fill(*options: str) -> Done:
        where = ("--device", "cpu", "--rounds", "2", "--format", "json", "--store", str(place / "store"))
        return call(folder, variables, "backfill", "main", "suites/ops.py::planted", *where, *options)

    return folder, shas, fill


@pytest.fixture(scope="module")
def in_steps(planted: tuple[Path, list[str], Callable[..., Done]]) -> Any:
    done = planted[2]("--steps", "4")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_tells_most_comes_first(planted: Any, in_steps: Any) -> None:
    """Both ends, then what changes the hash of an implementation."""
    subjects = [one["commit"]["subject"] for one in in_steps["filled"]]
    assert subjects[:2] == ["change 0", "change 6"]
    assert f"change {SLOWER}" in subjects
    assert [one["commit"]["subject"] for one in in_steps["skipped"]] == ["change 2"]
    assert git(planted[0], "worktree", "list").count("\n") == 0


def test_the_same_command_goes_on_and_measures_nothing_twice(planted: Any, in_steps: Any) -> None:
    folder, shas, fill = planted
    done = fill()
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    by_subject = {one["commit"]["subject"]: one for one in document["filled"]}
    assert [*by_subject] == [f"change {number}" for number in range(COMMITS + 1) if number not in BROKEN]
    there = {one["commit"]["subject"] for one in in_steps["filled"]}
    assert {name for name, one in by_subject.items() if one["run_id"] is None} == there
    assert "a_module_that_is_not_there" in document["skipped"][0]["reason"]
    rows, _ = read_frame(folder.parent / "store")
    assert sorted(rows["commit"]) == sorted(2 * [sha for number, sha in enumerate(shas) if number not in BROKEN])
    assert set(rows["branch"]) == {"main"}
    assert not rows["dirty"].any()
