"""The tasks of this repository; `nox -l` lists them.

CI, the README and contributors run these same sessions. PAIRBENCH_CONSTRAINTS names another constraints file; empty, it
takes whatever versions fit. On a machine that brings its own torch: `nox --no-venv --no-install -s gpu`.
"""

import os
import pathlib
import shutil

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
# A second `nox -s bench` takes seconds: pip finds all but this package already installed, and still follows every change of
# pyproject.toml and constraints.txt.
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests", "lint", "types"]

CONSTRAINTS = os.environ.get("PAIRBENCH_CONSTRAINTS", "constraints.txt")

# In three processes, in the groups and in the order that tests/conftest.py gives: on two cores, for tests also wait, for clocks and for processes.
SIDE_BY_SIDE = ("-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder")

# The tests that need an object store; `tests` and `slow` run the others in these files.
OBJECT_STORE_TESTS = (
    "tests/store/test_uploads.py",
    "tests/store/test_gcs.py",
    "tests/store/test_requests.py",
    "tests/faults/test_crowd.py::test_in_an_object_store",
    "tests/faults/test_failing.py::test_an_object_store_that_refuses_from_one_moment_on",
    "tests/faults/test_failing.py::test_credentials_that_are_wrong_or_expire",
    "tests/faults/test_failing.py::test_an_object_store_that_is_away_for_some_seconds_has_everything_at_the_end",
    "tests/faults/test_failing.py::test_a_run_that_is_killed_while_its_store_is_away",
)
NO_OBJECT_STORE = {"PAIRBENCH_S3_SERVER": "", "PAIRBENCH_GCS_SERVER": ""}
"""Whatever is installed here, these tests are left to `s3`."""

REFERENCE_RESULTS = ("--store", "results/reference", "--format", "markdown", "--pages", "build/results")
"""Arguments of `pairbench results` for a summary, and a page for each operator, of the reference runs."""

NO_GPU = (
    "no CUDA device is visible to torch, so the GPU tests cannot say anything; `pairbench doctor` tells what is missing"
)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure every operator pair on this machine, judge it, and write the site: the main job. Arguments go to `pairbench run`.

    It ends with the answer, and with the first page of the site. On a GPU it has 20 minutes, unless `-- --budget 1h` or `-- --budget none` says otherwise.
    """
    _install(session, ".")
    failed = None
    try:
        _pairbench(session, "run", "--confirm", *_budget(session.posargs), *session.posargs)
    except CommandFailed as error:
        failed = error
    # A regression fails the session, and is what one wants to look at.
    _pairbench(session, "dashboard", *_option(session.posargs, "--store"))
    if failed:
        raise failed


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that need no GPU. Arguments go to pytest."""
    _install(session, "-e", ".[test]")
    if session.posargs:
        session.run("python", "-m", "pytest", *session.posargs)
        return
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, "-m", "not timing and not slow", env=NO_OBJECT_STORE)
    session.run("python", "-m", "pytest", "tests/timing")


@nox.session
def slow(session: nox.Session) -> None:
    """Run the tests that take minutes: every pipeline of the recipes, runs that are killed, the whole catalogue verified.

    With PAIRBENCH_SLOW=part, as in CI, that is an eighth of the catalogue and of the rest, a quarter of the pipelines, others with each
    commit, and those that changed lately, or that test what did.
    """
    _install(session, "-e", ".[test]")
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, "-m", "slow", *session.posargs, env=NO_OBJECT_STORE)


