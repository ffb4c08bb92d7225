"""What of the selection is on one side, where the other commit has other files."""

import subprocess
import threading
from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.execute.parent.pool import WorkerContext
from pairbench.model.environment import Commit
from pairbench.model.settings import Settings
from pairbench.workflow.ab.arguments import load_side, read_arguments
from pairbench.workflow.git.worktrees import Checkout


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
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    monkeypatch.chdir(repository)
    config = Config(root=repository, suites=("suites",))
    arguments = read_arguments(config, "main", select, ())
    assert arguments.head is None and arguments.select == tuple(select)
    context = WorkerContext(settings=Settings(), cache=tmp_path, interrupted=threading.Event(), memory_bytes=1 << 30)
    commit = Commit(sha="0" * 40, committed_at="", branch=None, dirty=False)
    checkout = Checkout(name="base", asked="main", commit=commit, root=before, stand_in=None)
    side = load_side(config, context, arguments, checkout)
    assert side.nothing is not None and "there is no new.py" in str(side.nothing)
