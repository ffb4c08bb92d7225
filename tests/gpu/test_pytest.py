"""pytest on a GPU: two devices stay apart, launches are in extra_info, and the numbers are those of `pairbench run`."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.integrations.pytest_project import SUITE, Project

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

WITHIN = 0.03
FROM_NS = 50e3


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def extra(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item["extra_info"] for item in document["benchmarks"]}


def test_a_cpu_and_a_gpu_are_two_series_that_cannot_be_compared(project: Project) -> None:
    for device in ("cuda:0", "cpu"):
        done = project.pytest(
            "suites", "--benchmark-only", f"--benchmark-save={device[:3]}", "--pairbench-device", device
        )
        assert done.code == 0, done.out
    on_gpu, on_cpu = (next(file for file in project.saved() if file.stem == f"0001_{name}") for name in ("cud", "cpu"))
    assert on_gpu.parent.parent != on_cpu.parent.parent
    names = {"double[n=256]-baseline-eager", "double[n=256]-scaled-eager"}
    assert extra(project.document(on_cpu)).keys() == names
    found = extra(project.document(on_gpu))
    assert names | {"double[n=256]-kernel-eager", "double[n=65536]-kernel-eager"} <= found.keys()
    assert {(one["launches_per_call"], one["launch_status"], one["timer"]) for one in found.values()} == {
        (1, "exact", "cuda_event")
    }
    machine = project.document(on_gpu)["machine_info"]["pairbench"]
    assert machine["driver"] and machine["cuda"] and machine["device_kind"] == "cuda"
    same = project.pytest("suites", "--benchmark-only", "--benchmark-compare", "--pairbench-device", "cuda:0")
    assert same.code == 0 and "(0001_cud" in same.out, same.out
    other = project.pytest(
        "suites", "--benchmark-only", f"--benchmark-compare={on_cpu}", "--pairbench-device", "cuda:0"
    )
    assert other.code == 4 and "can be compared" in other.out, other.out


def test_its_numbers_are_those_of_a_run(project: Project) -> None:
    project.suite.write_text(SUITE.replace("n=65536", f"n={2**26}"))
    options = ("--rounds", "3", "--tier", "real", "--device", "cuda:0")
    assert project.pairbench("run", "suites", *options).code == 0
    same = ("--pairbench-rounds=3", "--pairbench-tier=real", "--pairbench-device=cuda:0", "--pairbench-save")
    assert project.pytest("suites", "--benchmark-only", "--benchmark-json=shown.json", *same).code == 0
    rows = pd.read_parquet(project.folder / "results" / "records").sort_values("run_id")
    table = rows.pivot_table(index="implementation", columns="run_id", values="device_p50_ns")
    assert table.shape == (3, 2) and (table > FROM_NS).all(axis=None)
    assert ((table.iloc[:, 1] / table.iloc[:, 0] - 1).abs() < WITHIN).all(), table
    for item in project.document("shown.json")["benchmarks"]:
        assert item["extra_info"]["samples_of"] == "device"
        assert item["stats"]["median"] * 1e9 == pytest.approx(item["extra_info"]["device_p50_ns"])
    called = ("--benchmark-only", "--benchmark-json=calls.json", "--pairbench-latency=call", *same[:-1])
    assert project.pytest("suites", *called).code == 0
    for item in project.document("calls.json")["benchmarks"]:
        assert item["stats"]["median"] * 1e9 == pytest.approx(item["extra_info"]["call_p50_ns"])
