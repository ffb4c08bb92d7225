"""Files and folders of odd names: no UTF-8, or those of the standard library. All is measured as if they had others."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import SUITES, Cli, Pairbench, records_of, settle
from tests.commands import call


def test_a_suite_whose_name_is_no_text(pairbench: Pairbench, cli: Cli, tmp_path: Path) -> None:
    name = os.fsdecode(b"odd\xff.py")
    shutil.copy(SUITES / "slow.py", tmp_path / name)
    done = pairbench("run", name, "--format", "json")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert {row["suite"] for row in records_of(done)} == {"odd\\udcff.py"}
    for command in (("show",), ("show", "--format", "json"), ("compare",), ("dashboard", "-o", "site")):
        assert cli(*command).code == 0


@pytest.mark.parametrize("command", [("show",), ("dashboard",), ("import", "asv", "."), ("compare",)], ids=" ".join)
def test_a_store_whose_path_is_no_text_is_refused(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / os.fsdecode(b"odd\xff")
    folder.mkdir()
    said = cli(*command, "--store", str(folder))
    assert said.code == 2 and "the path is no UTF-8" in said.err, said.err


SHADOWED = ("ast", "dis", "glob", "json", "numpy", "queue", "random", "signal", "socket", "torch", "triton", "typing")
SHADOWED_SUITE = """
import glob, json, mine, queue, torch, typing
import numpy as np
from pairbench import Operator, grid

op = Operator("op", baseline=lambda x: x * torch.sigmoid(x), variants={"v": mine.silu}, inputs=lambda make, n: {"x": make.normal(n)}, cases=grid(n=[64]))
"""


# What is no time, down to the environment's hash.
COUNTED = (
    *("suite", "case", "implementation", "mode", "status", "reason", "ops_per_call", "peak_bytes"),
    *("allocations_per_call", "max_abs_error", "mismatched_fraction", "margin", "implementation_hash"),
    *("definition_hash", "environment_hash"),
)


def test_files_named_like_modules_of_libraries_harm_nothing(tmp_path: Path) -> None:
    """`python -m` has the current folder first on the path, and a `queue.py` there crashed every worker that imported torch.

    Interpreters that a user starts find the same as the processes that all other tests fork.
    """
    forked = settle(tmp_path)
    fresh = {name: value for name, value in forked.items() if name != "PAIRBENCH_WORKERS"}
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit({name!r})\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "ops.py").write_text(SHADOWED_SUITE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import json, queue, torch\nfrom other import silu\n")
    (tmp_path / "other.py").write_text("import torch\n\ndef silu(x):\n    return torch.nn.functional.silu(x)\n")
    found = []
    for environment in (fresh, forked):
        done = call(tmp_path, environment, "run", "below/ops.py", "--device", "cpu", "--format", "json")
        assert done.returncode == 0, done.stderr
        found.append([{name: row[name] for name in COUNTED} for row in records_of(done)])
    assert [row["status"] for row in found[0]] == ["measured"] * 2
    assert found[0] == found[1]
