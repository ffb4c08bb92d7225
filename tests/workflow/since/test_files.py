"""Which suites a commit's files differ for, as git and import statements say."""

from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.features.since import FilesSince
from tests.workflow.git.test_worktrees import git

SUITE = "import kernels\nfrom pairbench import Operator\n"
Suites = tuple[tuple[str, Path], ...]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = (tmp_path / "repo").resolve()
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        (folder / name / "ops.py").write_text(SUITE)
        (folder / name / "kernels.py").write_text("")
    (folder / ".gitignore").write_text("ignored.py\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def suites(folder: Path) -> Suites:
    return tuple(
        (path.relative_to(folder).as_posix(), path) for path in sorted(folder.glob("*/*.py")) if "ops" in path.name
    )


def touched(folder: Path, olds: dict[Path, Path] | None = None) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """Return the suites that are touched: whether each is new, and what no hash covers."""
    files = FilesSince.of(suites(folder), "HEAD", folder)
    return {one.suite: (one.was is None, one.unhashed) for one in files.touched(suites(folder), olds or {})}


def test_nothing_has_changed(repository: Path) -> None:
    (repository / "README.md").write_text("new")
    (repository / "a" / "unused.py").write_text("new")
    assert touched(repository) == {}


def test_what_is_changed_new_staged_ignored_or_compiled(repository: Path) -> None:
    (repository / "a" / "kernels.py").write_text("import ignored\n")
    (repository / "a" / "ignored.py").write_text("")
    (repository / "b" / "more ops.py").write_text(SUITE)
    (repository / "c" / "kernel.cu").write_text("")
    git(repository, "add", "a/kernels.py")
    assert touched(repository) == {
        "a/ops.py": (False, ()),
        "b/more ops.py": (True, ()),
        "c/ops.py": (False, ("c/kernel.cu",)),
    }


def test_a_suite_that_has_moved_and_one_that_is_gone(repository: Path) -> None:
    new, old = repository / "b" / "newer_ops.py", repository / "b" / "ops.py"
    old.rename(new)
    (repository / "c" / "ops.py").unlink()
    files = FilesSince.of(suites(repository), "HEAD", repository)
    (one,) = files.touched(suites(repository), {new: old})
    assert (one.suite, one.was) == ("b/newer_ops.py", old)
    assert list(files.gone((repository,), {new: old})) == [repository / "c" / "ops.py"]
    assert list(files.gone((repository / "a",), {})) == []


@pytest.mark.parametrize("name", ["nothing", "-x", "HEAD~1"])
def test_there_is_no_such_commit(repository: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no commit, branch or tag"):
        FilesSince.of(suites(repository), name, repository)


def test_suites_outside_of_a_checkout(repository: Path, tmp_path: Path) -> None:
    alone = tmp_path / "ops.py"
    alone.write_text(SUITE)
    with pytest.raises(UsageError, match=r"not in a git checkout.*--changed-since compares"):
        FilesSince.of((("ops.py", alone),), "HEAD", tmp_path)
    with pytest.raises(UsageError, match="outside of the repository"):
        FilesSince.of((*suites(repository), ("ops.py", alone)), "HEAD", repository)
