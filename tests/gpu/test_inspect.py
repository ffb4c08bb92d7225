"""`breakdown` and `diverge` on a GPU: kernels by module, in graphs too; waits with their lines; who made the error."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

NETWORK = ["tests/suites/modules.py::network", "--case", "rows=64"]


def breakdown(*arguments: str) -> dict[str, Any]:
    (found,) = pairbench("breakdown", *NETWORK, *arguments)["breakdown"]["implementations"]
    assert "reason" not in found, found
    return dict(found)


def node(found: dict[str, Any], *labels: str) -> dict[str, Any]:
    at: dict[str, Any] = found["modules"]
    for label in labels:
        (at,) = [child for child in at["children"] if child["label"] == label]
    return at


def lines(found: dict[str, Any], what: str) -> list[dict[str, Any]]:
    return [line for line in found["lines"] if line["spot"]["what"] == what]


def test_kernels_belong_to_modules() -> None:
    found = breakdown()
    assert found["unknown_part"] == 0 and found["off_by"] < 0.05
    root = found["modules"]
    assert root["launches"] > 0 and root["ns"] == pytest.approx(found["parts_ns"])
    for place in range(4):
        norm = node(found, "net", "blocks", str(place), "norm")
        assert norm["count"] >= 4 and set(norm["kinds"]) == {"norm"}
        assert set(node(found, "net", "blocks", str(place), "ffn", "0")["kinds"]) == {"matmul"}
    assert {"attention", "matmul", "norm", "elementwise", "cache"} <= {kind["name"] for kind in found["kinds"]}
    idle = found["idle"]
    assert 0 < idle["busy_ns"] <= idle["span_ns"] and idle["starved_ns"] <= idle["span_ns"]
    # Kernels of a few microseconds: the host is behind all the time, and yet it waits for nothing.
    assert idle["starved_ns"] > 0.3 * idle["span_ns"] and idle["after_sync_ns"] == 0
    assert found["waits"] == []


def test_a_graph_s_kernels_belong_to_modules_too() -> None:
    eager, graph = breakdown(), breakdown("--mode", "graph")
    assert graph["graph_launches"] == 1 and graph["modules"]["launches"] == 0
    assert graph["unknown_part"] < 0.1, graph["notes"]
    assert graph["modules"]["count"] == eager["modules"]["count"]
    for labels in (("net", "blocks", "2", "ffn", "1"), ("net", "blocks", "3", "norm")):
        assert node(graph, *labels)["count"] == node(eager, *labels)["count"] > 0
    share = [found["idle"]["starved_ns"] / found["idle"]["span_ns"] for found in (eager, graph)]
    assert share[1] < 0.1 < share[0]


def test_the_planted_cast_has_its_time_and_the_planted_wait_its_line() -> None:
    casts = breakdown("-i", "casts")
    found = [line for line in lines(casts, "cast") if "the planted cast" in line["spot"]["code"]]
    assert len(found) == 2 and all(line["ns"] > 0 and line["spot"]["count"] == 4 for line in found)
    waits = breakdown("-i", "waits")
    (wait,) = lines(waits, "sync")
    assert "the planted wait" in wait["spot"]["code"] and wait["waits"] == 4
    assert waits["idle"]["after_sync_ns"] > 0


def test_the_trace_holds_kernels_and_modules(tmp_path: Path) -> None:
    for mode, category in (("eager", "user_annotation"), ("graph", "kernel")):
        breakdown("--mode", mode, "--trace", str(tmp_path / f"{mode}.json"))
        events = json.loads((tmp_path / f"{mode}.json").read_text())["traceEvents"]
        assert any(event.get("cat") == category for event in events)
        assert any(event.get("cat") == "kernel" for event in events)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_module_that_makes_the_error_is_named(dtype: str) -> None:
    select = [NETWORK[0], "--case", f"dtype={dtype},rows=8"]
    found = pairbench("diverge", *select, "--variant", "wrong_ffn", codes=(1,))["divergence"]
    assert found["first"]["module"] == "net.blocks.2.ffn.2" and found["first"]["inputs"]["within"]
    assert found["first_worse"]["module"] == "net.blocks.2.ffn.2"
    assert pairbench("diverge", *select, "--variant", "same")["divergence"]["first"] is None
