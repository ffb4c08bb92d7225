import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra `fleet` brings the queue; `nox -s fleet` has it")

from pairbench.store.reader import RunIndex, read_frame
from tests.builders import git
from tests.commands import ROOT
from tests.faults.ports import free_port
from tests.fleet.fleet import Fleet, commit_all, environment, make_project, pairbench, plan_of, standin
from tests.fleet.kills import kill_them
from tests.fleet.many import many_workers

# These share a fleet and so stay in one process; what has a fleet of its own runs beside them.
with_one_worker = pytest.mark.xdist_group("fleet of one worker")
OPERATORS = (ROOT / "tests" / "suites" / "good.py").read_text()


class Made:
    """A fleet of one worker that measures for real, in a checkout with two commits."""

    def __init__(self, folder: Path, fleet: Fleet, commits: list[str]) -> None:
        self.folder, self.fleet, self.commits = folder, fleet, commits

    def run(self, *arguments: str, store: str = "store") -> tuple[dict[str, Any], int, str]:
        done = self.fleet.run(*arguments, "--store", str(self.folder / store), "--format", "json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout), done.returncode, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("fleet")
    project = folder / "project"
    commits = [make_project(project, ops_py=OPERATORS)]
    broken = '[tool.pairbench]\ncase_seconds = 0.05\nmin_samples = 20\nrounds = 1\nbuild = "echo no compiler; false"\n'
    (project / "pyproject.toml").write_text(broken)
    commits.append(commit_all(project))
    built = broken.replace("echo no compiler; false", "echo VALUE = 1 > $PAIRBENCH_BUILD/made_by_the_build.py")
    (project / "pyproject.toml").write_text(built)
    (project / "ops.py").write_text(f"import made_by_the_build\n{OPERATORS}")
    commits.append(commit_all(project))
    # What is asked for by name is looked up in the files that are there, and the last commit's cannot be loaded unless it is built.
    git(project, "checkout", "-q", commits[0])
    (project / "notes.txt").write_text("no code\n")
    commits.append(commit_all(project))
    with Fleet(folder, project, workers=1) as fleet:
        yield Made(folder, fleet, commits)


@pytest.mark.slow
def test_workers_and_the_scheduler_die_and_every_unit_is_stored_once(tmp_path: Path) -> None:
    found = kill_them(tmp_path, units=10, workers=2, worker_kills=2, scheduler_kills=1, unit_s=0.5)
    assert (found.stored, found.doubled, found.done, found.code) == (10, 0, 10, 0), found.said


@with_one_worker
def test_units_of_a_commit_are_measured_stored_and_not_measured_again(made: Made) -> None:
    arguments = ("ops.py::linear", "--commit", made.commits[0], "--device", "cpu")
    document, code, said = made.run(*arguments)
    assert (document["summary"], code) == ({"done": 1}, 0), said
    head = next(iter(RunIndex.of_store(str(made.folder / "store"))))
    assert (head.commit, head.dirty) == (made.commits[0], False)
    assert head.run_id == document["units"][0]["run_id"]
    assert head.run_id.endswith(document["units"][0]["key"])
    again, code, _ = made.run(*arguments)
    assert (again["summary"], code, again["units"][0]["run_id"]) == ({"stored": 1}, 0, head.run_id)


@with_one_worker
def test_another_commit_is_a_point_of_its_own_though_its_code_is_the_same(made: Made) -> None:
    document, code, said = made.run("ops.py::linear", "--device", "cpu")
    assert (document["units"][0]["unit"]["commit"], document["summary"], code) == (made.commits[3], {"done": 1}, 0), (
        said
    )


@with_one_worker
def test_a_commit_that_cannot_be_built_is_skipped_with_its_log(made: Made) -> None:
    document, code, said = made.run("ops.py::linear", "--commit", made.commits[1], "--device", "cpu", store="none")
    (unit,) = document["units"]
    assert (unit["end"], code) == ("skipped", 0)
    assert "cannot be built" in unit["reason"] and "no compiler" in unit["log"]
    assert unit["reason"] in said


@with_one_worker
def test_what_a_build_installs_comes_first_and_is_made_once(made: Made) -> None:
    plan = made.folder / "built.toml"
    units = "".join(
        f'[[units]]\ncommit = "{made.commits[2]}"\noperators = ["ops.py::{name}"]\ndevice = "cpu"\n'
        for name in ("linear", "shifts")
    )
    plan.write_text(units)
    document, code, said = made.run(str(plan), store="built")
    assert (document["summary"], code) == ({"done": 2}, 0), (document, said)


@with_one_worker
def test_a_device_that_no_host_has_is_named_and_waited_for_no_longer_than_asked(made: Made) -> None:
    document, code, _ = made.run("ops.py::linear", "--device", "nvidia-h200", "--patience", "3", store="none")
    (unit,) = document["units"]
    assert (unit["end"], code) == ("failed", 4)
    assert unit["reason"].startswith("no host came with nvidia-h200, which no host has; there are ")


@with_one_worker
def test_units_that_share_no_commit_or_operator_are_said(made: Made) -> None:
    plan = plan_of(made.folder / "plan.json", made.commits[0], 1)  # of ops.py::op0, which is in no file
    document, code, _ = made.run(str(plan), store="none")
    assert (document["units"][0]["end"], code) == ("skipped", 0)
    assert "op0" in document["units"][0]["reason"]


@pytest.mark.slow
def test_ctrl_c_leaves_what_is_finished_and_the_same_command_goes_on(tmp_path: Path) -> None:
    project = tmp_path / "project"
    commit = make_project(project, ops_py="# the stand-in looks at no file\n")
    more = {"STANDIN_SECONDS": "1", "STANDIN_ENVIRONMENT": "e" * 16}
    plan, store = plan_of(tmp_path / "plan.json", commit, 5), tmp_path / "store"
    arguments = (str(plan), "--store", str(store), "--format", "json")
    with Fleet(tmp_path, project, workers=1, worker_options=("--python", str(standin(tmp_path))), **more) as fleet:
        run = fleet.start_run(*arguments)
        _wait_for(lambda: len(_stored(tmp_path)) >= 2)
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=60)
        document = json.loads(out)
        assert run.returncode == 130, said
        done, left = ([unit for unit in document["units"] if (unit["end"] == "done") is yes] for yes in (True, False))
        # The records of the second may be there before its run has ended, and then it is not done.
        assert done and left and {unit["end"] for unit in left} == {"not done"}
        before = _stored(tmp_path)
        again = fleet.run(*arguments)
    assert again.returncode == 0, again.stderr
    after = _stored(tmp_path)
    assert sorted(set(after)) == sorted(after) == sorted(f"op{number}[n=1]" for number in range(5))
    assert set(before) < set(after)


