"""`pairbench capture` on a GPU: the profiler's second run, and whose call each kernel is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.suites.programs import net

pytestmark = pytest.mark.gpu


def test_shares_are_of_the_devices_time(tmp_path: Path) -> None:
    program = ["--format", "json", "--", sys.executable, net.__file__ or "", "cuda"]
    command = [sys.executable, "-m", "pairbench", "capture", "-o", "seen.py", "--steps", "64", *program]
    paths = os.pathsep.join(filter(None, [str(ROOT / "harness"), str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    operators = json.loads(done.stdout)["operators"]
    shares = {one["operator"]: float(one["share"].rstrip("%")) for one in operators}
    assert sum(shares.values()) > 85
    assert shares["linear"] > 10
    assert "of device time a step" in (tmp_path / "seen.py").read_text()
