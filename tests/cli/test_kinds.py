"""Outputs of many kinds are judged in the judge's process, which they reach as bytes."""

import json
from pathlib import Path

from tests.cli.conftest import SUITES, settle
from tests.commands import call

REFUSED = {"undeclared": "the baseline is random", "generator": "its output is a generator"}


def test_every_kind_is_judged(tmp_path: Path) -> None:
    done = call(tmp_path, settle(tmp_path), "verify", str(SUITES / "kinds.py"), "--device", "cpu", "--format", "json")
    rows = json.loads(done.stdout)["verifications"]
    assert len({row["operator"] for row in rows}) == 9
    for row in rows:
        if why := REFUSED.get(row["operator"]):
            expected = "failed" if row["implementation"] == "baseline" else "skipped"
            assert row["status"] == expected and why in row["reason"], row
            continue
        assert row["status"] == ("mismatched" if row["implementation"] == "wrong" else "verified"), row
        if row["status"] == "verified":
            assert (row["repeat_error"] == 0) is (row["operator"] != "random"), row
