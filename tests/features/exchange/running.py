"""Commands in interpreters of their own, as a user starts them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_module(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), "NO_COLOR": "1", "COLUMNS": "250"}
    arguments = [sys.executable, "-m", *command]
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
