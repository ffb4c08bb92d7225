"""pytest-benchmark's own features on pairbench's numbers, each in a real pytest process."""

import json
import re
import shutil
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from pairbench.integrations.plugin.items import BENCH
from pairbench.integrations.plugin.session import PluginSession
from tests.builders import make_run
from tests.integrations.pytest_project import SLOW, SUITE, WRONG, Finished, Project

CASE = "double[n=256]"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Finished]:
    """Return a project that was measured with everything that pytest-benchmark has."""
    project = Project(tmp_path_factory.mktemp("measured"), rounds=2)
    project.environment["TESTS_HOST_LOAD"] = "0.9"
    done = project.pytest(
        *("suites", "--benchmark-only", "--benchmark-autosave", "--benchmark-save-data", "--benchmark-json=all.json"),
        *("--benchmark-histogram=pictures/of", "--junitxml=junit.xml", "--durations=3", "-rs"),
    )
    assert done.code == 0, done.out
    return project, done


def benchmarks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in document["benchmarks"]}


def test_the_table_shows_a_pair_side_by_side(measured: tuple[Project, Finished]) -> None:
    _, done = measured
    table = done.out.split(f"benchmark '{CASE}': 2 tests")[1].split("Legend")[0]
    assert f"{CASE}-baseline-eager" in table and f"{CASE}-scaled-eager" in table
    assert "2 passed" in done.out
    assert "needs a CUDA device; this is cpu" in done.out
    assert "slowest 3 durations" in done.out


def test_a_loaded_host_is_said_once_and_recorded(measured: tuple[Project, Finished]) -> None:
    project, done = measured
    assert done.out.count("cores are busy with other work") == 1
    load = json.loads(project.document("all.json")["pairbench"]["environment"])["observed"]["load"]
    assert load["before"] > 0.25 * load["cores"] and len(load["rounds"]) == 1


def test_its_numbers_are_those_of_the_samples(measured: tuple[Project, Finished]) -> None:
    project, _ = measured
    document = project.document("all.json")
    for name, found in benchmarks(document).items():
        data, extra = found["stats"]["data"], found["extra_info"]
        assert found["name"] == name and found["group"] == CASE
        assert found["stats"]["median"] == pytest.approx(statistics.median(data))
        assert extra["call_p50_ns"] == pytest.approx(1e9 * statistics.median(data), rel=1e-6)
        assert len(data) == extra["n_samples"] == found["stats"]["rounds"] and extra["n_rounds"] == 2
        assert min(data) > 0 and found["stats"]["iterations"] == 1


def test_extra_info_and_machine_info(measured: tuple[Project, Finished]) -> None:
    project, _ = measured
    (saved,) = project.saved()
    for document in (project.document(saved), project.document("all.json")):
        extra = benchmarks(document)[f"{CASE}-scaled-eager"]["extra_info"]
        assert {"call_p50_ns", "call_p95_ns", "ops_per_call", "max_abs_error", "margin", "speedup"} <= extra.keys()
        assert (extra["ops_per_call"], extra["max_abs_error"], extra["timer"]) == (1, 0, "perf_counter")
        machine = document["machine_info"]["pairbench"]
        assert machine["device_kind"] == "cpu" and {"torch", "python", "environment_hash"} <= machine.keys()
        assert "environment" not in machine and json.loads(document["pairbench"]["environment"])["observed"]
    slug = re.sub(r"[^a-z0-9]+", "-", machine["device_name"].lower()).strip("-")
    assert saved.relative_to(project.folder / ".benchmarks").parts[0] == slug


def test_histogram_and_junit(measured: tuple[Project, Finished]) -> None:
    project, _ = measured
    (picture,) = (project.folder / "pictures").glob("*.svg")
    assert CASE in picture.read_text()
    # pytest 9.2 closes a bracket that it opened for itself.
    cases = {
        case.get("name", "").removesuffix("]"): case for case in ET.parse(project.folder / "junit.xml").iter("testcase")
    }
    scaled = cases[f"{CASE}-scaled-eager"]
    properties = {item.get("name"): float(item.get("value", "nan")) for item in scaled.iter("property")}
    assert properties["call_p50_ns"] > 0 and properties["speedup"] > 0 and properties["ops_per_call"] == 1
    assert cases[f"{CASE}-kernel-eager"].find("skipped") is not None


