"""What a run leaves out, by `--skip-existing` or for want of `--implementation`, is left out, and no verdict takes it for gone."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pairbench.store import upkeep
from pairbench.store.location import StoreLocation

Pairbench = Callable[..., subprocess.CompletedProcess[str]]


def test_only_what_is_not_there_is_run(pairbench: Pairbench, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "suites" / "good.py", tmp_path / "ops.py")

    def run(*select: str) -> tuple[set[str], str]:
        done = pairbench("run", *select, "--device", "cpu", "--skip-existing", "--format", "json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return {record["case"] for record in document["records"]}, done.stderr

    first, said = run("ops.py::shifts")
    assert len(first) == 2 and "already" not in said
    both, said = run("ops.py::shifts", "ops.py::running_total")
    assert both and not both & first
    assert f"2 of {2 + len(both)} cases are in store" in said

    none = pairbench("run", "ops.py::shifts", "--device", "cpu", "--skip-existing")
    assert none.returncode == 0 and "Nothing to run" in none.stdout
    assert pd.read_parquet(tmp_path / "results" / "records").run_id.nunique() == 2

    # The newest run was asked for no more than it did not leave out.
    compared = pairbench("compare", "--strict", "--format", "json")
    outcomes = {row["outcome"] for row in json.loads(compared.stdout)["changes"]}
    assert outcomes == {"new"}


def test_only_the_implementations_that_are_named_are_run(pairbench: Pairbench, tmp_path: Path) -> None:
    good = (Path(__file__).parents[1] / "suites" / "good.py").read_text()
    (tmp_path / "ops.py").write_text(good.replace('variants={"named"', 'variants={"other": both_shifts, "named"'))
    arguments = ("run", "ops.py::shifts", "ops.py::extremes", "--device", "cpu", "--format", "json")
    assert pairbench(*arguments).returncode == 0
    named = pairbench(*arguments, "-i", "n*d")
    assert named.returncode == 0, named.stderr
    records = json.loads(named.stdout)["records"]
    assert {(record["operator"], record["implementation"]) for record in records} == {
        ("shifts", "baseline"),
        ("shifts", "named"),
    }
    assert all(record["speedup"] for record in records if record["role"] == "variant")

    compared = pairbench("compare", "--format", "json")
    assert len(json.loads(compared.stdout)["changes"]) == len(records)


def test_what_a_compacted_store_has_is_not_run_again(
    pairbench: Pairbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).parents[1] / "suites" / "good.py", tmp_path / "ops.py")
    operators = ("ops.py::shifts", "ops.py::running_total")
    for operator in operators:
        assert pairbench("run", operator, "--device", "cpu").returncode == 0
    monkeypatch.setattr(upkeep, "AT_LEAST", 2)
    place = StoreLocation.of(tmp_path / "results")
    assert [one.files for one in upkeep.compact(place, keep=0)] == [1]
    assert [file.is_compacted for file in place.files("records")] == [True]
    done = pairbench("run", *operators, "--device", "cpu", "--skip-existing")
    assert done.returncode == 0 and "Nothing to run" in done.stdout
