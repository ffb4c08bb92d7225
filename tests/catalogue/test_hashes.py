"""No history breaks unnoticed: the hashes of every suite, and the names under which earlier runs knew it."""

import json
from dataclasses import replace

import pandas as pd

from pairbench.model.record import Series
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame
from pairbench.suite.modules import moved_suites
from pairbench.workflow.lookup import find_series, read_history
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
    measured = {suite for suite in json.loads(PINNED.read_text()) if not suite.startswith("suites/examples/")}
    assert {suite for suite in stored if suite.startswith("suites/")} == measured


def test_every_suite_that_was_moved_is_where_it_is_said_to_be() -> None:
    moved = moved_suites((ROOT / "suites",))
    assert moved and not [new for new in moved.values() if not (ROOT / new).is_file()]
    assert not [old for old in moved if (ROOT / old).exists()]


def test_the_reference_runs_have_the_same_series_before_and_after_the_move() -> None:
    """What every reader finds under the new names is, row for row, what lies in the files under the old ones."""
    folder = ROOT / "results" / "reference"
    moved = moved_suites((ROOT / "suites",))
    location = StoreLocation.of(folder, moved=moved)
    columns = ["run_id", "suite", "case", "implementation", "mode", "call_p50_ns"]
    plain, now = (read_frame(store, columns=columns).value for store in (folder, location))
    assert (plain["suite"] != now["suite"]).sum() > 1000
    plain["suite"] = plain["suite"].replace(moved)
    pd.testing.assert_frame_equal(plain, now)
    series = Series(
        device_name="NVIDIA H200",
        suite="suites/conv/causal.py",
        case="causal_conv3d[b=4,c=64,dtype=float32,h=128,out=64,t=32,w=128]",
        implementation="gluon",
        mode="eager",
    )
    old = "suites/conv.py"
    for name in (series.name, series.name.replace(series.suite, old)):  # whoever knows the old name finds it as well
        assert find_series(location, name).value == series
    runs = {record.run_id for record in read_history(location, series)[0].value}
    before, after = (
        {record.run_id for record in read_history(str(folder), replace(series, suite=suite))[0].value}
        for suite in (old, series.suite)
    )
    assert runs == before | after and len(before) >= 4 and len(after) >= 1
