"""Two commits of a real repository, measured in turns on the CPU: what changed between them is named, each with its reason."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pairbench.store.reader import read_run, read_samples
from tests.builders import git, make_run, write_runs
from tests.cli.conftest import SUITES, settle
from tests.commands import Done, call
from tests.in_process import call_main

State = tuple[str, str, bytes, list[str]]
Changes = dict[str, dict[str, Any]]

BASE = """
import os, time
import torch
from mylib import step
from pairbench import Operator, Tolerance, grid

def inputs(make, n):
    return {"x": make.normal(n, dtype="float64")}

def waits(x, ms):
    time.sleep(ms / 1e3)
    return x + 1

def pair(name, variant, baseline=lambda x: x + 1, cases=None, **more):
    return Operator(name, baseline=baseline, variants={"v": variant}, inputs=inputs, cases=cases or grid(n=[8]), **more)

slowed = pair("slowed", lambda x: waits(x, 1), baseline=lambda x: waits(x, 1))
gone = pair("gone", lambda x: x + 1, cases=grid(n=[9]))
asked = pair("asked", lambda x: x + 1)
several = Operator("several", baseline=lambda x: x + 1, inputs=inputs, cases=grid(n=[8]), tolerance=Tolerance(atol=0.5), variants={
    "counted": lambda x: step.plus_one(x), "shifted": lambda x: x + 0.6, "crashing": lambda x: x + 1})
"""
STEP = "def plus_one(x):\n    return x + 1\n"
# Before -> after, in the suite.
EDITS = {
    # So much that it is proven beside whatever else keeps this machine.
    'pair("slowed", lambda x: waits(x, 1)': 'pair("slowed", lambda x: waits(x, 8)',
    "x + 0.6": "x + 1.4",
    "cases=grid(n=[9])": "cases=grid(n=[10])",
    'pair("asked", lambda x: x + 1)': 'pair("asked", lambda x: x + 1, tolerance=Tolerance(atol=0.25))',
    '"crashing": lambda x: x + 1': '"crashing": lambda x: os.abort()',
}


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-q", "-m", message)


def state_of(folder: Path) -> State:
    """Return what a comparison must leave as it is."""
    temporary = [path.name for path in (folder.parent / "tmp").iterdir() if path.name.startswith("pairbench-ab-")]
    index = (folder / ".git" / "index").read_bytes()
    return git(folder, "status", "--porcelain"), git(folder, "worktree", "list"), index, temporary


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a repository with a commit on `main` and changes that are not committed, and the environment to run in."""
    place = tmp_path_factory.mktemp("ab")
    variables = settle(place, case_seconds=0.02, min_samples=30)
    folder = place / "repo"
    (folder / "suites").mkdir(parents=True)
    (folder / "mylib").mkdir()
    (place / "pyproject.toml").rename(folder / "pyproject.toml")
    (folder / "pyproject.toml").write_text((folder / "pyproject.toml").read_text() + 'suites = ["suites"]\n')
    (folder / ".gitignore").write_text("__pycache__/\n")
    (folder / "suites" / "ops.py").write_text(BASE)
    head, broken = BASE.split("slowed =", maxsplit=1)[0], "import nothing_of_that_name\n"
    for name in ("only_before", "broken_now"):
        (folder / "suites" / f"{name}.py").write_text(f"{head}{name} = pair('{name}', lambda x: x + 1)\n")
    (folder / "suites" / "broken_before.py").write_text(broken + "from pairbench import Operator\n")
    (folder / "mylib" / "step.py").write_text(STEP)
    git(folder, "init", "-q")
    commit(folder, "one")
    text = BASE
    for before, after in EDITS.items():
        assert before in text
        text = text.replace(before, after)
    (folder / "suites" / "ops.py").write_text(text)
    (folder / "suites" / "only_before.py").rename(folder / "suites" / "broken_before.py")
    (folder / "suites" / "broken_now.py").write_text(broken + "from pairbench import Operator\n")
    (folder / "mylib" / "step.py").write_text(STEP.replace("x + 1", "(x + 2) - 1"))
    # Found where the command is run, as an editable install or PYTHONPATH would have it.
    return folder, variables


