"""How long a command takes that does nothing."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clock import cpu_seconds


@pytest.mark.timing
def test_help_is_fast(tmp_path: Path) -> None:
    """Compiled, in processor time, beside what Typer itself needs: how fast or busy this machine is has no say in it."""
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)

    def seconds(*arguments: str) -> float:
        command = [sys.executable, *arguments]
        return cpu_seconds(lambda: subprocess.run(command, check=True, capture_output=True, env=compiled))

    # What slows this machine for a second slows both of a pair; the least of each may come from different seconds.
    ratios = list[float]()
    while len(ratios) < 3 or (statistics.median(ratios) >= 2.5 and len(ratios) < 15):
        ratios.append(seconds("-m", "pairbench", "--help") / seconds("-c", "import typer.main"))
    assert statistics.median(ratios) < 2.5, "`python -X importtime -m pairbench --help` shows what it loads"
