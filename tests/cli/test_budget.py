"""A run with a budget: what does not fit is skipped, comes first the next time, and no verdict misses it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Done

Pairbench = Callable[..., Done]


def test_what_is_out_of_budget_comes_first_the_next_time(pairbench: Pairbench, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "suites" / "good.py", tmp_path / "ops.py")

    def run(budget: str) -> tuple[dict[str, Any], list[str]]:
        done = pairbench("run", "ops.py", "--device", "cpu", "--budget", budget, "--format", "json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        tried = [one["case"] for one in document["records"] if one["reason"] != "out of budget"]
        return document, list(dict.fromkeys(tried))

    # One case is done whatever it takes, and for more there is no time.
    first, tried = run("0.1s")
    assert len(tried) == 1
    skipped = [one for one in first["records"] if one["case"] not in tried]
    assert first["summary"]["out_of_budget_cases"] == len({one["case"] for one in skipped}) > 1
    assert {(one["status"], one["reason"]) for one in skipped} == {("skipped", "out of budget")}
    shown = pairbench("show").stdout
    assert shown.count("out of budget") == 1 and tried[0] in shown

    _, second = run("0.1s")
    assert len(second) == 1 and second != tried
    compared = json.loads(pairbench("compare", "--format", "json").stdout)
    outcomes = {change["series"]["case"]: change["outcome"] for change in compared["changes"]}
    assert outcomes[tried[0]] == "incomparable", "measured before, and out of this run's budget"
    assert not {"missing", "failed", "regression"} & set(outcomes.values())
    # The history goes on where it was measured last.
    trend = pairbench("trend", f"{tried[0]}-named-eager", "--format", "json")
    assert trend.returncode == 0 and "out of budget" not in trend.stdout


@pytest.mark.parametrize("budget", ["10", "fast", "0m", "-5s", "10d"])
def test_a_budget_that_is_none(quick: Pairbench, budget: str) -> None:
    done = quick("run", f"--budget={budget}")
    assert done.returncode == 2 and "expected a length of time such as '90s'" in done.stderr
