"""What holds for every test: where the suites are, and who may touch a GPU.

GPU tests run in a process of their own, `pytest -m gpu`. In every other run no GPU is visible, to pytest or to the
workers it starts, so an unmarked test gives the same answer on every machine and disturbs nobody's measurement.
"""

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import turns

ROOT = Path(__file__).parents[1]

# What tests and all that they start find in their environment, unless whoever starts them says otherwise.
QUICK = {
    # Workers of pytest share few cores: where each process has a thread for every core, they spin as they wait for one
    # another, and verifying a case takes ten times as long.
    "OMP_NUM_THREADS": "1",
    # Compiles for this processor's vectors without asking the C++ compiler about each kind, which takes ten seconds a run.
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    # The compiler's own processes are for kernels in Triton, and each worker that compiles would start them.
    "TORCH_WARM_POOL": "0",
}

# Files whose tests take more than 20 s together, the longest first: one that begins last has a core wait for it.
LONGEST = (
    "tests/integrations/test_recipe_jobs.py",
    "tests/execute/test_sharded.py",
    "tests/catalogue/test_verify.py",
    "tests/docs/test_examples.py",
    "tests/cli/test_ab.py",
    "tests/cli/test_run.py",
    "tests/store/test_compact.py",
    "tests/workflow/site/test_cache.py",
    "tests/interface/test_runs.py",
    "tests/integrations/test_plugin_measures.py",
    "tests/integrations/test_plugin_gates.py",
    "tests/cli/test_hostile.py",
    "tests/cli/test_interrupted.py",
    "tests/integrations/test_plugin_collects.py",
    "tests/cli/test_declared.py",
    "tests/cli/test_try.py",
    "tests/report/test_figures.py",
    "tests/cli/test_exploits.py",
    "tests/execute/parent/test_pool.py",
    "tests/lab/scale/test_scale.py",
    "tests/site/test_long.py",
    "tests/site/test_published.py",
    "tests/site/test_hostile.py",
)
# Files that share a run with another file.
WITH = {"tests/cli/test_verbs.py": "tests/cli/test_run.py"}
# Files whose tests share nothing, or only what all processes share, or what a group that a test names itself has in common.
ALONE = (
    "tests/catalogue/test_verify.py",
    *(f"tests/cli/test_{name}.py" for name in ("calibrate", "edited", "interrupted", "left_out")),
    *(f"tests/cli/test_{name}.py" for name in ("odd_names", "problems", "store_fails", "try")),
    "tests/integrations/test_plugin_collects.py",
    "tests/fleet/test_fleet.py",
    *(f"tests/site/test_{name}.py" for name in ("accessible", "charts", "hostile", "keyboard", "pages", "widths")),
)

# Files whose slow tests every commit runs, or whose parts have turns of their own.
EVERY_TIME = ("tests/cli/test_exploits.py", "tests/catalogue/test_verify.py", "tests/integrations/test_recipe_jobs.py")

TURNS = 8
"""The number of commits after which CI has run the slow tests of each file."""
# What the slow tests below a folder are about, beside the tests themselves: where that changed lately, none waits for its turn.
ABOUT = {
    "tests/site/": (
        "dashboards",
        "harness/pairbench/report",
        "harness/pairbench/site",
    ),
    "tests/workflow/site/": ("dashboards", "harness/pairbench/report", "harness/pairbench/site"),
    "tests/corpora/": ("harness/pairbench/execute/worker/corpora.py", "harness/pairbench/suite/definitions.py"),
    "tests/docs/": ("docs/problems.md", "harness/pairbench/features/judge.py"),
    "tests/fleet/": ("harness/pairbench/features/fleet",),
    "tests/faults/": ("harness/pairbench/store",),
    "tests/lab/gate/": ("harness/pairbench/analyze/compare",),
}

# A GPU machine with its own Python may lack hypothesis; no GPU test uses it.
with contextlib.suppress(ImportError):
    import hypothesis

    # How long an example takes is a property of the machine.
    hypothesis.settings.register_profile(
        "pairbench", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
    )
    hypothesis.settings.load_profile("pairbench")


def pytest_configure(config: pytest.Config) -> None:
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
    ):  # what runs the tests in the background may have them ignored, by all that they start
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        # What commands keep for their user between runs is not the tests' to read or to write.
        cache = tempfile.mkdtemp(prefix="pairbench-tests-")
        os.environ["XDG_CACHE_HOME"] = cache
        config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))
    # With -n, the controller has decided; its workers inherit the environment.
    if not _wants_gpu(config):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        for name, value in QUICK.items():
            os.environ.setdefault(name, value)
        # Where no bytecode is kept, each of hundreds of processes compiles the package anew, and pytest every test.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        return
    import torch

    if not torch.cuda.is_available():
        pytest.exit("the GPU tests were asked for, but torch sees no CUDA device", returncode=4)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests alone are asked for, pass over files that have none: each process would import them all, for ten seconds."""
    test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if test and config.option.markexpr == "slow" and not _names_slow(collection_path) else None


def _names_slow(file: Path) -> bool:
    return "mark.slow" in file.read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import tests, and torch, without a look for garbage at the million objects that stay: in each process it takes four seconds of ten."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for file in {item.path for item in items if item.get_closest_marker("slow")}:
        if not _names_slow(file):
            raise pytest.UsageError(
                f"{file}: has slow tests, expected `mark.slow` in it; without, `-m slow` passes over it"
            )
    items[:], later = on_turn(items)
    config.hook.pytest_deselected(items=later)
    # Before xdist's own, which reads the groups.
    if config.pluginmanager.hasplugin("xdist"):
        _group(items)
    if _wants_gpu(config):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="GPU tests run by themselves: nox -s gpu"))


def on_turn(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return what is run, and what waits for its turn: in CI every eighth commit runs the slow tests of a file, unless that or what it is about changed lately."""
    number = turns.turn(TURNS)
    if number is None:
        return items, []
    slow = {item: item.path.relative_to(ROOT).as_posix() for item in items if item.get_closest_marker("slow")}
    files = sorted({*slow.values()} - {*EVERY_TIME})
    waiting = {*files} - {*files[number::TURNS]} - turns.changed_lately("tests")
    changed = tuple(folder for folder, places in ABOUT.items() if turns.changed_lately(*places))
    waiting -= {file for file in waiting if file.startswith(changed)}
    here = [item for item in items if slow.get(item) not in waiting]
    return here, [item for item in items if slow.get(item) in waiting]


def _group(items: list[pytest.Item]) -> None:
    """For `--dist loadgroup --no-loadscope-reorder`: keep together what shares something, and begin with what takes longest."""
    names = {item: item.path.relative_to(ROOT).as_posix() for item in items if item.path.is_relative_to(ROOT)}
    for item, name in names.items():
        if name not in ALONE and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(WITH.get(name, name)))
    items.sort(key=lambda item: LONGEST.index(names[item]) if names.get(item) in LONGEST else len(LONGEST))


def _wants_gpu(config: pytest.Config) -> bool:
    words: list[str] = config.option.markexpr.replace("(", " ").replace(")", " ").split()
    return any(word == "gpu" and words[place - 1 : place] != ["not"] for place, word in enumerate(words))


@pytest.fixture(autouse=True)
def own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from what waits in the user's own folders, and from the locks of runs on this machine."""
    folder = str(tmp_path_factory.getbasetemp() / "places")
    monkeypatch.setenv("XDG_STATE_HOME", folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)


@pytest.fixture
def suites() -> Path:
    """Return the folder of the tiny suites: good, slow, wrong and crashing ones, as data."""
    return ROOT / "tests" / "suites"
