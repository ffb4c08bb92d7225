"""The default reference of `pairbench compare`: which earlier runs it is, for each series."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pairbench.workflow import comparer
from tests.builders import CASES, git, make_run, run_id_of
from tests.cli.conftest import SLOWER, Cli, write


def checkout() -> str:
    """Make the current folder a repository with a commit on main, and return the commit."""
    git(Path(), "init", "-q")
    git(Path(), "commit", "-q", "--allow-empty", "-m", "x")
    return git(Path(), "rev-parse", "HEAD")


def test_every_earlier_run_is_reference_but_in_a_checkout_five_and_of_a_large_store_less(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(make_run(number) for number in range(8)))
    assert cli("compare", "-f", "json").reference == [0, 1, 2, 3, 4, 5, 6]
    with monkeypatch.context() as patch:
        patch.setattr(comparer, "RECORDS", 6 * 4)
        assert cli("compare", "-f", "json").reference == [1, 2, 3, 4, 5, 6]
    head = checkout()
    write(*(make_run(number, commit=head) for number in range(8, 16)))
    assert cli("compare", "-f", "json").reference == [10, 11, 12, 13, 14]


def test_in_a_checkout_only_the_default_branch_is_reference(cli: Cli) -> None:
    head = checkout()
    write(
        make_run(0),
        make_run(1, branch="topic", slower=SLOWER),
        make_run(2, branch=None, commit=head),  # a detached checkout of a commit on main, as CI has it
        make_run(3, dirty=True, slower=SLOWER),
        make_run(4, branch="topic", dirty=True),
    )
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.reference == [0, 2] and said.document["reference"]["asked"] == "main"


def test_outside_a_checkout_every_earlier_clean_run_is(cli: Cli) -> None:
    write(make_run(0), make_run(1, branch="topic"), make_run(2, dirty=True), make_run(3, commit=None, branch=None))
    assert cli("compare", "-f", "json").reference == [0, 1]
    write(make_run(4, commit=None, branch=None))
    checkout()
    assert cli("compare", "-f", "json").reference == [0, 1, 3]  # nothing is known of where the current run stands


def test_without_any_run_of_the_default_branch_there_is_nothing_to_compare_with(cli: Cli) -> None:
    checkout()
    write(make_run(0, branch="topic"), make_run(1, branch="topic"))
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"new": 4}
    assert "no earlier comparable run of main on NVIDIA H200; earlier runs are" in said.err and run_id_of(0) in said.err
    assert cli("compare", "--strict").code == 3
    assert cli("compare", "topic", "--strict").code == 0


def test_the_same_environment_is_preferred_where_it_was_measured(cli: Cli) -> None:
    new: dict[str, Any] = {"environment_hash": "a" * 16, "driver": "580.2"}
    write(make_run(0, **new), make_run(1), make_run(2), make_run(3, **new))
    assert cli("compare", "-f", "json").reference == [0]
    write(make_run(4, environment_hash="b" * 16, driver="590.0"))
    said = cli("compare", "-f", "json")
    assert said.reference == [0, 1, 2, 3]
    assert "driver" in json.dumps([change["era"] for change in said.document["changes"]])


def test_runs_of_other_cases_do_not_hide_the_reference(cli: Cli) -> None:
    others = [make_run(number, cases=["conv[n=1]"], suite="suites/conv.py") for number in range(1, 31)]
    write(make_run(0), *others, make_run(31))
    said = cli("compare", "-f", "json", "--strict")
    assert said.code == 0 and said.outcomes == {"unchanged": 4} and said.reference == [0]


def test_each_series_has_its_own_reference(cli: Cli) -> None:
    write(make_run(0, cases=CASES[:1]), make_run(1, cases=CASES[1:]), make_run(2))
    said = cli("compare", "-f", "json")
    assert said.outcomes == {"unchanged": 4}
    runs = {
        change["name"].split("::")[1].split("-")[0]: change["reference_runs"] for change in said.document["changes"]
    }
    assert runs == {CASES[0]: [run_id_of(0)], CASES[1]: [run_id_of(1)]}


def test_another_device_model_is_put_beside_where_both_sides_are_and_no_reference_else(cli: Cli) -> None:
    write(make_run(0), make_run(1, device_name="NVIDIA B200"))
    said = cli("compare", run_id_of(0), run_id_of(1), "--strict")
    assert said.code == 3 and "another device model: NVIDIA H200 -> NVIDIA B200" in said.out
    assert re.search(
        r"-fused-eager.*: [\d.]+ us -> [\d.]+ us, [\d.]+x of the time, speedup [\d.]+x -> [\d.]+x", said.out
    )
    assert "x of the time" in cli("compare", run_id_of(0), run_id_of(1), "-f", "markdown").out
    said = cli("compare", "auto", run_id_of(1))
    assert said.code == 0 and "no earlier comparable run of any branch on NVIDIA B200" in said.err
