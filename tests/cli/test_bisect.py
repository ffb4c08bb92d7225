"""`pairbench bisect` and `pairbench backfill` on real commits, on a CPU: one makes a call slower, one calls an operator more, some cannot be loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairbench.store.reader import read_frame
from tests.cli.conftest import settle
from tests.commands import Done, call
from tests.lab.bisect.planted import git, plant

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

COMMITS, SLOWER, MORE, BROKEN = 8, 5, 3, {4, 6}


class Planted:
    """A repository of commits, in which commands are run."""

    def __init__(self, place: Path) -> None:
        self.environment = settle(place, case_seconds=0.05) | {"XDG_STATE_HOME": str(place / "state")}
        self.folder, self.store = place / "repo", place / "store"
        self.shas = plant(self.folder, COMMITS, slower=SLOWER, more=MORE, broken=BROKEN, amounts=(2.0, 8.0))
        (place / "pyproject.toml").rename(self.folder / "pyproject.toml")

    def __call__(self, verb: str, *options: str, code: int = 0) -> Done:
        words = (verb, *options, "suites/ops.py::planted", "--device", "cpu", "--rounds", "2")
        done = call(self.folder, self.environment, *words)
        assert done.returncode == code, done.stderr
        assert git(self.folder, "worktree", "list").count("\n") == 0
        return done

    def search(self, *options: str) -> tuple[Any, str]:
        """Return the document of a bisection of all commits, and what it said meanwhile."""
        done = self("bisect", "--good", self.shas[0], "--bad", "main", "--format", "json", *options)
        return json.loads(done.stdout), done.stderr

    def fill(self, *options: str) -> Any:
        """Return the document of a backfill of all commits."""
        return json.loads(self("backfill", "main", "--format", "json", "--store", str(self.store), *options).stdout)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


def test_the_commit_that_made_it_slower_is_found_beside_one_that_cannot_be_loaded(planted: Planted) -> None:
    document, said = planted.search()
    shas = planted.shas
    # The one before it cannot be loaded, so no one can tell the two apart.
    assert [commit["sha"] for commit in document["found"]] == [shas[SLOWER - 1], shas[SLOWER]]
    assert document["parent"]["sha"] == shas[SLOWER - 2]
    assert document["probability"] >= 0.99
    assert document["change"]["estimate"] > 2
    assert {one["commit"]["subject"] for one in document["skipped"]} == {"change 4", "change 6"}
    for skipped in document["skipped"]:
        assert "a_module_that_is_not_there" in Path(skipped["log"]).read_text()
    # `ab` of two rounds may leave it open on a busy machine.
    assert document["last"]["exit_code"] in (0, 1)
    assert "change 4) is skipped" in said
    # Only what its hash covers changes with it; the notes that each commit writes are no part of it.
    changed = {one["commit"]["subject"]: one["changed"] for one in document["suspects"]}
    assert changed["change 7"] is False
    assert changed["change 5"] is True


def test_the_commit_that_calls_an_operator_more_is_found_without_statistics(planted: Planted) -> None:
    document, said = planted.search("--metric", "ops")
    assert [commit["sha"] for commit in document["found"]] == [planted.shas[MORE]]
    assert document["ends"] == "ops_per_call 1 -> 2"
    assert document["rounds"] <= 4
    assert "change 3" in said


def test_no_change_between_the_ends_is_said(planted: Planted) -> None:
    done = planted("bisect", "--good", planted.shas[0], "--bad", planted.shas[2], "--metric", "ops", code=3)
    assert "No change is proven between the ends" in done.stdout


def test_what_tells_most_is_filled_first_and_nothing_is_measured_twice(planted: Planted) -> None:
    """Both ends, then what changes the hash of an implementation; the same command goes on where it ended."""
    in_steps = planted.fill("--steps", "4")
    subjects = [one["commit"]["subject"] for one in in_steps["filled"]]
    assert subjects[:2] == ["change 0", f"change {COMMITS}"] and f"change {SLOWER}" in subjects
    document = planted.fill()
    by_subject = {one["commit"]["subject"]: one for one in document["filled"]}
    assert [*by_subject] == [f"change {number}" for number in range(COMMITS + 1) if number not in BROKEN]
    assert {name for name, one in by_subject.items() if one["run_id"] is None} == {*subjects}
    assert {one["commit"]["subject"] for one in document["skipped"]} == {f"change {number}" for number in BROKEN}
    assert all("a_module_that_is_not_there" in one["reason"] for one in document["skipped"])
    rows, _ = read_frame(planted.store)
    sound = [sha for number, sha in enumerate(planted.shas) if number not in BROKEN]
    assert sorted(rows["commit"]) == sorted(2 * sound)
    assert set(rows["branch"]) == {"main"} and not rows["dirty"].any()
