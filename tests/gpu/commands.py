"""Commands of pairbench on a GPU, each in an interpreter of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.commands import ROOT


def pairbench(*arguments: str, folder: Path = ROOT, codes: tuple[int, ...] = (0,), **variables: str) -> dict[str, Any]:
    """Return the JSON document of a command, which must end with one of these codes, and the code as its `rc`."""
    command = [sys.executable, "-m", "pairbench", *arguments, "--format", "json"]
    paths = filter(None, [str(ROOT / "harness"), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in codes, done.stderr + done.stdout[-2000:]
    return {**json.loads(done.stdout), "rc": done.returncode}
