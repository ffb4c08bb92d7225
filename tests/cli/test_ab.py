"""Two commits of a real repository, measured in turns on the CPU: what changed between them is named, each with its reason."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairbench.store.reader import read_run, read_samples
from tests.builders import make_run, write_runs
from tests.cli.conftest import settle
from tests.commands import Done, call

pytestmark = pytest.mark.timeout(600)  # some twenty worker processes, each of which imports torch

BASE = """
import os, time
import torch
from mylib import step
from pairbench import Operator, Tolerance, grid

COUNT = 0

def inputs(make, n):
    return {"x": make.normal(n, dtype="float64")}

def waits(x, ms):
    time.sleep(ms / 1e3)
    return x + 1

def pair(name, variant, baseline=lambda x: x + 1, cases=None, **more):
    return Operator(name, baseline=baseline, variants={"v": variant}, inputs=inputs, cases=cases or grid(n=[8]), **more)

def tires(x):
    return x + 1

steady = pair("steady", lambda x: waits(x, 2), baseline=lambda x: waits(x, 4))
slowed = pair("slowed", lambda x: waits(x, 2), baseline=lambda x: waits(x, 2))
counted = pair("counted", lambda x: step.plus_one(x))
shifted = pair("shifted", lambda x: x + 0.6, tolerance=Tolerance(atol=0.5))
nudged = pair("nudged", lambda x: x + 1.1, tolerance=Tolerance(atol=0.5))
gone = pair("gone", lambda x: x + 1, cases=grid(n=[8, 9]))
asked = pair("asked", lambda x: x + 1)
crashing = pair("crashing", lambda x: x + 1)
tiring = pair("tiring", tires)
mended = pair("mended", lambda x: x + 3)
"""
STEP = "def plus_one(x):\n    return x + 1\n"
# Before -> after, in the suite.
EDITS = {
    # So much that it is proven beside whatever else keeps this machine.
    'pair("slowed", lambda x: waits(x, 2)': 'pair("slowed", lambda x: waits(x, 20)',
    "x + 0.6": "x + 1.4",
    "x + 1.1": "x + 1.2",
    "cases=grid(n=[8, 9])": "cases=grid(n=[8, 10])",
    'pair("asked", lambda x: x + 1)': 'pair("asked", lambda x: x + 1, tolerance=Tolerance(atol=0.25))',
    'pair("crashing", lambda x: x + 1)': 'pair("crashing", lambda x: os.abort())',
    "def tires(x):\n": "def tires(x):\n    global COUNT\n    COUNT += 1\n    assert COUNT < 40, 'tired'\n",
    "x + 3": "x + 1",
}


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-q", "-m", message)


def state_of(folder: Path) -> tuple[str, str, bytes, list[str]]:
    """Return what a comparison must leave as it is."""
    temporary = [path.name for path in (folder.parent / "tmp").iterdir() if path.name.startswith("pairbench-ab-")]
    index = (folder / ".git" / "index").read_bytes()
    return git(folder, "status", "--porcelain"), git(folder, "worktree", "list"), index, temporary


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a repository with a commit on `main` and changes that are not committed, and the environment to run in."""
    place = tmp_path_factory.mktemp("ab")
    variables = settle(place, case_seconds=0.1, min_samples=30)
    folder = place / "repo"
    (folder / "suites").mkdir(parents=True)
    (folder / "mylib").mkdir()
    (place / "pyproject.toml").rename(folder / "pyproject.toml")
    (folder / "pyproject.toml").write_text((folder / "pyproject.toml").read_text() + 'suites = ["suites"]\n')
    (folder / ".gitignore").write_text("__pycache__/\n")
    (folder / "suites" / "ops.py").write_text(BASE)
    head, broken = BASE.split("steady =", maxsplit=1)[0], "import nothing_of_that_name\n"
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
def before(environment: tuple[Path, dict[str, str]]) -> tuple[str, str, bytes, list[str]]:
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
def changes(document: Any) -> dict[str, dict[str, Any]]:
    """Return the changes by operator and implementation; those of its first case."""
    found: dict[str, dict[str, Any]] = {}
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


def test_what_takes_ten_times_as_long_is_caught_confirmed_and_the_code_did_it(
    changes: dict[str, dict[str, Any]],
) -> None:
    change = changes["slowed v"]
    assert (change["outcome"], change["verdict"], change["attribution"]) == ("regression", "slower", "code")
    assert 5 < judgement(change, "call_p50_ns")["change"]["estimate"] < 12
    assert change["implementation_changed"] is True and change["confirmed"] is True
    assert changes["slowed baseline"]["outcome"] in ("unchanged", "undecided")


def test_what_was_not_touched_raises_no_alarm(changes: dict[str, dict[str, Any]]) -> None:
    for name in ("steady baseline", "steady v"):
        assert changes[name]["outcome"] in ("unchanged", "undecided"), changes[name]
        assert judgement(changes[name], "outputs")["current"] == "equal"


def test_one_more_operator_of_a_package_in_the_repository_is_counted(changes: dict[str, dict[str, Any]]) -> None:
    """Each side has imported its own commit's package, although both were started in the checkout."""
    more = judgement(changes["counted v"], "ops_per_call")
    assert (more["reference"], more["current"], more["outcome"]) == (1, 2, "regression")
    assert changes["counted v"]["outcome"] == "regression"


