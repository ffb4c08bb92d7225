"""What is measured is how long it takes."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from pairbench.store.reader import read_run
from tests.cli.conftest import SUITES, settle
from tests.commands import call


@pytest.mark.timing
def test_twice_the_work_takes_twice_as_long(tmp_path: Path) -> None:
    """Beside the half of it, in the same blocks, by the fastest calls: a longer call is interrupted more often."""
    shutil.copy(SUITES / "slow.py", tmp_path / "my_ops.py")
    # With two threads each of the operators waits for both, and on a busy machine that is all that is timed.
    environment = {**settle(tmp_path, case_seconds=0.5), "OMP_NUM_THREADS": "1"}
    done = call(tmp_path, environment, "run", "my_ops.py", "--device", "cpu", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    samples = pd.read_parquet(tmp_path / "results" / "samples").set_index("implementation")["call_ns"]
    fastest = {name: min(min(found) for found in samples[[name]]) for name in ("baseline", "twice", "same")}
    assert 0.4 < fastest["baseline"] / fastest["twice"] < 0.6
    assert 0.8 < fastest["baseline"] / fastest["same"] < 1.25
    (twice,) = [record for record in read_run(tmp_path / "results").value if record.implementation == "twice"]
    assert (twice.speedup or 1.0) < 0.8
