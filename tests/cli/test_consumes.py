"""Implementations that overwrite their inputs, from the command line to the store and what is shown of it, on the CPU."""

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SUITES, settle
from tests.commands import call

SUITE = f"{SUITES}/consuming.py"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that calls pairbench where a run of the suite is stored."""
    folder = tmp_path_factory.mktemp("consumes")
    environment = settle(folder)
    call(folder, environment, "run", "--device", "cpu", "--rounds", "2", SUITE)
    return functools.partial(call, folder, environment)


@pytest.fixture(scope="module")
def found(shell: Callable[..., subprocess.CompletedProcess[str]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    done = shell("show", "--format", "json")
    return {
        (row["operator"], row["axes"].get("direction", ""), row["implementation"]): row
        for row in json.loads(done.stdout)["records"]
    }


@pytest.mark.parametrize(
    ("operator", "name", "consumes"),
    [
        ("swiglu", "in_place", ["a", "b"]),
        ("cross_entropy", "in_logits", ["logits"]),
        ("square", "in_gradient", ["output gradient", "saved tensors"]),
    ],
)
@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
def test_every_direction_is_measured_and_the_column_says_what_is_lost(
    found: dict[tuple[str, str, str], dict[str, Any]], operator: str, name: str, consumes: list[str], direction: str
) -> None:
    row = found[operator, direction, name]
    assert row["status"] == "measured", row["reason"]
    assert row["call_p50_ns"] > 0 and row["ops_per_call"] > 0 and row["consumes"] == consumes
    assert found[operator, direction, "baseline"]["consumes"] is None


def test_a_baseline_that_overwrites_and_those_beside_it(found: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    ends = {name: found["scaled", "", name]["status"] for name in ("baseline", "apart", "same", "wrong", "undeclared")}
    assert ends == dict.fromkeys(("baseline", "apart", "same"), "measured") | dict.fromkeys(
        ("wrong", "undeclared"), "mismatched"
    )
    assert found["scaled", "", "baseline"]["consumes"] == ["a"]


def test_what_could_not_be_judged_is_not_measured(found: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    ends = {name: (found[name, "", "baseline"]["status"], found[name, "", "v"]["status"]) for name in ("nothing", "constant", "refused", "meant")}  # fmt: skip
    assert ends == {
        "nothing": ("failed", "skipped"),
        "constant": ("failed", "skipped"),
        "refused": ("mismatched", "skipped"),
        "meant": ("measured", "measured"),
    }


def test_tables_and_the_site_say_so(shell: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    said = "overwrites its inputs a, b"
    assert said in shell("show").stdout
    assert said in shell("show", "--format", "markdown").stdout
    shell("dashboard", "--output", str(tmp_path / "site"))
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    assert any(said in page for page in pages)


def test_other_ways_to_call_restore_too(shell: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    chosen = (f"{SUITE}::cross_entropy", "-i", "in_logits", "--device", "cpu")
    shown = shell("breakdown", *chosen)
    assert shown.returncode == 0 and "in_logits (eager)" in shown.stdout, shown.stdout
    tried = shell("try", *chosen)
    assert tried.returncode == 0 and "overwrites its input logits" in tried.stdout, tried.stdout