def _stored(folder: Path) -> list[str]:
    if not list((folder / "store").rglob("*.parquet")):
        return []
    return list(read_frame(str(folder / "store"), columns=("case",))[0]["case"])


def _wait_for(what: Any) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


@pytest.mark.slow
def test_many_workers_wait_little_for_their_next_unit(tmp_path: Path) -> None:
    """The whole one is `python -m tests.fleet.bench`; here it is whether they all work."""
    found = many_workers(tmp_path, workers=16, units=64, unit_s=0.3, settle_s=0)
    assert found.done == 64


def test_a_port_that_others_reach_needs_tls_and_tls_needs_a_certificate(tmp_path: Path) -> None:
    variables = environment(tmp_path)

    def call(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = pairbench("fleet", *arguments)
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    refused = call("scheduler", "tcp://0.0.0.0:0")
    assert refused.returncode == 2 and "--insecure" in refused.stderr
    assert call("certificates", "keys").returncode == 0
    assert call("certificates", "keys").returncode == 2
    assert (tmp_path / "keys" / "worker.key").stat().st_mode & 0o077 == 0
    address = f"tls://localhost:{free_port()}"
    command = pairbench("fleet", "scheduler", address, "--certificates", "keys")
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as scheduler:
        try:
            assert scheduler.stderr is not None and "tls://" in scheduler.stderr.readline()
            assert call("certificates", "others").returncode == 0
            plan = plan_of(tmp_path / "plan.json", None, 1)
            common = ("run", str(plan), "--scheduler", address, "--patience", "2", "--store", "store")
            assert "does not answer" in call(*common, "--certificates", "others").stderr
            ours = call(*common, "--certificates", "keys")
            assert "no host came with cpu" in ours.stderr, ours.stderr
        finally:
            scheduler.terminate()
