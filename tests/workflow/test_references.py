"""What serves as a reference: runs of one implementation, that measured something."""

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
from pairbench.report.render import Terminal
from pairbench.workflow.comparer import ComparedRuns, Comparer
from tests.builders import CASES, ended, make_run, run_id_of, write_runs

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


def compared(store: Path, runs: Sequence[Run], *sides: str) -> ComparedRuns:
    write_runs(store, *runs)
    return Comparer.open(Config(root=store, store=str(store))).compare(*sides)


def fused(found: ComparedRuns) -> Change:
    return next(
        change
        for change in found.comparison.changes
        if (change.series.implementation, change.series.case) == ("fused", CASES[0])
    )


def test_runs_of_another_source_are_not_averaged_into_the_reference(tmp_path: Path) -> None:
    found = fused(compared(tmp_path, EDITS))
    assert found.reference_runs == (run_id_of(0), run_id_of(2))
    assert found.judgements[0].reference == pytest.approx(524e3, rel=0.01)
    assert (found.outcome, found.implementation_changed) == (GateOutcome.REGRESSION, True)


def test_what_has_the_same_source_throughout_keeps_all_its_runs(tmp_path: Path) -> None:
    found = compared(tmp_path, EDITS)
    baseline = next(change for change in found.comparison.changes if change.series.implementation == "baseline")
    assert baseline.reference_runs == (run_id_of(0), run_id_of(1), run_id_of(2))
    assert baseline.left_out_runs == ()


@pytest.mark.parametrize("reference", ["last:3", "..2024-01-01T02:30"])
@pytest.mark.parametrize("output", ["table", "markdown", "json"])
def test_of_runs_that_were_named_those_of_another_source_are_left_out_and_named(
    tmp_path: Path, reference: str, output: str
) -> None:
    found = compared(tmp_path, EDITS, reference)
    assert fused(found).left_out_runs == (run_id_of(1),)
    assert fused(found).reference_runs == (run_id_of(0), run_id_of(2))
    text = render_comparison(found.comparison, output, terminal=Terminal())
    assert run_id_of(1) in text and ("another source" in text or output == "json")
    assert found.exit_code(strict=True) == 1, "a regression, and no problem of the store"


def test_a_reference_by_name_keeps_its_own_source(tmp_path: Path) -> None:
    found = fused(compared(tmp_path, EDITS, run_id_of(1)))
    assert found.reference_runs == (run_id_of(1),) and found.outcome is GateOutcome.UNCHANGED


def test_sources_that_are_not_known_agree(tmp_path: Path) -> None:
    runs = [tuple(replace(record, implementation_hash=None) for record in make_run(number)) for number in range(4)]
    assert fused(compared(tmp_path, runs)).reference_runs == tuple(map(run_id_of, range(3)))


def test_a_run_that_could_load_no_suite_is_no_reference(tmp_path: Path) -> None:
    found = compared(tmp_path, [make_run(0), broken(1), make_run(2)])
    assert found.comparison.reference.runs == (run_id_of(0),) and found.newer == ()
    found = compared(tmp_path / "last", [make_run(0), broken(1), make_run(2)], "last:1")
    assert found.comparison.reference.runs == (run_id_of(0),)
    found = compared(tmp_path / "dates", [make_run(0), broken(1), make_run(2)], "..2024-01-01T01:30")
    assert found.comparison.reference.runs == (run_id_of(0),) and found.note is None
    found = compared(tmp_path / "named", [make_run(0), broken(1), make_run(2)], run_id_of(1))
    assert found.note and "could load no suite" in found.note
    assert {change.outcome for change in found.comparison.changes} == {GateOutcome.NEW}


@pytest.mark.parametrize("current", ["auto", "latest"])
def test_a_run_that_could_load_no_suite_is_not_the_newest(tmp_path: Path, current: str) -> None:
    found = compared(tmp_path, [make_run(0), make_run(1), broken(2)], "auto", current)
    assert found.comparison.current.runs == (run_id_of(1),)
    (sentence,) = found.newer
    assert run_id_of(2) in sentence and "could load no suite" in sentence
    assert found.exit_code() == 4, "a gate does not pass for the run before"


def test_by_its_name_it_fails(tmp_path: Path) -> None:
    found = compared(tmp_path, [make_run(0), broken(1)], "auto", run_id_of(1))
    assert {change.outcome for change in found.comparison.changes} == {GateOutcome.FAILED}


def test_nothing_but_such_runs(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="which could load no suite"):
        compared(tmp_path, [broken(0)])
