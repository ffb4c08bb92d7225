"""Inputs that take long to make are remarked on, once for an operator, with how long they took."""

import re
from pathlib import Path

from tests.cli.conftest import settle
from tests.commands import call

SUITE = """
import time

from pairbench import Operator, grid


def inputs(make, n):
    time.sleep(0.3)
    return {"x": make.normal(n)}


slow = Operator("slow", baseline=lambda x: x * 2, variants={"add": lambda x: x + x}, inputs=inputs, cases=grid(n=[80, 90]))
quick = Operator("quick", baseline=lambda x: x * 2, variants={"add": lambda x: x + x}, inputs=lambda make: {"x": make.rand(30)}, cases=[{}])
"""


def test_a_run_says_which_inputs_take_long(tmp_path: Path) -> None:
    environment = settle(tmp_path)
    (tmp_path / "ops.py").write_text(SUITE)
    done = call(tmp_path, environment, "run", "ops.py", "--device", "cpu")
    (took,) = re.findall(r"Making inputs of slow took (\d+) s of its (\d+)\n", done.stdout + done.stderr)
    assert (
        done.returncode == 0
        and 1 <= int(took[0]) <= int(took[1])
        and "inputs of quick" not in done.stdout + done.stderr
    )
