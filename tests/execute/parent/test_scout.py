import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import PairbenchError
from pairbench.execute.parent.pool import ANY, WorkerContext, WorkerProcess, Workers
from pairbench.execute.parent.scout import describe, find_devices, probe_environment
from pairbench.model.plan import BrokenSuite
from tests.execute.made import CPU


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the first workers killed before they hear their job, as many as the number in the list says."""
    left = [1]
    ask = WorkerProcess.request

    def request(worker: WorkerProcess, job: Any) -> Iterator[Any]:
        if left[0]:
            left[0] -= 1
            while worker._process.pid is None:
                time.sleep(0.001)
            os.kill(worker._process.pid, signal.SIGKILL)
        yield from ask(worker, job)

    monkeypatch.setattr(WorkerProcess, "request", request)
    return left


def test_a_worker_that_is_killed_while_it_probes_is_started_again(
    forking: WorkerContext, killed: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert probe_environment(forking, CPU).device == CPU
    said = capfd.readouterr().err
    assert said.startswith(
        "pairbench: a worker that reads the environment of cpu is started again: its process was killed (SIGKILL)"
    )
    assert said.count("\n") == 1 and killed == [0]


def test_two_that_are_killed_are_too_many(
    forking: WorkerContext, killed: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    killed[0] = 2
    words = r"cpu \(a CPU\) cannot be used: .*killed .*and so was the one that was started in its place"
    with pytest.raises(PairbenchError, match=words):
        probe_environment(forking, CPU)
    assert capfd.readouterr().err.count("\n") == 1


def test_devices_and_suites_are_found_all_the_same(forking: WorkerContext, killed: list[int], tmp_path: Path) -> None:
    suite = tmp_path / "ops.py"
    suite.write_text(
        "from pairbench import Operator\nop = Operator('op', baseline=lambda x: x, variants={'v': lambda x: x}, inputs=lambda make: {'x': make.ones(2)}, cases=[{}])\n"
    )
    with Workers(forking, ANY) as workers:
        assert find_devices(workers)[-1].kind == "cpu"
        killed[0] = 1
        found = describe(workers, "ops.py", suite)
    assert not isinstance(found, BrokenSuite) and [one.name for one in found] == ["op"]


def test_a_suite_that_ends_its_worker_by_itself_is_not_loaded_twice(
    forking: WorkerContext, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "ends.py"
    suite.write_text("import os\nopen(__file__ + '.count', 'a').write('x')\nos._exit(3)\n")
    with Workers(forking, ANY) as workers:
        found = describe(workers, "ends.py", suite)
    assert isinstance(found, BrokenSuite) and "exit status 3" in found.reason
    assert Path(f"{suite}.count").read_text() == "x" and not capfd.readouterr().err