@pytest.fixture(scope="module")
def before(environment: tuple[Path, dict[str, str]]) -> State:
    return state_of(environment[0])


@pytest.fixture(scope="module")
def done(environment: tuple[Path, dict[str, str]], before: object) -> Done:
    folder, variables = environment
    loaded = {**variables, "TESTS_HOST_LOAD": "0.9"}
    kept = ("--store", str(folder.parent / "sides"))
    return call(folder, loaded, "ab", "main", "--device", "cpu", "--rounds", "3", "--format", "json", *kept)


@pytest.fixture(scope="module")
def document(done: Done) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def changes(document: Any) -> Changes:
    """Return the changes by operator and implementation; those of its first case."""
    found: Changes = {}
    for change in document["changes"]:
        name = change["name"].split("::")[1]
        found.setdefault(f"{name.split('[')[0]} {name.split('-')[-2]}", change)
    return found


def judgement(change: dict[str, Any], metric: str) -> dict[str, Any]:
    return next(item for item in change["judgements"] if item["metric"] == metric)


def test_a_regression_is_exit_code_1_and_both_sides_are_named(done: Done, document: Any) -> None:
    assert done.returncode == 1
    assert document["reference"]["asked"] == "main"
    assert document["current"]["asked"] == "the working tree with uncommitted changes"
    assert document["exit_code"] == 1
    assert "the working tree with uncommitted changes (" in done.stderr
    assert done.stderr.count("cores are busy with other work") == 1


def test_what_takes_eight_times_as_long_is_caught_confirmed_and_the_code_did_it(changes: Changes) -> None:
    change = changes["slowed v"]
    assert (change["outcome"], change["verdict"], change["attribution"]) == ("regression", "slower", "code")
    assert 3 < judgement(change, "call_p50_ns")["change"]["estimate"] < 10
    assert change["implementation_changed"] is True and change["confirmed"] is True


def test_what_was_not_touched_raises_no_alarm(changes: Changes) -> None:
    for name in ("slowed", "several"):
        baseline = changes[f"{name} baseline"]
        assert baseline["outcome"] in ("unchanged", "undecided"), baseline
        assert judgement(baseline, "outputs")["current"] == "equal"


def test_one_more_operator_of_a_package_in_the_repository_is_counted(changes: Changes) -> None:
    """Each side has imported its own commit's package, although both were started in the checkout."""
    more = judgement(changes["several counted"], "ops_per_call")
    assert (more["reference"], more["current"], more["outcome"]) == (1, 2, "regression")
    assert changes["several counted"]["outcome"] == "regression"


def test_outputs_that_changed_are_seen_although_both_sides_are_right(changes: Changes) -> None:
    change = changes["several shifted"]
    assert change["outcome"] == "failed" and change["judgements"][0]["metric"] == "outputs"
    assert "differs from the reference's in 8 of 8 elements" in change["reason"]


def test_cases_and_suites_of_one_side_and_another_question_are_named(document: Any) -> None:
    found = {(change["series"]["case"], change["outcome"]) for change in document["changes"]}
    assert {("gone[n=9]", "missing"), ("gone[n=10]", "new"), ("only_before[n=8]", "missing")} <= found
    assert {outcome for case, outcome in found if case == "asked[n=8]"} == {"incomparable"}


def test_what_crashes_on_one_side_fails_and_harms_nobody(changes: Changes) -> None:
    crashed = changes["several crashing"]
    assert crashed["outcome"] == "failed" and "SIGABRT" in crashed["reason"]
    assert changes["several baseline"]["verdict"] is not None


def test_a_suite_that_does_not_load_on_one_side(document: Any) -> None:
    """Broken now: what it held fails. Broken before: what it holds is new, and that is told."""
    found = {change["series"]["suite"]: change for change in document["changes"]}
    broken = found["suites/broken_now.py"]
    assert broken["outcome"] == "failed" and "No module named 'nothing_of_that_name'" in broken["reason"]
    assert found["suites/broken_before.py"]["outcome"] == "new"
    assert [problem.split(":")[0] for problem in document["problems"]] == [
        "main",
        "the working tree with uncommitted changes",
    ]
    assert "suite broken_before.py, line 1: ModuleNotFoundError" in document["problems"][0]


