"""Suites that are edited while a run goes on: what is measured is what was described, or nothing."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import settle
from tests.commands import call

SUITE = '''
import json
from pathlib import Path

from pairbench import Operator, grid


def plain(x):
    return x + x


def fast(x):
    return x * 2


def edit():
    """What somebody does in an editor, once the suite was described and is being verified."""
    file = Path(__file__)
    file.write_text(file.read_text().replace(*json.loads(file.with_name("edit.json").read_text())))


def inputs(make, rows):
    edit()
    return {"x": make.normal(rows)}


twice = Operator("twice", baseline=plain, variants={"fast": fast}, inputs=inputs, cases=grid(rows=[4]))
'''


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (("x * 2", "2 * x"), "suite ops.py: 'twice' was changed since the command began; run it again"),
        (("return x + x", "return (x"), "suite ops.py, line 9: SyntaxError: '(' was never closed"),
        (("somebody does", "nobody does"), None),  # a docstring is no code
    ],
)
def test_code_that_was_not_described_is_not_measured(tmp_path: Path, edit: tuple[str, str], reason: str | None) -> None:
    environment = settle(tmp_path)
    (tmp_path / "ops.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "edit.json").write_text(json.dumps(edit), encoding="utf-8")
    done = call(tmp_path, environment, "run", "ops.py", "--device", "cpu", "--format", "json")
    for row in json.loads(done.stdout)["records"]:
        assert row["status"] == ("failed" if reason else "measured"), row["reason"]
        assert reason is None or row["reason"].startswith(reason)
        assert (row["call_p50_ns"] is None) is (reason is not None)
    assert "Traceback" not in done.stderr
