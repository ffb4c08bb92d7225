"""Acceptances, calibrations and breakdowns: small files that come back, and are read one by one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.model.breakdown import DeviceWait
from pairbench.model.record import Series
from pairbench.store.documents import (
    read_acceptances,
    read_breakdowns,
    read_calibrations,
    read_triages,
    write_document,
)
from pairbench.store.location import StoreLocation
from tests.breakdowns_made import kept
from tests.faults.damaged import ACCEPTANCE, CALIBRATION, SERIES, TRIAGE


def test_an_acceptance_comes_back_and_can_be_reviewed(tmp_path: Path) -> None:
    written = replace(ACCEPTANCE, reason="slower on purpose: “exact”")
    path = write_document(tmp_path, written)
    assert Path(path).parent == tmp_path / "accepted" and Path(path).name.startswith("20240102T030405-")
    assert read_acceptances(tmp_path) == read_acceptances(tmp_path.as_uri()) == ({SERIES: written}, ())
    assert read_acceptances(tmp_path / "nowhere") == ({}, ())
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    assert '  "reason": "slower on purpose: “exact”"\n' in lines
    assert lines[-1].endswith("\n") and len(lines) > 12


def test_the_newest_acceptance_of_a_series_holds_and_other_files_are_not_read(tmp_path: Path) -> None:
    later = replace(ACCEPTANCE, at="2024-01-03T00:00:00+00:00", p50_ns=2.0)
    other = replace(ACCEPTANCE, series=replace(SERIES, mode="graph"))
    for one in (later, ACCEPTANCE, other):
        path = Path(write_document(tmp_path, one))
    for name in (".1.json", "_1.json", "notes.txt"):
        path.with_name(name).write_text("nothing")
    assert read_acceptances(tmp_path) == ({SERIES: later, other.series: other}, ())


def test_states_of_events_and_calibrations_come_back_the_oldest_first(tmp_path: Path) -> None:
    later = replace(TRIAGE, state="new", url=None, at="2024-01-02T03:04:05.679+00:00")
    for one in (later, TRIAGE):
        path = Path(write_document(tmp_path, one))
    assert path.parent == tmp_path / "triage" and path.name.startswith("20240102T030405-")
    assert read_triages(tmp_path) == ((TRIAGE, later), ())
    assert read_triages(tmp_path / "nowhere") == ((), ())
    path.write_text(path.read_text().replace('"filed"', '"banana"'))
    (problem,) = read_triages(tmp_path).problems
    assert "state 'banana' is unknown" in problem
    newer = replace(CALIBRATION, calibration_id="x", made_at="2024-02-01T00:00:00+00:00", floors={})
    write_document(tmp_path, newer)
    path = Path(write_document(tmp_path, CALIBRATION))
    assert path == tmp_path / "calibrations/device=nvidia-h200/20240101T000000-bbbb.json"
    assert read_calibrations(tmp_path) == ((CALIBRATION, newer), ())


def test_breakdowns_come_back_the_newest_first_and_a_broken_file_is_named(tmp_path: Path) -> None:
    part, other = kept().parts
    bare = replace(other, idle=None, waits=(), notes=("A note.",))
    waiting = replace(part, waits=(DeviceWait(name="wait", module="net", ops=("item",), spot=None, count=1),))
    older, later = replace(kept(), commit=None, parts=(waiting, bare)), kept(number=2)
    path = write_document(tmp_path, older)
    assert path == str(tmp_path / "breakdowns/device=nvidia-h200/20260101T000000-aaaaaa.json")
    write_document(tmp_path, later)
    Path(path).with_name("half.json").write_text('{"pairbench": "breakdown 1"')
    value, (problem,) = read_breakdowns(tmp_path)
    assert value == (later, older) and "half.json" in problem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "Expecting property name"),
        (b"\xff", "decode"),
        (b"[]", 'expected a JSON object with "pairbench": "acceptance 1"'),
        (b'{"pairbench": "acceptance 99"}', 'expected a JSON object with "pairbench": "acceptance 1"'),
        (b'{"pairbench": "acceptance 1"}', "'at' is missing"),
        ({"p50_ns": "fast"}, "'p50_ns' is 'fast', expected a number"),
        ({"p50_ns": True}, "'p50_ns' is True, expected a number"),
        ({"p50_ns": float("nan")}, "'p50_ns' is nan, expected a finite number"),
        ({"series": None}, "'series' is None, expected an object"),
        ({"series": {"mode": "eager"}}, "'series.case' is missing"),
        ({"exact": {"margin": []}}, "'exact.margin' is [], expected a number"),
        ({"reason": 3}, "'reason' is 3, expected a text"),
    ],
)
def test_a_file_that_is_wrong_is_named_and_costs_only_itself(tmp_path: Path, content: object, words: str) -> None:
    path = Path(write_document(tmp_path, ACCEPTANCE))
    wrong = path.with_name("0.json")
    if isinstance(content, bytes):
        wrong.write_bytes(content)
    else:
        assert isinstance(content, dict)
        wrong.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **content}))
    found = read_acceptances(tmp_path)
    assert found.value == {SERIES: ACCEPTANCE}
    (problem,) = found.problems
    assert str(wrong) in problem and words in problem


def test_a_number_that_json_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_document(tmp_path, replace(ACCEPTANCE, p50_ns=float("inf")))


@settings(max_examples=15)
@given(st.builds(Series, **{name: st.text(max_size=9) for name in vars(SERIES)}), st.floats(0, 1e12), st.text())
def test_any_acceptance_comes_back(
    tmp_path_factory: pytest.TempPathFactory, series: Series, level: float, reason: str
) -> None:
    store = StoreLocation.of(tmp_path_factory.mktemp("store"))
    acceptance = replace(ACCEPTANCE, series=series, p50_ns=level, reason=reason)
    try:
        reason.encode()
    except UnicodeEncodeError:  # half a surrogate pair is no text
        return
    write_document(store, acceptance)
    assert read_acceptances(store).value == {series: acceptance}
