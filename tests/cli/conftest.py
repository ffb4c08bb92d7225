"""Commands of the real command line: in the test's own process where nothing is measured, else forked; long runs are shared.

Commands that measure and their workers are forked (see tests/commands.py). Every one has a folder of its own for temporary
files, and so device locks of its own: it neither waits for a run on this machine nor for another test's.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pairbench.execute.parent import scout
from pairbench.execute.parent.launch import VARIABLE
from pairbench.execute.parent.pool import WorkerContext
from pairbench.model.record import Record
from tests.builders import CASES, run_id_of, write_runs
from tests.commands import Done, call, environment_of, forked_workers
from tests.in_process import Said, call_main

SUITES = Path(__file__).parents[1] / "suites"
SLOWER = {f"{CASES[0]}-fused": 1.2}
SETTINGS = {"case_seconds": 0.02, "min_samples": 20, "rounds": 1}
MEMORY_BYTES = 3 * 2**30
"""What a worker may take in the run with a suite that allocates without end."""

Pairbench = Callable[..., Done]


class Compared(Said):
    """What a command said, of which `compare` counts outcomes and names the runs of its reference."""

    @property
    def outcomes(self) -> dict[str, int]:
        return {name: number for name, number in self.document["outcomes"].items() if number}

    @property
    def reference(self) -> list[int]:
        ids = {run_id_of(number): number for number in range(100)}
        return [ids[run] for run in self.document["reference"]["runs"]]


Cli = Callable[..., Compared]


def write(*runs: Sequence[Record], store: str = "results") -> None:
    """Write made-up runs into a store of the current folder."""
    write_runs(store, *runs)


def files(*names: str) -> list[str]:
    """Return the paths of suites."""
    return [f"{SUITES}/{name}.py" for name in names]


def settle(folder: Path, **settings: object) -> dict[str, str]:
    """Make a folder to run in, with its settings, and return the environment for a command there."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**SETTINGS, **settings}.items()]
    (folder / "pyproject.toml").write_text("\n".join(["[tool.pairbench]", *lines]) + "\n")
    (folder / "tmp").mkdir()
    return environment_of(folder / "tmp", PAIRBENCH_WORKERS="fork")


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def processes_of(folder: Path) -> list[int]:
    """Return the process of a command in a folder that was settled, and all that it has started, whatever they are."""
    mark, found = f"TMPDIR={folder / 'tmp'}".encode(), []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended since, or is somebody else's
            if mark in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return [pid for pid in found if not gone(pid)]


def eventually(what: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Return whether something comes true within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not what():
        time.sleep(0.02)
    return what()


def records_of(done: Done) -> list[dict[str, Any]]:
    """Return the records of the JSON document that a run printed."""
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return found


HOSTILE = ("fails", "ends", "wrong", "prepare_raises", "inputs_raise", "loose", "strays")
BROKEN_FILES = ("import_error", "syntax_error", "dies_on_import", "no_operator")
# Fixture -> arguments of the run behind it.
RUNS: dict[str, list[str]] = {
    "hostile": [
        "run",
        *(f"{SUITES}/hostile.py::{name}" for name in HOSTILE),
        f"{SUITES}/interpreted.py::interpreted_wrong",
    ],
    "broken": [
        "run",
        "--timeout",
        "3",
        f"{SUITES}/hostile.py::hangs",
        *files(*BROKEN_FILES),
        f"{SUITES}/good.py::extremes",
    ],
    "fine": ["run", *files("good", "odd"), f"{SUITES}/interpreted.py::interpreted"],
    "audited": ["verify", "--impostors", f"{SUITES}/odd.py::impostor_*", *files("good", "interpreted")],
}
folders: dict[str, Path] = {}


def _shared_run(name: str) -> tuple[object, object]:
    """Return the fixtures of a finished command, and of the JSON document that it printed."""

    def run(tmp_path_factory: pytest.TempPathFactory) -> Done:
        folder = folders[name] = tmp_path_factory.mktemp(name)
        environment = settle(folder, memory_fraction=MEMORY_BYTES / _free_memory() if name == "hostile" else 0.8)
        verb, *arguments = RUNS[name]
        return call(folder, environment, verb, "--format", "json", "--device", "cpu", *arguments)

    def document(request: pytest.FixtureRequest) -> Any:
        done = request.getfixturevalue(f"{name}_run")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return (
        pytest.fixture(scope="session", name=f"{name}_run")(run),
        pytest.fixture(scope="session", name=name)(document),
    )


def _free_memory() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


hostile_run, hostile = _shared_run("hostile")
broken_run, broken = _shared_run("broken")
fine_run, fine = _shared_run("fine")
audited_run, audited = _shared_run("audited")


@pytest.fixture(scope="session")
def fine_store(fine: Any) -> Path:
    """Return the store of the run of suites that are fine."""
    return folders["fine"] / "results"


@pytest.fixture
def pairbench(tmp_path: Path) -> Pairbench:
    """Run a command in a folder of this test's own."""
    environment = settle(tmp_path)

    def run(*arguments: str) -> Done:
        return call(tmp_path, environment, *arguments)

    return run


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Pairbench:
    """Run a command that changes nothing in a folder that tests share, or in another one."""
    shared = tmp_path_factory.mktemp("quick")
    environment = settle(shared)

    def run(*arguments: str, folder: Path = shared) -> Done:
        return call(folder, environment, *arguments)

    return run


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in the process of the test, in an empty folder that is no checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Compared:
        said = call_main(tmp_path, *arguments)
        assert "Traceback" not in said.err, said.err
        return Compared(said.code, said.out, said.err)

    return run


_surveys: dict[tuple[tuple[str, Path], ...], scout.Survey] = {}
"""What suites declare and which devices there are, by suites."""


@pytest.fixture
def surveyed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command as `cli` does, without a worker of its own to load suites of which an earlier test asked the same."""
    real = scout.survey

    def survey(context: WorkerContext, suites: tuple[tuple[str, Path], ...]) -> scout.Survey:
        if suites not in _surveys:
            _surveys[suites] = real(context, suites)
        return _surveys[suites]

    monkeypatch.setattr(scout, "survey", survey)
    monkeypatch.setenv(VARIABLE, "fork")
    with forked_workers():
        yield cli
