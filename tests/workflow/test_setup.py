import datetime as dt
from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.errors import SuiteError
from pairbench.workflow.setup import ask, catalogue_folder, choose, default_suites, shown, stamp, store_of


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


DECLARES = "from pairbench import Operator\n"


def test_without_settings_the_suites_here_are_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not pairbench's own, which take an hour."""
    (tmp_path / "below").mkdir()
    mine, below = tmp_path / "mine.py", tmp_path / "below" / "more.py"
    for file in (mine, below):
        file.write_text(DECLARES)
    monkeypatch.chdir(tmp_path)
    assert ask(Config(root=tmp_path), None).suites == (("mine.py", mine), ("below/more.py", below))
    assert [name for name, _ in ask(Config(root=tmp_path), ["silu"]).suites] == ["mine.py", "below/more.py"]
    monkeypatch.chdir(tmp_path / "below")
    assert ask(Config(root=tmp_path), None).suites == (("below/more.py", below),)
    listed = Config(root=tmp_path, suites=("mine.py",))
    assert ask(listed, None).suites == (("mine.py", mine),), "what the settings name is meant wherever one stands"


def test_the_catalogue_is_taken_where_somebody_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(DECLARES)
    monkeypatch.chdir(tmp_path)
    for config in (Config(root=tmp_path, catalogue=True), Config(root=tmp_path, catalogue=True, suites=("mine.py",))):
        names = {name for name, _ in ask(config, None).suites}
        assert "suites/conv/causal.py" in names and "mine.py" not in names


def test_where_there_is_no_suite_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("print()\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SuiteError, match=r"name a file or folder of suites, or .* by --catalogue"):
        default_suites(Config(root=tmp_path))


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
