"""Files and folders of odd names: no UTF-8, or those of the standard library. All is measured as if they had others."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import settle
from tests.commands import call

Done = subprocess.CompletedProcess[str]


def test_a_suite_whose_name_is_no_text(pairbench: Callable[..., Done], suites: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"odd\xff.py")
    shutil.copy(suites / "slow.py", tmp_path / name)
    done = pairbench("run", name, "--format", "json")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert {row["suite"] for row in json.loads(done.stdout)["records"]} == {"odd\\udcff.py"}
    for command in (("list", name), ("show",), ("show", "--format", "json"), ("compare",), ("dashboard", "-o", "site")):
        done = pairbench(*command)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_a_store_whose_path_is_no_text_is_refused(pairbench: Callable[..., Done], tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"odd\xff")
    folder.mkdir()
    for command in (("show",), ("dashboard",), ("import", "asv", "."), ("compare",)):
        done = pairbench(*command, "--store", str(folder))
        assert done.returncode == 2 and "the path is no UTF-8" in done.stderr, done.stderr


SHADOWED = ("ast", "dis", "glob", "json", "numpy", "queue", "random", "signal", "socket", "torch", "triton", "typing")
SHADOWED_SUITE = """
import glob, json, mine, queue, torch, typing
import numpy as np
from pairbench import Operator, grid

op = Operator("op", baseline=lambda x: x * torch.sigmoid(x), variants={"v": mine.silu}, inputs=lambda make, n: {"x": make.normal(n)}, cases=grid(n=[64]))
"""


def test_files_named_like_modules_of_libraries_harm_nothing(tmp_path: Path) -> None:
    """`python -m` has the current folder first on the path, and a `queue.py` there crashed every worker that imported torch."""
    environment = settle(tmp_path)
    del environment["PAIRBENCH_WORKERS"]
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit({name!r})\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "ops.py").write_text(SHADOWED_SUITE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import json, queue, torch\nfrom other import silu\n")
    (tmp_path / "other.py").write_text("import torch\n\ndef silu(x):\n    return torch.nn.functional.silu(x)\n")
    for command in (("run", "below/ops.py", "--device", "cpu", "--format", "json"), ("doctor",)):
        done = call(tmp_path, environment, *command)
        assert done.returncode == 0, done.stderr
        if command[0] == "run":
            assert [row["status"] for row in json.loads(done.stdout)["records"]] == ["measured"] * 2
