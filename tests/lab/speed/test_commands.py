from pathlib import Path

import pytest

from tests.lab.speed import bench
from tests.lab.speed.bench import COMMANDS, Command, first_pair, seconds


def test_the_first_pair_is_readme_s() -> None:
    assert 'Operator(\n    "silu"' in first_pair()


def test_a_syntax_error_is_timed_and_what_ends_otherwise_is_said(tmp_path: Path) -> None:
    assert 0 < seconds(COMMANDS["syntax error"], "cpu", tmp_path) < 60
    with pytest.raises(RuntimeError, match=r"ended with 2, expected 0:\n(.|\n)*does not exist"):
        seconds(Command(arguments=("pairbench", "run", "nothing.py")), "cpu", tmp_path)


@pytest.mark.slow
def test_the_time_after_an_edit_is_that_to_the_line_of_the_variant(tmp_path: Path) -> None:
    assert 0 < seconds(COMMANDS["try --watch, after an edit"], "cpu", tmp_path) < 60


def test_only_commands_that_exist_are_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "nothing"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "unknown: nothing; expected some of: README's first pair" in capsys.readouterr().err