def test_outputs_that_changed_are_seen_although_both_sides_are_right(changes: dict[str, dict[str, Any]]) -> None:
    change = changes["shifted v"]
    assert change["outcome"] == "failed" and change["judgements"][0]["metric"] == "outputs"
    assert "differs from the reference's in 8 of 8 elements" in change["reason"]
    assert changes["shifted baseline"]["outcome"] in ("unchanged", "undecided")
    nudged = judgement(changes["nudged v"], "outputs")
    assert nudged["current"] == "within" and nudged["outcome"] == "unchanged"


def test_cases_and_suites_of_one_side_and_another_question_are_named(document: Any) -> None:
    found = {(change["series"]["case"], change["outcome"]) for change in document["changes"]}
    assert {("gone[n=9]", "missing"), ("gone[n=10]", "new"), ("only_before[n=8]", "missing")} <= found
    assert {outcome for case, outcome in found if case == "asked[n=8]"} == {"incomparable"}


def test_what_crashes_or_tires_on_one_side_fails_and_harms_nobody(changes: dict[str, dict[str, Any]]) -> None:
    assert changes["crashing v"]["outcome"] == "failed" and "SIGABRT" in changes["crashing v"]["reason"]
    assert changes["tiring v"]["outcome"] == "failed" and "tired" in changes["tiring v"]["reason"]
    for name in ("crashing baseline", "tiring baseline"):
        assert changes[name]["verdict"] is not None


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


def test_what_works_again_is_an_improvement(changes: dict[str, dict[str, Any]]) -> None:
    assert changes["mended v"]["outcome"] == "improvement"
    assert "works again; before: mismatched" in changes["mended v"]["reason"]


def test_the_document_has_what_the_verdicts_rest_on(document: Any) -> None:
    for side in ("reference_records", "current_records"):
        rows = {(row["case"], row["implementation"], row["confirms"] is None): row for row in document[side]}
        assert len(rows["steady[n=8]", "v", True]["round_p50_ns"]) == 3
        assert len(rows["slowed[n=8]", "v", False]["round_p50_ns"]) == 3
    blocks = [
        [row["n_samples"] for row in document[side] if row["case"] == "steady[n=8]"]
        for side in ("reference_records", "current_records")
    ]
    assert blocks[0] == blocks[1]
    assert {item["agreement"] for item in document["outputs"]} == {"equal", "within", "different"}


def test_both_sides_are_kept_with_their_samples_where_a_store_is_named(
    environment: tuple[Path, dict[str, str]], done: Done, document: Any
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
    assert call(*environment, "show", "--runs", "--store", str(sides)).returncode == 0


def test_a_history_is_no_place_for_sides(ask: "Ask", tmp_path: Path) -> None:
    assert "--store 'results' is where runs go: in a history" in ask("main", "--store", "results").stderr
    write_runs(tmp_path / "history", make_run(0))
    done = ask("main", "--store", str(tmp_path / "history"))
    assert done.returncode == 2 and f"holds run {make_run(0)[0].run_id}" in done.stderr, done.stderr
    assert len(list((tmp_path / "history").rglob("*.parquet"))) == 1


def test_checkout_index_and_temporary_folder_are_as_before(
    environment: tuple[Path, dict[str, str]], before: object, done: Done
) -> None:
    assert state_of(environment[0]) == before
    assert not (environment[0] / "results").exists()


Ask = Callable[..., Done]


@pytest.fixture(scope="module")
def ask(environment: tuple[Path, dict[str, str]]) -> Ask:
    folder, variables = environment

    def run(*arguments: str, where: Path = folder) -> Done:
        return call(where, variables, "ab", *arguments)

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "'nope' is no commit, branch or tag of"),
        (["main", "--min-effect", "0"], "--min-effect is 0, expected a percentage between 0 and 100"),
        (["main", "--store", ""], "--store is empty, expected a folder or URL"),
        (["main", "--format", "html"], "--format 'html' is unknown"),
        (["main", "suites/ops.py", f"{Path(__file__).parents[1]}/suites/good.py"], "is outside of the repository"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(ask: Ask, arguments: list[str], words: str) -> None:
    done = ask(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_outside_of_a_checkout(ask: Ask, tmp_path: Path) -> None:
    done = ask("main", where=tmp_path)
    assert done.returncode == 2 and "is not in a git checkout, expected suites in one" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["main", "stedy"], "'stedy' selects nothing"),
        (["main", "suites/nowhere.py"], "there is no suites/nowhere.py, expected suites of the repository"),
        (["main", "main", "steady", "--device", "all"], "ab has two commits take turns on one device"),
        (["main", "main", "suites/ops.py", "--tier", "headline"], "there is nothing to do"),
    ],
)
def test_what_neither_side_has_is_refused(ask: Ask, arguments: list[str], words: str) -> None:
    done = ask(*arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_an_interruption_leaves_nothing_behind(environment: tuple[Path, dict[str, str]]) -> None:
    folder, variables = environment
    before = state_of(folder)
    command = [sys.executable, "-m", "pairbench", "ab", "main", "steady", "--device", "cpu"]
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " verify: " in line:
                break
        assert state_of(folder) != before
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert state_of(folder) == before
