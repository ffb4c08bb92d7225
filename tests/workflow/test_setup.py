"""Where suites and results are: names under which records know suites, and suites that were moved."""

from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.errors import SuiteError
from pairbench.workflow.setup import catalogue_folder, choose, shown, store_of


def test_a_suite_of_the_catalogue_has_one_name_wherever_it_lies(tmp_path: Path) -> None:
    config = Config(root=tmp_path)
    assert shown(catalogue_folder("suites") / "conv" / "causal.py", config) == "suites/conv/causal.py"
    assert shown(tmp_path / "mine" / "ops.py", config) == "mine/ops.py"


def test_a_file_of_the_users_is_no_suite_of_the_catalogue_that_was_moved(tmp_path: Path) -> None:
    """Its history would go on under the name of a suite that it never was."""
    config = Config(root=tmp_path, store=str(tmp_path / "results"))
    assert store_of(config).moved["suites/conv.py"] == "suites/conv/causal.py"
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "conv.py").write_text("")
    moved = store_of(config).moved
    assert "suites/conv.py" not in moved and moved["suites/rmsnorm.py"] == "suites/norm/rms.py"
    own = Config(root=tmp_path, suites=("suites",), store=str(tmp_path / "results"))
    assert store_of(own).moved == {}


def test_the_old_name_of_a_suite_says_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SuiteError, match=r"suite 'suites/conv\.py' is 'suites/conv/causal\.py' now; name that"):
        choose(Config(root=tmp_path), None, ["suites/conv.py"])  # type: ignore[arg-type]