def test_compare_with_what_was_saved(measured: tuple[Project, Finished], project: Project) -> None:
    shutil.copytree(measured[0].folder / ".benchmarks", project.folder / ".benchmarks")
    project.change(SLOW)
    slow = project.pytest("suites", "--benchmark-only", "--benchmark-compare", "--benchmark-compare-fail=median:400%")
    assert slow.code == 1, slow.out
    assert f"{CASE}-scaled-eager (NOW)" in slow.out and f"{CASE}-scaled-eager (0001_" in slow.out
    assert "machine_info is different" not in slow.out  # the machine is the same, and is said to be
    failed = slow.out.split("Performance has regressed")[1]
    assert f"{CASE}-scaled-eager" in failed and f"{CASE}-baseline-eager (0001" not in failed.split("Traceback")[0]


def test_a_file_of_another_device_is_refused(measured: tuple[Project, Finished]) -> None:
    project, _ = measured
    (saved,) = project.saved()
    document = project.document(saved)
    document["machine_info"]["pairbench"]["device_name"] = "NVIDIA H100 80GB HBM3"
    (project.folder / "h100.json").write_text(json.dumps(document))
    done = project.pytest("suites", "--benchmark-only", "--benchmark-compare=h100.json")
    assert done.code == 4 and "was measured on NVIDIA H100 80GB HBM3, this is" in done.out, done.out
    assert "Traceback" not in done.out


def test_its_json_is_imported_as_the_run_that_it_was(measured: tuple[Project, Finished]) -> None:
    project, _ = measured
    done = project.pairbench("import", "pytest-benchmark", "all.json")
    assert done.code == 0, done.out
    rows = pd.read_parquet(project.folder / "results" / "records").set_index("implementation")
    extra = benchmarks(project.document("all.json"))[f"{CASE}-scaled-eager"]["extra_info"]
    assert rows.call_p50_ns["scaled"] == extra["call_p50_ns"] and rows.speedup["scaled"] == extra["speedup"]
    assert rows.status.to_dict() == {"baseline": "measured", "scaled": "measured", "kernel": "skipped"}
    samples = pd.read_parquet(project.folder / "results" / "samples")
    assert sorted(samples["round"]) == [0, 0, 1, 1]
    assert samples.call_ns.map(len).sum() == rows.n_samples.sum()


def test_what_is_wrong_or_crashes_fails_alone_with_its_reason_and_is_what_failed_last(project: Project) -> None:
    text = SUITE.replace("def scaled(x):\n    return 2 * x", f"def scaled(x):\n    {WRONG}")
    crashes = "def crashes(x):\n    import os\n    os.abort()\n\n\ndouble = "
    text = text.replace("double = ", crashes).replace('variants={"scaled"', 'variants={"crashes": crashes, "scaled"')
    project.suite.write_text(text)
    grouped = "--benchmark-group-by=param:implementation"
    done = project.pytest("suites", "--benchmark-json=all.json", "--junitxml=junit.xml", grouped)
    assert done.code == 1 and "3 failed, 3 passed" in done.out, done.out
    assert "benchmark 'implementation=baseline': 1 tests" in done.out
    assert "crashed its process with signal SIGABRT" in done.out
    section = done.out.split(f"{CASE}-scaled-eager")[1]
    assert "mismatched: output differs" in section and "instead of" in section, done.out
    assert "During handling" not in done.out and "Traceback" not in done.out and "not used" not in done.out
    assert list(benchmarks(project.document("all.json"))) == [f"{CASE}-baseline-eager"]
    assert 'failures="3"' in (project.folder / "junit.xml").read_text()  # the edge case has no element to be wrong in
    again = project.pytest("suites", "--benchmark-disable", "--lf", "-v")
    ran = [line for line in again.out.splitlines() if line.startswith("suites/") and "FAILED" in line]
    assert again.code == 1 and len(ran) == 3 and not any("baseline" in line for line in ran), again.out


def test_without_timing_everything_is_verified(project: Project) -> None:
    project.change(WRONG)
    done = project.pytest("suites", "-p", "no:benchmark", "-n", "2", "--dist", "loadgroup")
    assert done.code == 1 and "1 failed, 3 passed, 2 skipped" in done.out and "mismatched:" in done.out, done.out


def test_the_precision_of_float32_on_a_gpu_is_said_at_the_end() -> None:
    (record, *_) = make_run(device_kind="cuda", float32_precision="tf32")
    bench, said = SimpleNamespace(records=[record]), list[str]()
    session: Any = SimpleNamespace(
        config=SimpleNamespace(stash={BENCH: bench}), bench=bench, no_verdict=None, judged=None
    )
    PluginSession.pytest_terminal_summary(session, SimpleNamespace(write_line=said.append))
    (line,) = said
    assert line.startswith("pairbench: float32 products and convolutions: TF32 allowed for both")
    session.config.stash = {}
    PluginSession.pytest_terminal_summary(session, SimpleNamespace(write_line=said.append))
    assert len(said) == 1