def test_the_document_has_what_the_verdicts_rest_on(document: Any) -> None:
    sides = [document[name] for name in ("reference_records", "current_records")]
    for side in sides:
        rounds = {row["confirms"] is None: len(row["round_p50_ns"]) for row in side if row["case"] == "slowed[n=8]"}
        assert rounds == {True: 3, False: 3}
    blocks = [[row["n_samples"] for row in side if row["case"] == "slowed[n=8]"] for side in sides]
    assert blocks[0] == blocks[1]
    assert {item["agreement"] for item in document["outputs"]} == {"equal", "within", "different"}


def test_both_sides_are_kept_with_their_samples_where_a_store_is_named(
    environment: tuple[Path, dict[str, str]], done: Done, document: Any, tmp_path: Path
) -> None:
    sides = environment[0].parent / "sides"
    assert f"pairbench show --runs --store {sides}" in done.stderr
    kept = sorted(file.stem for file in sides.glob("records/*/*/*.parquet"))
    of_sides = {row["run_id"]: side for side in ("reference", "current") for row in document[f"{side}_records"]}
    assert kept == sorted(of_sides) and len(kept) == 4  # each side, and what was measured again
    for run_id, side in of_sides.items():
        rows = [row for row in document[f"{side}_records"] if row["run_id"] == run_id]
        records, samples = read_run(sides, run_id).value, read_samples(sides, run_id).value
        assert sorted(record.case or record.suite for record in records) == sorted(
            row["case"] or row["suite"] for row in rows
        )
        assert run_id.endswith(side) == (records[0].confirms is None)
        timed = {(row.case, row.implementation, row.round) for row in samples}
        assert len(timed) == len(samples) == sum(record.n_rounds or 0 for record in records)
    assert call_main(tmp_path, "show", "--runs", "--store", str(sides)).code == 0


def test_checkout_index_and_temporary_folder_are_as_before(
    environment: tuple[Path, dict[str, str]], before: object, done: Done
) -> None:
    assert state_of(environment[0]) == before
    assert not (environment[0] / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "'nope' is no commit, branch or tag of"),
        (["main", "--min-effect", "0"], "--min-effect is 0, expected a percentage between 0 and 100"),
        (["main", "--store", ""], "--store is empty, expected a folder or URL"),
        (["main", "--store", "results"], "--store 'results' is where runs go: in a history"),
        (["main", "suites/ops.py", f"{SUITES}/good.py"], "is outside of the repository"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    environment: tuple[Path, dict[str, str]], arguments: list[str], words: str
) -> None:
    said = call_main(environment[0], "ab", *arguments)
    assert said.code == 2 and words in said.err and len(said.err.splitlines()) == 1, said.err


def test_a_history_is_no_place_for_sides(environment: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    said = call_main(environment[0], "ab", "main", "--store", str(tmp_path))
    assert said.code == 2 and f"holds run {make_run(0)[0].run_id}" in said.err, said.err
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["suites/nowhere.py"], "there is no suites/nowhere.py, expected suites of the repository"),
        (["main", "slowed", "--device", "all"], "ab has two commits take turns on one device"),
        (["main", "suites/ops.py", "--tier", "headline"], "there is nothing to do"),
    ],
)
def test_what_neither_side_has_is_refused(
    environment: tuple[Path, dict[str, str]], surveyed: object, arguments: list[str], words: str
) -> None:
    said = call_main(environment[0], "ab", "main", *arguments)
    assert said.code == 2 and words in said.err and "Traceback" not in said.err, said.err


@pytest.mark.slow
def test_an_interruption_leaves_nothing_behind(environment: tuple[Path, dict[str, str]]) -> None:
    folder, variables = environment
    before = state_of(folder)
    command = [sys.executable, "-m", "pairbench", "ab", "main", "slowed", "--device", "cpu"]
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " verify: " in line:
                break
        assert state_of(folder) != before
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert state_of(folder) == before
