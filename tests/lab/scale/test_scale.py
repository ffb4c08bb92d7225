"""The store that the scale benchmark makes, small: the answers are right; how long they take is `nox -s scale`'s question."""

import subprocess
import sys
from pathlib import Path

import pytest

from pairbench.config import load_config
from pairbench.model.comparison import GateOutcome
from pairbench.store.reader import read_run, read_series, runs
from pairbench.workflow.comparer import Comparer
from tests.builders import DEVICE
from tests.commands import ROOT
from tests.lab.scale.big_store import first_variant, write_store

RUNS, SERIES = 20, 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store whose newest run has one variant 3 % slower."""
    folder = tmp_path_factory.mktemp("store")
    assert list(write_store(folder, runs=RUNS, series=SERIES, slower={RUNS - 1: 1.03})) == list(range(RUNS))
    return folder


def test_it_is_a_store_like_any(store: Path) -> None:
    found = runs(store)
    assert len(found.value) == RUNS and found.problems == ()
    newest = read_run(store).value
    assert len(newest) == SERIES and {record.device_name for record in newest} == {DEVICE}
    assert all(len(record.round_p50_ns or ()) == 3 for record in newest)
    suite, _, rest = first_variant().partition("::")
    case, implementation, mode = rest.rsplit("-", 2)
    where = {"suite": suite, "case": case, "implementation": implementation, "mode": mode}
    levels = [record.call_p50_ns or 0.0 for record in read_series(store, where=where).value]
    assert len(levels) == RUNS and levels[-1] / levels[0] == pytest.approx(1.03, rel=0.02)


def test_the_one_that_moved_is_found_and_no_other(store: Path, tmp_path: Path) -> None:
    comparison = Comparer.open(load_config(tmp_path, store=str(store))).compare().comparison
    assert comparison.outcomes[GateOutcome.REGRESSION] == 1 and comparison.outcomes.total() == SERIES
    (worse,) = [change for change in comparison.changes if change.outcome is GateOutcome.REGRESSION]
    assert worse.series.name == first_variant()
    assert worse.judgements[0].floor is not None, "twenty runs are enough to know its noise"
    assert len(comparison.reference.runs) == RUNS - 1 and comparison.problems == ()


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path: Path) -> None:
    options = ["--runs", "8", "--series", "8", "--store", str(tmp_path / "store"), "--times", "1"]
    command = [sys.executable, "-m", "tests.lab.scale.bench", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # On a busy machine even this may take too long: then it says so.
    assert done.returncode == ("too much" in done.stdout), done.stderr
    assert "8 runs of 8 series" in done.stdout and "trend" in done.stdout
    assert not done.stderr
