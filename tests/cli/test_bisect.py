"""`pairbench bisect` on real commits, on a CPU: one commit makes a call slower, another one calls one operator more."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import settle
from tests.commands import call
from tests.lab.bisect.planted import git, plant

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

COMMITS, SLOWER, MORE, BROKEN = 8, 5, 3, {4, 6}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], list[str]]:
    place = tmp_path_factory.mktemp("bisect")
    variables = settle(place, case_seconds=0.05, min_samples=20) | {"XDG_STATE_HOME": str(place / "state")}
    folder = place / "repo"
    shas = plant(folder, COMMITS, slower=SLOWER, more=MORE, broken=BROKEN, amounts=(2.0, 8.0))
    (place / "pyproject.toml").rename(folder / "pyproject.toml")
    return folder, variables, shas


def search(planted: tuple[Path, dict[str, str], list[str]], *options: str, code: int = 0) -> tuple[Any, str]:
    folder, variables, shas = planted
    ends = ("--good", shas[0], "--bad", "main", "--device", "cpu", "--rounds", "2", "--format", "json")
    done = call(folder, variables, "bisect", "suites/ops.py::planted", *ends, *options)
    assert done.returncode == code, done.stderr
    assert git(folder, "worktree", "list").count("\n") == 0
    return json.loads(done.stdout), done.stderr


def test_the_commit_that_made_it_slower_is_found_beside_one_that_cannot_be_loaded(planted: Any) -> None:
    document, said = search(planted)
    shas = planted[2]
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


def test_the_commit_that_calls_an_operator_more_is_found_without_statistics(planted: Any) -> None:
    document, said = search(planted, "--metric", "ops")
    assert [commit["sha"] for commit in document["found"]] == [planted[2][MORE]]
    assert document["ends"] == "ops_per_call 1 -> 2"
    assert document["rounds"] <= 4
    assert "change 3" in said


def test_no_change_between_the_ends_is_said(planted: Any) -> None:
    folder, variables, shas = planted
    ends = ("--good", shas[0], "--bad", shas[2], "--device", "cpu")
    done = call(folder, variables, "bisect", "suites/ops.py::planted", *ends, "--metric", "ops")
    assert done.returncode == 3
    assert "No change is proven between the ends" in done.stdout