@nox.session
def detectors(session: nox.Session) -> None:
    """Measure the changepoint detector beside other tools' on the same series. `-- --write` puts the tables into their page."""
    _install(session, "-e", ".[test,detectors]")
    session.install("--no-deps", "apache-otava==0.8.0")
    session.run("python", "-m", "pytest", "tests/lab/detectors")
    session.run("python", "-m", "tests.lab.detectors.bench", *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Measure how often the gate is wrong, beside other tools' rules, on comparisons made up. `-- --write` updates its page."""
    _install(session, "-e", ".[test]")
    session.run("python", "-m", "tests.lab.gate.bench", *session.posargs)


@nox.session
def bisect(session: nox.Session) -> None:
    """Measure how surely the commit is found in histories made up, beside plain bisection. `-- --write` updates its page."""
    _install(session, "-e", ".[test]")
    session.run("python", "-m", "tests.lab.bisect.bench", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Kill, interrupt, damage, fill and fuzz what there is for half an hour, and count. `-- kills --scale 0.1` makes a part of one attack."""
    _install(session, "-e", ".[test,s3]")
    session.run("python", "-m", "tests.lab.faults.bench", *session.posargs, env=_object_store(session))


@nox.session
def s3(session: nox.Session) -> None:
    """Run the tests that need an object store: on stand-ins for S3 and Google's, in an environment of their own, and on Swift where that is installed.

    Arguments go to pytest. `PAIRBENCH_S3_SERVER=swift nox -s s3` takes Swift alone, and fails where it is not installed.
    """
    _install(session, "-e", ".[test,s3]")
    tests = ("python", "-m", "pytest", *(session.posargs or [*SIDE_BY_SIDE, *OBJECT_STORE_TESTS]))
    if "PAIRBENCH_S3_SERVER" in os.environ:
        session.run(*tests)
        return
    session.run(*tests, env=_object_store(session))
    missing = session.run("python", "-c", "from tests.faults import swift; print(swift.missing())", silent=True)
    if isinstance(missing, str) and missing.strip():
        session.warn(f"no tests on Swift, a real object store: {missing.strip()}")
    else:
        session.run(*tests, env={"PAIRBENCH_S3_SERVER": "swift"})


@nox.session(venv_backend="none")
def moto(session: nox.Session) -> None:
    """Install the object stores that `s3` and `faults` start, which both do by themselves: CI does so beside other tests."""
    _object_store(session)


@nox.session
def fleet(session: nox.Session) -> None:
    """Run the tests of a fleet, which need its extra, in an environment of their own. Arguments go to pytest; `python -m tests.fleet.bench` measures.

    With PAIRBENCH_SLOW=part, as in CI, those that kill workers and wait for many are run by every eighth commit, and where fleets changed lately.
    """
    _install(session, "-e", ".[test,fleet]")
    session.run("python", "-m", "pytest", *(session.posargs or [*SIDE_BY_SIDE, "tests/fleet"]))


@nox.session
def results(session: nox.Session) -> None:
    """Write suites/RESULTS.md and the tables of docs/measurements/peers.md from the reference runs, and a page for each operator into build/results."""
    _install(session, ".")
    _pairbench(session, "results", *REFERENCE_RESULTS, "--output", "suites/RESULTS.md")
    peers = ("suites/peers", "--tier", "real", "--format", "json", "--output", "build/peers.json")
    _pairbench(session, "results", *REFERENCE_RESULTS[:2], *peers)
    session.run("python", "-m", "tests.lab.peers.bench", "build/peers.json")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into build/docs, without a network, and check every link. Arguments go to `mkdocs build`."""
    _install(session, "-e", ".[docs]")
    _pairbench(session, "results", *REFERENCE_RESULTS, "--output", os.devnull)
    session.run("python", "-m", "mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "true"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and spelling. `nox -s lint -- --fix` repairs what can be repaired."""
    _install(session, *_extra("lint"))
    fix = session.posargs == ["--fix"]
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")
    session.run("codespell", *(["--write-changes"] if fix else []))


@nox.session
def types(session: nox.Session) -> None:
    """Check the types with mypy --strict. Needs no torch: see the overrides in pyproject.toml."""
    _install(session, *_extra("types"))
    session.run("mypy", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run the tests that need an NVIDIA GPU, then verify every pair on it. Fails where there is none."""
    _install(session, "-e", ".[test]")
    session.run("python", "-c", f"import sys, torch; torch.cuda.is_available() or sys.exit({NO_GPU!r})")
    session.run("python", "-m", "pytest", "-m", "gpu", *session.posargs)
    _pairbench(session, "verify", "--device", "cuda:0", "--impostors")


@nox.session
def site(session: nox.Session) -> None:
    """Run the tests of the site in an installed Chromium. Fails where there is none. Arguments go to pytest.

    With PAIRBENCH_SLOW=part, as in CI, an eighth of those that take longest, others with each commit, and all where the site changed lately.
    """
    _install(session, "-e", ".[site]")
    pytest = ("python", "-m", "pytest", "-m", "browser")
    if session.posargs:
        session.run(*pytest, *session.posargs)
        return
    # A live site is built with what others leave of the cores, which may be nothing: so not beside other tests.
    alone = "tests/site/test_live.py"
    session.run(*pytest, *SIDE_BY_SIDE, "tests/site", f"--ignore={alone}")
    session.run(*pytest, alone)


@nox.session
def scale(session: nox.Session) -> None:
    """Make stores of up to 10,000 runs of 2,000 series and time `compare`, `trend`, `store compact` and `dashboard` on them."""
    _install(session, "-e", ".[site]")
    session.run("python", "-m", "tests.lab.scale.bench")
    session.run("python", "-m", "tests.lab.scale.bench", "--runs", "10000", "--compact")
    session.run("python", "-m", "tests.lab.scale.site")


@nox.session
def speed(session: nox.Session) -> None:
    """Time the commands that people wait for, five times each, beside what they may take. `-- verify --times 1` takes one of them once."""
    _install(session, ".[pytest]")
    session.run("python", "-m", "tests.lab.speed.bench", *session.posargs)


def _install(session: nox.Session, *what: str) -> None:
    session.install(*(["-c", CONSTRAINTS] if CONSTRAINTS else []), *what)


def _object_store(session: nox.Session) -> dict[str, str]:
    """Install stand-ins for S3 and Google's store, and return the variables that name their commands. They need other versions than pairbench's tests."""
    place = pathlib.Path(session.cache_dir) / "object-store"
    session.run("python", "-m", "venv", str(place), silent=True, external=True)
    session.run(str(place / "bin" / "pip"), "install", "-q", "moto[server]>=5.1", "gcp-storage-emulator", external=True)
    commands = {"PAIRBENCH_S3_SERVER": "moto_server", "PAIRBENCH_GCS_SERVER": "gcp-storage-emulator"}
    return {variable: str(place / "bin" / command) for variable, command in commands.items()}


def _extra(name: str) -> list[str]:
    """Return what an extra lists, without the package and so without torch."""
    return list(nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"][name])


def _option(arguments: list[str], name: str) -> list[str]:
    """Return an option and its value as they stand among some arguments; nothing where it is not there."""
    for place, argument in enumerate(arguments):
        if argument == name:
            return arguments[place : place + 2]
        if argument.startswith(f"{name}="):
            return [argument]
    return []


def _budget(arguments: list[str]) -> list[str]:
    """Return the time that a run on a GPU has where nobody says; none on a CPU, which takes the small cases alone.

    So long one waits for a result before one does something else. The whole catalogue, whose decoders of seconds are most of it,
    takes an H200 longer: what was measured longest ago comes first, and so all of it in turns.
    """
    named = any(argument.partition("=")[0] == "--budget" for argument in arguments)
    return [] if named or shutil.which("nvidia-smi") is None else ["--budget", "20m"]


def _pairbench(session: nox.Session, *arguments: str) -> None:
    session.run("python", "-m", "pairbench", *arguments)
