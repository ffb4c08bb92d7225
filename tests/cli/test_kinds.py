"""Outputs of many kinds are judged alike, in a process of the judge's and in the worker."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SUITES, settle
from tests.commands import call

REFUSED = {"undeclared": "the baseline is random", "generator": "its output is a generator"}


@pytest.mark.parametrize("verb", ["run", "try"])
def test_every_kind_is_judged(tmp_path: Path, verb: str) -> None:
    arguments = [verb, str(SUITES / "kinds.py"), "--device", "cpu", "--format", "json"]
    done = call(tmp_path, settle(tmp_path, case_seconds=0.05), *arguments)
    found = json.loads(done.stdout)
    rows = {(row["operator"], row["implementation"]): row for row in found.get("records") or found["tries"]}
    for (operator, implementation), row in rows.items():
        if why := REFUSED.get(operator):
            expected = "failed" if implementation == "baseline" else "skipped"
            assert (row["status"], why in row["reason"]) == (expected, True), row["reason"]
        else:
            assert row["status"] == ("mismatched" if implementation == "wrong" else "measured"), (
                operator,
                row["reason"],
            )
            if row["status"] == "measured":
                assert row["deterministic"] is (operator != "random")
    assert len({operator for operator, _ in rows}) >= (9 if verb == "run" else 1)
