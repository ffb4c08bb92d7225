"""No history breaks unnoticed: the hashes of every suite, and the names under which earlier runs knew it."""

import json

import pandas as pd

from pairbench.suite.load import moved_suites
from tests.catalogue.hashes import PINNED, ROOT, hashes

AGAIN = "where that is meant, `python -m tests.catalogue.hashes` writes the new ones down"


def test_no_definition_or_implementation_changed() -> None:
    """A changed definition begins a new series; a changed implementation is what a slow-down is blamed on."""
    pinned, now = json.loads(PINNED.read_text(encoding="utf-8")), hashes()
    changed = [
        f"{suite}::{operator}"
        for suite in pinned.keys() | now.keys()
        for operator in pinned.get(suite, {}).keys() | now.get(suite, {}).keys()
        if pinned.get(suite, {}).get(operator) != now.get(suite, {}).get(operator)
    ]
    assert not changed, f"their code is another now, by its syntax tree: {sorted(changed)}; {AGAIN}"


def test_every_reference_run_is_of_a_suite_that_is_there() -> None:
    frame = pd.read_parquet(ROOT / "results" / "reference" / "records", columns=["suite"])
    moved = moved_suites((ROOT / "suites",))
    stored = {moved.get(suite, suite) for suite in frame["suite"].unique()}
    assert not {suite for suite in stored if suite.startswith("suites/") and not (ROOT / suite).is_file()}
    assert {suite for suite in stored if suite.startswith("suites/")} == json.loads(PINNED.read_text()).keys()


def test_every_suite_that_was_moved_is_where_it_is_said_to_be() -> None:
    moved = moved_suites((ROOT / "suites",))
    assert moved and not [new for new in moved.values() if not (ROOT / new).is_file()]
    assert not [old for old in moved if (ROOT / old).exists()]
