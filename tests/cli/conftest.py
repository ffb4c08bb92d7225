"""Runs of the real command line, in processes of their own; the long ones are shared.

Commands and their workers are forked (see tests/commands.py), but for one of the shared runs, `fine`, which is what
a user starts, interpreter by interpreter. Every command has a folder of its own for temporary files, and so device locks of its own: it neither waits for a run
on this machine nor for another test's.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.compared import Cli, Compared
from tests.commands import Done, call, environment_of
from tests.in_process import call_main

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "tests" / "suites"

Rows = list[dict[str, Any]]

SETTINGS = {"case_seconds": 0.05, "min_samples": 20, "rounds": 1}
BROKEN_ENTRIES = (
    *("raises", "exits", "segfaults", "nan", "wrong_shape", "wrong_dtype", "cached", "cached_later", "unwritten"),
    *("mutates", "stateful", "flags", "prepare_raises", "inputs_raise", "loose_tolerance", "strays", "allocates"),
)
FINE = ("good", "syncs", "prints", "impostor_passes", "impostor_crashes")
BROKEN_FILES = (
    *("import_error", "syntax_error", "exits_on_import", "dies_on_import", "duplicate_case", "duplicate_operator"),
    *("unknown_axis", "no_operator"),
)
MEMORY_BYTES = 3 * 2**30
"""What a worker may take in the run with a suite that allocates without end."""


def files(*names: str) -> list[str]:
    return [str(SUITES / f"{name}.py") for name in names]


def settle(folder: Path, **settings: object) -> dict[str, str]:
    """Make a folder to run in, with its settings, and return the environment for a command there."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**SETTINGS, **settings}.items()]
    (folder / "pyproject.toml").write_text("\n".join(["[tool.pairbench]", *lines]) + "\n")
    (folder / "tmp").mkdir()
    return environment_of(folder / "tmp", PAIRBENCH_WORKERS="fork")


OWN_OPTIONS = [
    "--mode",
    "compile",
    "--mode",
    "eager",
    "-i",
    "twice",
    "--rounds",
    "2",
    "--store",
    "here",
    "--format",
    "markdown",
]
# Fixture -> arguments of the run behind it.
RUNS: dict[str, list[str]] = {
    "hostile": ["run", *files(*BROKEN_ENTRIES), f"{SUITES}/interpreted.py::interpreted_wrong"],
    "broken": ["run", "--timeout", "3", *files("hangs", *BROKEN_FILES), f"{SUITES}/good.py::extremes"],
    "fine": ["run", *files(*FINE), f"{SUITES}/interpreted.py::interpreted"],
    "own": ["run", "my_ops.py", *OWN_OPTIONS],
    "audited": ["verify", "--impostors", *files("impostor_passes", "impostor_crashes", "good", "interpreted")],
}
FRESH = "fine"


@pytest.fixture(scope="session")
def tried() -> set[str]:
    """Return the names of the suites that the shared runs go through."""
    arguments = (argument for arguments in RUNS.values() for argument in arguments if ".py" in argument)
    return {Path(argument.partition("::")[0]).stem for argument in arguments}


def free_memory() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _fixtures(name: str) -> tuple[object, object]:
    def run(tmp_path_factory: pytest.TempPathFactory) -> Done:
        folder = tmp_path_factory.mktemp(name)
        environment = settle(folder, memory_fraction=MEMORY_BYTES / free_memory() if name == "hostile" else 0.8)
        if name == FRESH:
            del environment["PAIRBENCH_WORKERS"]
        if name == "own":
            shutil.copy(SUITES / "slow.py", folder / "my_ops.py")
        verb, *arguments = RUNS[name]
        folders[name] = folder
        return call(folder, environment, verb, "--format", "json", "--device", "cpu", *arguments)

    def document(request: pytest.FixtureRequest) -> Any:
        done = request.getfixturevalue(f"{name}_run")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return (
        pytest.fixture(scope="session", name=f"{name}_run")(run),
        pytest.fixture(scope="session", name=name)(document),
    )


folders: dict[str, Path] = {}
# `hostile_run` is the finished process, `hostile` the JSON document that it printed.
hostile_run, hostile = _fixtures("hostile")
broken_run, broken = _fixtures("broken")
fine_run, fine = _fixtures("fine")
own_run, _ = _fixtures("own")
audited_run, audited = _fixtures("audited")


@pytest.fixture(scope="session")
def own_folder(own_run: Done) -> Path:
    """Return the folder of a user with one file of operators, after `own` ran there with its store in `here`."""
    return folders["own"]


@pytest.fixture(scope="session")
def fine_folder(fine: Any) -> Path:
    """Return the folder in which `fine` ran, with its store `results` in it."""
    return folders["fine"]


@pytest.fixture
def pairbench(tmp_path: Path) -> Callable[..., Done]:
    """Run a command in a folder of this test's own."""
    environment = settle(tmp_path)

    def run(*arguments: str, folder: Path | None = None) -> Done:
        return call(folder or tmp_path, environment, *arguments)

    return run


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Done]:
    """Run a command that changes nothing in a folder that tests share."""
    folder = tmp_path_factory.mktemp("quick")
    environment = settle(folder)

    def run(*arguments: str, folder: Path = folder) -> Done:
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
