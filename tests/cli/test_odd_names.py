"""Files and folders whose names are no UTF-8: measured, stored and shown under names that every file can hold."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

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
