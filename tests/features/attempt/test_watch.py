import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from pairbench.features.attempt.attempts import SuiteFiles

SUITE = "import helper\nfrom mypackage.deep import kernel\nfrom pairbench import Operator\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with a suite that imports a helper beside it and a module of the project's package."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mypackage" / "deep").mkdir(parents=True)
    suites = tmp_path / "suites"
    suites.mkdir()
    for name, text in {
        "suites/ops.py": SUITE,
        "suites/helper.py": "from . import further\n",
        "suites/further.py": "",
        "suites/other.py": "from pairbench import Operator\n",
        "suites/kernel.cu": "",
        "suites/notes.txt": "",
        "mypackage/__init__.py": "",
        "mypackage/deep/__init__.py": "",
        "mypackage/deep/kernel.py": "",
        "mypackage/unused.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def files(project: Path) -> SuiteFiles:
    suite = project / "suites" / "ops.py"
    return SuiteFiles(lambda: (suite,))


def names(changed: tuple[Path, ...]) -> list[str]:
    return [file.name for file in changed]


@pytest.mark.parametrize(
    "name", ["suites/ops.py", "suites/helper.py", "suites/further.py", "mypackage/deep/kernel.py", "suites/kernel.cu"]
)
def test_what_a_suite_is_made_of_counts(project: Path, files: SuiteFiles, name: str) -> None:
    assert files.changed() == ()
    file = project / name
    file.write_text(f"{file.read_text()}\n")
    assert files.changed() == (file.resolve(),)
    assert files.changed() == (), "once"


@pytest.mark.parametrize("name", ["suites/other.py", "suites/notes.txt", "mypackage/unused.py", "suites/new.py"])
def test_other_files_do_not(project: Path, files: SuiteFiles, name: str) -> None:
    (project / name).write_text("changed = True\n")
    assert files.changed() == ()


def test_what_is_imported_from_now_on_counts_from_now_on_or_from_when_it_comes(
    project: Path, files: SuiteFiles
) -> None:
    (project / "suites" / "ops.py").write_text(f"import other, missing\n{SUITE}")
    assert names(files.changed()) == ["ops.py", "other.py"]
    for name in ("other.py", "missing.py"):
        (project / "suites" / name).write_text("changed = True\n")
        assert names(files.changed()) == [name]


def test_while_a_suite_is_no_python_its_helpers_still_count(project: Path, files: SuiteFiles) -> None:
    (project / "suites" / "ops.py").write_text(f"{SUITE}silu = (\n")
    assert names(files.changed()) == ["ops.py"]
    assert files.changed() == (), "that its imports cannot be read is no change of theirs"
    (project / "suites" / "helper.py").write_text("")
    assert names(files.changed()) == ["helper.py"]


def test_a_file_that_an_editor_swaps_is_one_change(project: Path, files: SuiteFiles) -> None:
    suite = project / "suites" / "ops.py"
    swapped = project / "suites" / ".ops.py.swp"
    swapped.write_text(f"{SUITE}\n\n")
    swapped.replace(suite)
    assert names(files.changed()) == ["ops.py"]
    assert files.changed() == ()


def test_a_suite_that_is_gone_for_a_moment_is_waited_for(
    project: Path, files: SuiteFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = project / "suites" / "ops.py"
    suite.unlink()
    look: Callable[[], object] = files._look
    looks = itertools.count(1)

    def look_and_bring_back() -> object:
        if next(looks) == 4:
            suite.write_text(SUITE)
        return look()

    monkeypatch.setattr(files, "_look", look_and_bring_back)
    assert names(files.changed()) == ["ops.py"] and suite.exists()
