"""Where suites and results are: names under which records know suites, and suites that were moved."""

import datetime as dt
from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.errors import SuiteError
from pairbench.workflow.setup import catalogue_folder, choose, shown, stamp, store_of


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


def test_runs_of_one_second_are_in_the_order_of_their_names() -> None:
    """What measures a run's suspects again may begin in the same second, and would pass for an earlier run."""
    moments = [dt.datetime(2026, 1, 2, 3, 4, 5, 1000 * millisecond, tzinfo=dt.UTC) for millisecond in range(0, 1000, 7)]
    names = [stamp(moment) for moment in moments]
    assert names == sorted(names) and all(name.startswith("20260102T030405-") for name in names)
    assert stamp(moments[0]) != stamp(moments[0])
