"""Declarations of many kinds in one run on the CPU: directions, inputs that are overwritten, state that is reset, slow inputs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SUITES, Pairbench, files, records_of, settle
from tests.commands import Done, call

# All that is asked below: mistakes in a backward are tried by a worker alone.
IMPLEMENTATIONS = (
    *("library", "function", "in_place", "by_hand", "in_logits", "in_gradient", "by_slice", "add"),
    *("apart", "same", "wrong", "undeclared"),
)
Rows = dict[tuple[str, str, str], dict[str, Any]]
DIRECTIONS = ("fwd", "bwd", "fwd_bwd")
SLOW_INPUTS = """
import time

from pairbench import Operator, grid


def inputs(make, n):
    time.sleep(0.25)
    return {"x": make.normal(n)}


slow = Operator("slow", baseline=lambda x: x * 2, variants={"add": lambda x: x + x}, inputs=inputs, cases=grid(n=[80]))
"""


def by_direction(done: Done) -> Rows:
    """Return the records of a run by operator, direction and implementation."""
    return {(row["operator"], row["axes"].get("direction", ""), row["implementation"]): row for row in records_of(done)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("declared")
    (folder / "slow_inputs.py").write_text(SLOW_INPUTS)
    training = (f"{SUITES}/training.py::{name}" for name in ("right", "modules[*=bwd*"))
    names = ("swiglu[*=bwd*", "cross_entropy", "square[*=bwd*", "scaled")
    consuming = (f"{SUITES}/consuming.py::{name}" for name in names)
    suites = (*consuming, *files("appends"), *training, "slow_inputs.py")
    chosen = [word for name in IMPLEMENTATIONS for word in ("-i", name)]
    return call(folder, settle(folder), "run", "--device", "cpu", "--format", "json", *suites, *chosen)


@pytest.fixture(scope="module")
def rows(measured: Done) -> Rows:
    return by_direction(measured)


def assert_measured(row: dict[str, Any]) -> None:
    assert row["status"] == "measured", row["reason"]
    assert row["call_p50_ns"] > 0 and row["ops_per_call"] > 0 and row["peak_bytes"] is not None


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_direction_is_measured_and_the_column_says_which_inputs_are_overwritten(
    rows: Rows, direction: str
) -> None:
    for name in ("baseline", "library", "function", "in_place"):
        assert_measured(rows["right", direction, name])
    consuming = [("cross_entropy", "in_logits", ["logits"])]
    if direction == "bwd":
        assert_measured(rows["modules", direction, "by_hand"])
        consuming += [("swiglu", "in_place", ["a", "b"])]
        consuming += [("square", "in_gradient", ["output gradient", "saved tensors"])]
    for operator, name, consumes in consuming:
        assert_measured(rows[operator, direction, name])
        assert rows[operator, direction, name]["consumes"] == consumes
        assert rows[operator, direction, "baseline"]["consumes"] is None


def test_memory_and_cost_are_those_of_the_direction(rows: Rows) -> None:
    one = {direction: rows["right", direction, "function"] for direction in DIRECTIONS}
    assert {record["saved_bytes"] for record in one.values()} == {6 * 4}
    values = 6 * 32 * 4
    assert values <= one["fwd"]["peak_bytes"] < 3 * values <= one["bwd"]["peak_bytes"] < one["fwd_bwd"]["peak_bytes"]
    ops = {direction: record["ops_per_call"] for direction, record in one.items()}
    assert max(ops["fwd"], ops["bwd"]) < ops["fwd_bwd"] <= ops["fwd"] + ops["bwd"] + 1  # a detach
    moved = {direction: rows["right", direction, "baseline"]["bytes_moved"] for direction in DIRECTIONS}
    assert moved == {"fwd": 8 * 192, "bwd": 12 * 192, "fwd_bwd": 20 * 192}


def test_a_baseline_that_overwrites_and_those_beside_it(rows: Rows) -> None:
    ends = {name: rows["scaled", "", name]["status"] for name in ("baseline", "apart", "same", "wrong", "undeclared")}
    right, wrong = dict.fromkeys(("baseline", "apart", "same"), "measured"), ("wrong", "undeclared")
    assert ends == right | dict.fromkeys(wrong, "mismatched")
    assert rows["scaled", "", "baseline"]["consumes"] == ["a"]


def test_a_cache_with_a_position_is_timed_where_it_is_reset(rows: Rows) -> None:
    for operator in ("restored", "by_function"):
        for name in ("baseline", "by_slice"):
            assert_measured(rows[operator, "", name])
            assert rows[operator, "", name]["n_samples"] > 8, "calls for which the cache has room without"
    without = rows["not_reset", "", "by_slice"]
    assert without["status"] == "failed" and without["call_p50_ns"] is None


def test_a_run_says_which_inputs_take_long(measured: Done) -> None:
    (remark,) = json.loads(measured.stdout)["summary"]["remarks"]
    took = re.fullmatch(r"making inputs of slow took (\d+) s of its (\d+)", remark)
    assert took and 1 <= int(took[1]) <= int(took[2])


def test_other_ways_to_call_restore_inputs_too(quick: Pairbench) -> None:
    chosen = (f"{SUITES}/consuming.py::cross_entropy", "-i", "in_logits", "--device", "cpu")
    shown = quick("breakdown", *chosen)
    assert shown.returncode == 0 and "in_logits (eager)" in shown.stdout, shown.stdout
    tried = quick("try", *chosen)
    assert tried.returncode == 0 and "overwrites its input logits" in tried.stdout, tried.stdout


def test_outputs_of_every_kind_reach_the_judge_as_bytes(quick: Pairbench) -> None:
    done = quick("verify", *files("kinds"), "--device", "cpu", "--format", "json")
    found = json.loads(done.stdout)["verifications"]
    assert len({row["operator"] for row in found}) == 3
    for row in found:
        assert row["status"] == ("mismatched" if row["implementation"] == "wrong" else "verified"), row
        if row["status"] == "verified":
            assert (row["repeat_error"] == 0) is (row["operator"] != "random"), row


@pytest.mark.timing
def test_a_backward_that_remembers_is_found_and_an_honest_one_is_not_blamed(tmp_path: Path) -> None:
    suite = f"{SUITES}/training.py::remembering"
    found = by_direction(call(tmp_path, settle(tmp_path), "run", "--format", "json", "--device", "cpu", suite))
    assert found["remembering", "bwd", "good"]["status"] == "measured"
    assert "it remembers results" in found["remembering", "bwd", "remembers"]["reason"]


@pytest.mark.slow
@pytest.mark.timing
def test_a_twin_is_as_fast_in_every_direction(tmp_path: Path) -> None:
    environment = settle(tmp_path, case_seconds=0.05)
    del environment["PAIRBENCH_WORKERS"]
    suite = (f"{SUITES}/training.py::right", "--implementation", "twin")
    found = by_direction(call(tmp_path, environment, "run", "--format", "json", "--device", "cpu", *suite))
    # The quickest round of each: the directions are timed one after the other, and tests beside this one slow some rounds.
    latencies = {direction: min(found["right", direction, "twin"]["call_round_p50_ns"]) for direction in DIRECTIONS}
    for direction in DIRECTIONS:
        assert 0.85 < found["right", direction, "twin"]["speedup"] < 1.18
    assert 0.6 < latencies["fwd_bwd"] / (latencies["fwd"] + latencies["bwd"]) < 1.7
