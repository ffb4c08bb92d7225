import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.execute.parent.launch import Launchers, open_launchers
from pairbench.execute.parent.pool import WorkerContext
from pairbench.features.ab import LoadedSide, load_side, read_arguments
from pairbench.model.environment import Commit, Settings
from pairbench.workflow.git import Checkout
from tests.builders import git


def sides(select: list[str], cache: Path, launchers: Launchers, repository: Path, *roots: Path) -> list[LoadedSide]:
    """Return what some checkouts hold of a selection that is made in a repository."""
    config = Config(root=repository, suites=("suites",))
    arguments = read_arguments(config, "main", select, ())
    assert arguments.head is None and arguments.select == tuple(select)
    context = WorkerContext(
        settings=Settings(), cache=cache, interrupted=threading.Event(), memory_bytes=16 << 30, launchers=launchers
    )
    commit = Commit(sha="0" * 40, committed_at="", branch=None, dirty=False)
    return [
        load_side(config, context, arguments, Checkout(name="a", asked="main", commit=commit, root=root, stand_in=None))
        for root in roots
    ]


@pytest.mark.parametrize("select", [["new.py"], ["new.py", "conv"], ["new.py::conv"]])
def test_a_name_beside_a_file_that_one_side_lacks_is_nowhere_on_that_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: list[str]
) -> None:
    """Looked for in all other files, it would be compared with an operator that nobody named."""
    repository, before = tmp_path / "repository", tmp_path / "before"
    for folder in (repository, before):
        (folder / "suites").mkdir(parents=True)
        (folder / "suites" / "old.py").write_text("Operator")
    (repository / "new.py").write_text("Operator")
    git(repository, "init", "-q")
    monkeypatch.chdir(repository)
    (side,) = sides(select, tmp_path, Launchers(), repository, before)
    assert side.nothing is not None and "there is no new.py" in str(side.nothing)


PAIR = """
from pairbench import Operator, grid

op = Operator(
    "op", baseline=lambda x: x + x, variants={"v": lambda x: 2 * x}, inputs=lambda make, n: {"x": make.ones(n)}, cases=grid(n=[1])
)
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a checkout in which a suite was moved, and one of before."""
    folder = tmp_path_factory.mktemp("moved")
    repository, before = folder / "repository", folder / "before"
    (before / "suites").mkdir(parents=True)
    (before / "suites" / "pair.py").write_text(PAIR)
    (repository / "suites" / "new").mkdir(parents=True)
    (repository / "suites" / "new" / "pair.py").write_text(PAIR)
    (repository / "suites" / "moved.toml").write_text('"suites/pair.py" = "suites/new/pair.py"\n')
    git(repository, "init", "-q")
    return repository, before


@pytest.fixture(scope="module")
def launchers() -> Iterator[Launchers]:
    with open_launchers({"PAIRBENCH_WORKERS": "fork"}) as made:
        yield made


@pytest.mark.parametrize("select", [[], ["suites/new/pair.py"], ["suites/new/pair.py::op"]])
def test_a_suite_that_was_moved_is_one_on_both_sides(
    moved: tuple[Path, Path], launchers: Launchers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: list[str]
) -> None:
    monkeypatch.chdir(moved[0])
    for side in sides(select, tmp_path, launchers, moved[0], *moved):
        assert side.nothing is None
        assert [operator.suite for operator in side.chosen.survey.operators] == ["suites/new/pair.py"]
        assert {selection.suite for selection in side.chosen.selections} <= {"suites/new/pair.py"}
        assert bool(side.chosen.selections) == bool(select)
