"""`pytest --pairbench-gate`: named outcomes at the end of a session, and pytest's own exit statuses."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from tests.builders import git
from tests.integrations.pytest_project import EXTRA, SUITE, WRONG, Finished, Project, names

SLEEP = "__import__('time').sleep(0.002); return 2 * x"
"""A body of `scaled` that is slower and dispatches no operator more."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Finished]:
    project = Project(tmp_path_factory.mktemp("gated"))
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        git(project.suite.parent, *command)  # settings may stand outside of the checkout
    return project, project.pytest("suites", "--pairbench-gate")


@pytest.fixture
def project(first: tuple[Project, Finished], tmp_path: Path) -> Project:
    """Return a project of one's own with that session in its store."""
    own = Project(tmp_path)
    shutil.copytree(first[0].folder / "results", own.folder / "results")
    return own


def verdicts(done: Finished) -> str:
    """Return what the gate printed, however its lines are broken."""
    return " ".join(done.out.split(" pairbench gate ")[1].split())


def records(project: Project) -> pd.DataFrame:
    found = pd.read_parquet(project.folder / "results" / "records")
    return found[found.run_id == found.run_id.max()].set_index("implementation")


def test_the_first_session_has_nothing_to_compare_with_and_is_kept(first: tuple[Project, Finished]) -> None:
    project, done = first
    assert done.code == 0, done.out
    assert "there is no earlier run at all, so this one can be the reference of the next" in verdicts(done)
    rows = records(project)
    assert rows.status.to_dict() == {"baseline": "measured", "scaled": "measured", "kernel": "skipped"}
    assert (rows.n_rounds.dropna() == 1).all() and (rows.call_p50_ns.dropna() > 0).all()
    assert rows.speedup["scaled"] > 0 and (rows.tier == "smoke").all() and rows.commit.notna().all()


def test_an_extra_operator_is_a_regression_of_one_test_whose_name_can_be_pasted_back(project: Project) -> None:
    """It was once reported as passed, and then as failed under a name with a bracket too many. `-n 0` distributes nothing, so the gate judges."""
    (run_id,) = records(project).run_id.unique()
    project.change(EXTRA)
    done = project.pytest("suites", f"--pairbench-gate={run_id}", "-n", "0", "-v", "--junitxml=junit.xml")
    said = verdicts(done)
    assert done.code == 1 and run_id in said and "1 look worse than the reference and are measured again" in done.out
    assert "regression" in said and "double[n=256]" in said and "1 -> 3" in said, said
    # The summary, junit and --lf know which it was.
    name = "suites/double.py::double[n=256]-scaled-eager"
    assert re.findall(rf"^{re.escape(name)} +(PASSED|FAILED)", done.out, re.MULTILINE) == ["FAILED"], done.out
    (pasted,) = re.findall(r"^FAILED (\S+) - regression: ", done.out, re.MULTILINE)
    assert pasted == name and "1 failed, 3 passed, 2 skipped" in done.out and "Traceback" not in done.out
    assert name in (project.folder / ".pytest_cache/v/cache/lastfailed").read_text()
    assert names(project.pytest(pasted, "--collect-only", "-q")) == [name]
    suite = ET.parse(project.folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "1", "2")
    assert "double[n=256]-scaled-eager" in {case.get("name") for case in suite.iter("testcase")}


def test_slower_on_a_cpu_that_nobody_calibrated_is_undecided_and_what_was_not_selected_is_not_missing(
    project: Project,
) -> None:
    project.change(SLEEP)
    done = project.pytest("suites", "-k", "scaled", "--pairbench-gate")
    assert done.code == 0, done.out
    said = verdicts(done)
    assert "undecided" in said and "not judged: `pairbench calibrate` has not found this CPU quiet" in said
    assert "measured again" not in done.out and "missing" not in said
    assert set(records(project).index) == {"baseline", "scaled"}  # a variant is never measured without its control


def test_a_renamed_variant_is_missing_and_new(project: Project) -> None:
    project.suite.write_text(SUITE.replace('"scaled": scaled', '"renamed": scaled'))
    done = project.pytest("suites", "--pairbench-gate")
    said = verdicts(done)
    assert "1 missing" in said and "1 new" in said and "double[n=256]-scaled" in said, said
    assert done.code == 0


def test_a_mismatch_fails_the_test_and_the_gate(project: Project) -> None:
    project.change(WRONG)
    done = project.pytest("suites", "--pairbench-gate")
    assert done.code == 1 and "1 failed, 3 passed" in done.out, done.out
    assert "failed" in verdicts(done) and "mismatched" in verdicts(done)
    assert records(project).status["scaled"] == "mismatched"


def test_a_session_that_stops_at_a_failure_reports_each_test_once_and_records_the_others(project: Project) -> None:
    text = SUITE.replace("[dict(n=256)]", "[dict(n=256), dict(n=512)]")
    project.suite.write_text(text.replace("return 2 * x\n\n\ndef k", f"{WRONG}\n\n\ndef k"))
    done = project.pytest("suites", "-x", "-v", "--pairbench-gate")
    assert done.code == 1, done.out
    assert "nothing was judged: the session was stopped before everything was measured" in verdicts(done)
    outcomes = re.findall(r"^(suites/\S+) +(PASSED|FAILED)", done.out, re.MULTILINE)
    assert len(outcomes) == len(dict(outcomes)), done.out
    assert dict(outcomes)["suites/double.py::double[n=256]-scaled-eager"] == "FAILED"
    assert dict(outcomes)["suites/double.py::double[n=256]-baseline-eager"] == "PASSED"
    rows = records(project).reset_index().set_index(["case", "implementation"])
    assert rows.status["double[n=256]", "scaled"] == "mismatched"
    assert rows.status["double[n=512]", "baseline"] == "skipped"
    assert "interrupted" in rows.reason["double[n=512]", "baseline"]


def test_a_store_that_cannot_be_written_is_no_traceback(project: Project) -> None:
    (project.folder / "file").write_text("in the way")
    done = project.pytest("suites", "--pairbench-gate", "--pairbench-store=file/store")
    assert done.code != 0 and "Traceback" not in done.out, done.out
    assert "file/store" in done.out


def test_a_session_that_is_stopped_says_what_became_of_the_tests_that_ran(project: Project) -> None:
    (project.folder / "suites" / "test_stop.py").write_text("def test_stop():\n    raise KeyboardInterrupt\n")
    done = project.pytest("suites/double.py", "suites/test_stop.py", "--pairbench-gate", "-v")
    assert done.code == 2, done.out
    assert len(re.findall(r"^suites/double\.py::\S+ +PASSED", done.out, re.MULTILINE)) == 4, done.out
    assert "nothing was judged: the session was stopped" in done.out
