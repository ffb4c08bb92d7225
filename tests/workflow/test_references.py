from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.config import Config
from pairbench.errors import StoreError
from pairbench.model.comparison import Change, GateOutcome
from pairbench.model.record import Record
from pairbench.report.comparison import render_comparison
from pairbench.report.render import FORMATS, Terminal
from pairbench.workflow.comparer import ComparedRuns, Comparer
from tests.builders import CASES, change_of, ended, make_run, run_id_of, write_runs

Run = tuple[Record, ...]


def version(number: int, source: str, factor: float) -> Run:
    """Return a run outside of git, in which the variants have some source and are so much slower."""
    run = make_run(number, slower={"fused": factor}, commit=None, commit_at=None, branch=None, dirty=None)
    return tuple(
        replace(record, implementation_hash=source) if record.implementation == "fused" else record for record in run
    )


def broken(number: int) -> Run:
    """Return a run that could load no suite."""
    columns = ("operator", "case", "axes", "implementation", "role", "mode", "tier", "definition_hash")
    blank: dict[str, Any] = dict.fromkeys((*columns, "implementation_hash"))
    return (replace(ended(make_run(number)[0], "failed", "norm.py, line 3: SyntaxError"), **blank),)


EDITS = [version(0, "old", 5.24), version(1, "new", 8.19), version(2, "old", 5.24), version(3, "new", 8.19)]
"""Edits back and forth, of which the last is judged."""


def comparer(store: Path, runs: Sequence[Run]) -> Comparer:
    write_runs(store, *runs)
    return Comparer.open(Config(root=store, store=str(store)))


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> Comparer:
    return comparer(tmp_path_factory.mktemp("edits"), EDITS)


def fused(found: ComparedRuns) -> Change:
    return change_of(found.comparison.changes, CASES[0])


def test_runs_of_another_source_are_not_averaged_into_the_reference(edits: Comparer) -> None:
    found = edits.compare()
    change, baseline = fused(found), change_of(found.comparison.changes, CASES[0], "baseline")
    assert change.reference_runs == (run_id_of(0), run_id_of(2))
    assert change.judgements[0].reference == pytest.approx(524e3, rel=0.01)
    assert (change.outcome, change.implementation_changed) == (GateOutcome.REGRESSION, True)
    # What has the same source throughout keeps all its runs.
    assert baseline.reference_runs == tuple(map(run_id_of, range(3))) and baseline.left_out_runs == ()


@pytest.mark.parametrize("reference", ["last:3", "..2024-01-01T02:30"])
def test_of_runs_that_were_named_those_of_another_source_are_left_out_and_named(
    edits: Comparer, reference: str
) -> None:
    found = edits.compare(reference)
    assert fused(found).left_out_runs == (run_id_of(1),)
    assert fused(found).reference_runs == (run_id_of(0), run_id_of(2))
    for output in FORMATS:
        text = render_comparison(found.comparison, output, terminal=Terminal())
        assert run_id_of(1) in text and ("another source" in text or output == "json")
    assert found.exit_code(strict=True) == 1, "a regression, and no problem of the store"


def test_a_reference_by_name_keeps_its_own_source(edits: Comparer) -> None:
    found = fused(edits.compare(run_id_of(1)))
    assert found.reference_runs == (run_id_of(1),) and found.outcome is GateOutcome.UNCHANGED


def test_sources_that_are_not_known_agree(tmp_path: Path) -> None:
    runs = [make_run(number, implementation_hash=None) for number in range(4)]
    assert fused(comparer(tmp_path, runs).compare()).reference_runs == tuple(map(run_id_of, range(3)))


def test_a_run_that_could_load_no_suite_is_no_reference(tmp_path: Path) -> None:
    store = comparer(tmp_path, [make_run(0), broken(1), make_run(2)])
    for reference in ("auto", "last:1", "..2024-01-01T01:30"):
        found = store.compare(reference)
        assert found.comparison.reference.runs == (run_id_of(0),) and found.newer == () and found.note is None
    named = store.compare(run_id_of(1))
    assert named.note and "could load no suite" in named.note
    assert {change.outcome for change in named.comparison.changes} == {GateOutcome.NEW}
    failed = store.compare("auto", run_id_of(1))
    assert {change.outcome for change in failed.comparison.changes} == {GateOutcome.FAILED}


def test_a_run_that_could_load_no_suite_is_not_the_newest(tmp_path: Path) -> None:
    store = comparer(tmp_path, [make_run(0), make_run(1), broken(2)])
    for current in ("auto", "latest"):
        found = store.compare("auto", current)
        assert found.comparison.current.runs == (run_id_of(1),)
        (sentence,) = found.newer
        assert run_id_of(2) in sentence and "could load no suite" in sentence
        assert found.exit_code() == 4, "a gate does not pass for the run before"


def test_nothing_but_such_runs(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="which could load no suite"):
        comparer(tmp_path, [broken(0)]).compare()
