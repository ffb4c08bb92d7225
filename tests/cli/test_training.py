"""Directions of operators with gradients, from the command line to the store, on the CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SUITES, settle
from tests.commands import call

DIRECTIONS = ("fwd", "bwd", "fwd_bwd")
SUITE = f"{SUITES}/training.py"


def records(folder: Path, *arguments: str, forked: bool = True) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the records of a run by operator, direction and implementation."""
    environment = settle(folder)
    if not forked:
        del environment["PAIRBENCH_WORKERS"]
    done = call(folder, environment, "run", "--format", "json", "--device", "cpu", *arguments)
    document = json.loads(done.stdout)
    return {
        (record["operator"], record["axes"].get("direction", ""), record["implementation"]): record
        for record in document["records"]
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], dict[str, Any]]:
    return records(tmp_path_factory.mktemp("training"), *(f"{SUITE}::{name}" for name in ("right", "wrong", "modules")))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_direction_is_measured(found: dict[tuple[str, str, str], dict[str, Any]], direction: str) -> None:
    for operator, names in (("right", ("baseline", "library", "function", "in_place")), ("modules", ("by_hand",))):
        for name in names:
            record = found[operator, direction, name]
            assert record["status"] == "measured", record["reason"]
            assert record["call_p50_ns"] > 0 and record["ops_per_call"] > 0 and record["peak_bytes"] > 0


def test_memory_is_told_apart(found: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    one = {direction: found["right", direction, "function"] for direction in DIRECTIONS}
    assert {record["saved_bytes"] for record in one.values()} == {6 * 4}
    values = 6 * 32 * 4
    assert values <= one["fwd"]["peak_bytes"] < 3 * values <= one["bwd"]["peak_bytes"] < one["fwd_bwd"]["peak_bytes"]
    by_ops = {direction: record["ops_per_call"] for direction, record in one.items()}
    assert max(by_ops["fwd"], by_ops["bwd"]) < by_ops["fwd_bwd"] <= by_ops["fwd"] + by_ops["bwd"] + 1  # a detach


def test_a_cost_knows_its_direction(found: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    moved = {direction: found["right", direction, "baseline"]["bytes_moved"] for direction in DIRECTIONS}
    assert moved == {"fwd": 8 * 192, "bwd": 12 * 192, "fwd_bwd": 20 * 192}


def test_a_wrong_backward_is_never_timed(found: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    for direction in ("bwd", "fwd_bwd"):
        for name in ("detached", "one_way", "forgetful", "accumulates", "unscaled"):
            record = found["wrong", direction, name]
            assert record["status"] in ("failed", "mismatched") and record["call_p50_ns"] is None
        assert found["wrong", direction, "good"]["status"] == "measured"


@pytest.mark.timing
def test_a_backward_that_remembers_is_found_and_an_honest_one_is_not_blamed(tmp_path: Path) -> None:
    found = records(tmp_path, f"{SUITE}::remembering")
    assert found["remembering", "bwd", "good"]["status"] == "measured"
    assert "it remembers results" in found["remembering", "bwd", "remembers"]["reason"]


@pytest.mark.slow
@pytest.mark.timing
def test_a_twin_is_as_fast_in_every_direction(tmp_path: Path) -> None:
    found = records(tmp_path, f"{SUITE}::right", "--implementation", "twin", forked=False)
    # The quickest round of each: the directions are timed one after the other, and tests beside this one slow some rounds.
    latencies = {direction: min(found["right", direction, "twin"]["call_round_p50_ns"]) for direction in DIRECTIONS}
    for direction in DIRECTIONS:
        assert 0.85 < found["right", direction, "twin"]["speedup"] < 1.18
    assert 0.6 < latencies["fwd_bwd"] / (latencies["fwd"] + latencies["bwd"]) < 1.7
