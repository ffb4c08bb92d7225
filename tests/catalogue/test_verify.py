"""Every suite of the catalogue, whole: each edge and smoke case of each implementation on the CPU, and every impostor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairbench.suite.load import find_suites, load_suite

ROOT = Path(__file__).parents[2]
ONLY_ON_A_GPU = {("block_mask_cache", "keyed_without_device")}
"""Impostors that are right on a CPU."""


@pytest.mark.parametrize("suite", [path.relative_to(ROOT).as_posix() for path in find_suites((ROOT / "suites",))])
def test_all_is_right_and_every_impostor_is_rejected(suite: str, tmp_path: Path) -> None:
    # One thread each: two suites are verified side by side, and most of the time goes into Triton's interpreter.
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pairbench", "verify", suite, "--impostors", "--device", "cpu"]
    done = subprocess.run(
        [*command, "--format", "json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert {row["status"] for row in found["verifications"]} <= {"verified", "skipped"}
    assert not [row for row in found["impostors"] if not row["rejected"]]
    tried = {(row["operator"], row["impostor"]) for row in found["impostors"] if row["declared"]}
    operators = load_suite(ROOT / suite).values()
    declared = {(one.name, name) for one in operators for name in one.impostors}
    assert declared and declared - tried <= ONLY_ON_A_GPU
