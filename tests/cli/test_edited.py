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
    for old, new in json.loads(file.with_name("edits.json").read_text()):
        file.write_text(file.read_text().replace(old, new))


def inputs(make, rows):
    edit()
    return {"x": make.normal(rows)}


twice = Operator("twice", baseline=plain, variants={"fast": fast}, inputs=inputs, cases=grid(rows=[4]))
other = Operator("other", baseline=plain, variants={"sum": lambda x: x + x}, inputs=inputs, cases=grid(rows=[4]))
'''


@pytest.mark.parametrize(
    ("edits", "reason", "measured"),
    [
        # A docstring is no code.
        (
            [("x * 2", "2 * x"), ("somebody does", "nobody does")],
            "suite ops.py: 'twice' was changed since the command began; run it again",
            {"other"},
        ),
        ([("return x + x", "return (x")], "suite ops.py, line 9: SyntaxError: '(' was never closed", set()),
    ],
)
def test_code_that_was_not_described_is_not_measured(
    tmp_path: Path, edits: list[tuple[str, str]], reason: str, measured: set[str]
) -> None:
    environment = settle(tmp_path)
    (tmp_path / "ops.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "edits.json").write_text(json.dumps(edits), encoding="utf-8")
    done = call(tmp_path, environment, "run", "ops.py", "--device", "cpu", "--format", "json")
    for row in json.loads(done.stdout)["records"]:
        failed = row["operator"] not in measured
        assert row["status"] == ("failed" if failed else "measured"), row["reason"]
        assert not failed or row["reason"].startswith(reason)
        assert (row["call_p50_ns"] is None) is failed
    assert "Traceback" not in done.stderr
