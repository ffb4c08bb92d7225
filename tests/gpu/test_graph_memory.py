"""Graphs replayed for device latencies share their memory, and are done without where they leave no room for the calls."""

from pathlib import Path

import pandas as pd
import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SUITE = """
import torch
from pairbench import Operator, grid

def through_room(part, which):
    def call(x, *, which=which):
        room = torch.empty(int(torch.cuda.mem_get_info()[1] * part), dtype=torch.uint8, device=x.device).fill_(1)
        return x + room[:1]
    return call

op = Operator("op", baseline=through_room({part}, "baseline"),
    variants={{f"same_{{i}}": through_room({part}, i) for i in range({variants})}},
    inputs=lambda make, rows: {{"x": make.normal(rows)}}, cases={{"real": grid(rows=[4])}})
"""


def records(folder: Path, part: float, variants: int) -> pd.DataFrame:
    """Measure implementations that each need this part of the GPU's memory on the way."""
    (folder / "ops.py").write_text(SUITE.format(part=part, variants=variants))
    pairbench("run", "ops.py", "--device", "cuda:0", "--tier", "real", "--rounds", "1", folder=folder)
    return pd.read_parquet(folder / "results" / "records")


def test_eight_graphs_of_a_fifth_of_the_memory_each(tmp_path: Path) -> None:
    found = records(tmp_path, 0.2, 7)
    assert set(found.status) == {"measured"} and len(found) == 8
    assert set(found.device_timer) == {"graph_replay"}


def test_no_graph_beside_a_call_that_needs_most_of_the_memory(tmp_path: Path) -> None:
    found = records(tmp_path, 0.6, 1)
    assert set(found.status) == {"measured"} and len(found) == 2
    assert "graph_replay" not in set(found.device_timer)


def test_the_judge_has_room_for_a_call_beside_graphs_and_calls(tmp_path: Path) -> None:
    found = records(tmp_path, 0.24, 2)
    assert set(found.status) == {"measured"} and len(found) == 3
