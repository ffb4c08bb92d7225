from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.errors import StoreError
from pairbench.model.record import Record
from pairbench.site.gather import SiteReading
from pairbench.site.paths import OperatorFacts
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, run_id_of, write_runs
from tests.site.stores import accept

OTHER = "softmax[dtype=bfloat16,tokens=64]"


def read(store: Path, **options: int) -> SiteReading:
    return SiteReading(Config(root=store, store=str(store)), **options)  # type: ignore[arg-type]


def operators(reading: SiteReading) -> list[OperatorFacts]:
    return [facts for *_, facts in reading.operators()]


def runs(number: int, *, slower_from: int = 1000, cases: tuple[str, ...] = CASES) -> list[tuple[Record, ...]]:
    return [make_run(day, cases=cases, slower={"fused": 1.3} if day >= slower_from else {}) for day in range(number)]


def test_every_operator_with_its_series_and_trends(tmp_path: Path) -> None:
    write_runs(tmp_path, *runs(14, slower_from=8, cases=(*CASES, OTHER)))
    reading = read(tmp_path)
    norm, softmax = operators(reading)
    assert (norm.device_name, norm.suite, norm.operator) == (DEVICE, SUITE, "rms_norm")
    assert softmax.operator == "softmax" and len(softmax.series) == 2
    assert [(one.series.case, one.series.implementation) for one in norm.series] == [
        (case, name) for case in CASES for name in ("baseline", "fused")
    ]
    for facts, trend in zip(norm.series, norm.trends, strict=True):
        assert facts.series == trend.series and len(trend.points) == 14
        assert facts.run_id == run_id_of(13) and facts.kernels is not None
    assert [len(event.moved) for event in norm.events] == [2]
    assert [(row.operator, row.cases) for row in reading.facts.rows] == [("rms_norm", 2), ("softmax", 1)]
    (event,) = reading.facts.events
    assert event.key == norm.events[0].key and len(event.moved) == 3
    assert "fused_kernel" in event.moved[0].kernels[0] and "slower" in event.moved[0].kernels[0]


def open_loss(store: Path) -> tuple[str, str, list[str]]:
    """Return the state of the one operator, that of its first variant, and what became of each event."""
    reading = read(store)
    (norm,) = operators(reading)
    fused = next(one for one in norm.series if one.series.implementation == "fused")
    return reading.facts.rows[0].state, fused.gate_status.state, [event.life for event in reading.facts.events]


def test_a_loss_of_earlier_runs_is_the_state_until_it_is_accepted(tmp_path: Path) -> None:
    cases = CASES[:1]
    write_runs(tmp_path, *runs(24, slower_from=8, cases=cases))
    assert open_loss(tmp_path) == ("regression", "regression", ["still there"])
    accept(tmp_path, make_run(8, cases=cases, slower={"fused": 1.3}), CASES[0], "takes odd sizes")
    assert open_loss(tmp_path) == ("unchanged", "unchanged", ["accepted"])


def test_runs_with_what_was_recorded_of_them(tmp_path: Path) -> None:
    first, second = runs(2)
    broken = replace(ended(second[0], "failed", "line 3: no such name"), operator=None, case=None)
    throttled = [replace(record, throttle_reasons="sw_power_cap,hw_slowdown", remeasured_blocks=4) for record in second]
    skipped = replace(ended(second[0], "skipped"), implementation="zoned", remeasured_blocks=None)
    write_runs(tmp_path, first, (*throttled, broken, skipped))
    reading = read(tmp_path)
    assert [facts.head.run_id for *_, facts in reading.runs()] == [run_id_of(0), run_id_of(1)]
    *_, newest = list(reading.runs())[-1]
    assert newest.throttle_reasons == {"sw_power_cap": 4, "hw_slowdown": 4}
    assert newest.remeasured_blocks == 8 and newest.stop_reasons == {"precise": 4}
    assert newest.broken == ((SUITE, "line 3: no such name"),)
    assert newest.environment == {"flags": {"matmul.allow_tf32": False}}
    assert newest.head.statuses == {"measured": 4, "failed": 1, "skipped": 1}
    assert [head.run_id for head in reading.facts.runs] == [run_id_of(1), run_id_of(0)]


def test_the_newest_run_is_compared_with_its_reference(tmp_path: Path) -> None:
    write_runs(tmp_path, *runs(3), make_run(3, slower={f"{CASES[0]}-fused": 1.5}))
    reading = read(tmp_path)
    (operator,) = operators(reading)
    gate_status = {(one.series.case, one.series.implementation): one.gate_status for one in operator.series}
    assert gate_status[CASES[0], "fused"].state == "regression"
    assert gate_status[CASES[1], "fused"].state == "unchanged"
    assert gate_status[CASES[1], "fused"].change is not None
    (event,) = reading.facts.events
    assert (event.kind, event.direction) == ("newest", "worse")
    assert reading.facts.rows[0].state == "regression"


def test_a_run_is_judged_series_by_series_against_the_runs_that_have_them(tmp_path: Path) -> None:
    some, slower = (CASES[1],), {f"{CASES[0]}-fused": 1.5}
    write_runs(tmp_path, *runs(3), make_run(3, cases=some), make_run(4, cases=(*CASES, OTHER), slower=slower))
    reading = read(tmp_path)
    told = reading.verdicts[run_id_of(4), DEVICE]
    assert told.counts == {"regression": 1, "unchanged": 3, "new": 2}
    assert list(told.references) == [run_id_of(day) for day in range(4)] and all(told.references.values())
    assert [one.operator for one in told.new] == ["softmax", "softmax"]
    assert reading.facts.beside[run_id_of(4), DEVICE] == run_id_of(2)
    assert not any(read(tmp_path, last=1).verdicts), "nothing to show it beside"


def test_series_of_an_older_run_keep_what_that_run_says_of_them(tmp_path: Path) -> None:
    write_runs(tmp_path, *runs(2), make_run(2, slower={f"{CASES[0]}-fused": 1.5}), make_run(3, cases=(CASES[1],)))
    (operator,) = operators(read(tmp_path))
    gate_status = {(one.series.case, one.series.implementation): one for one in operator.series}
    assert gate_status[CASES[0], "fused"].gate_status.state == "regression"
    assert gate_status[CASES[0], "fused"].run_id == run_id_of(2)
    assert gate_status[CASES[1], "fused"].run_id == run_id_of(3)


def test_a_single_run_and_only_failures(tmp_path: Path) -> None:
    write_runs(tmp_path / "one", make_run(0))
    reading = read(tmp_path / "one")
    (operator,) = operators(reading)
    assert {one.gate_status.state for one in operator.series} == {"new"} and reading.facts.events == ()
    write_runs(tmp_path / "bad", [ended(record, "failed", "boom") for record in make_run(0)])
    reading = read(tmp_path / "bad")
    list(reading.operators())
    assert reading.facts.rows[0].state == "failed" and reading.facts.rows[0].variant is None


def test_the_newest_runs_only_and_damaged_files_are_named(tmp_path: Path) -> None:
    write_runs(tmp_path, *runs(4))
    assert len(read(tmp_path, last=2).facts.runs) == 2
    first, *_ = sorted((tmp_path / "records").rglob("*.parquet"))
    first.write_bytes(b"PAR1")
    reading = read(tmp_path)
    assert len(reading.facts.runs) == 3 and "cannot be read" in reading.facts.problems[0]
    with pytest.raises(StoreError, match="pairbench run"):
        read(tmp_path / "empty")


def test_the_pages_name_a_store_of_the_checkout_without_its_place_on_the_machine(tmp_path: Path) -> None:
    write_runs(tmp_path / "results", make_run(0))
    config = Config(root=tmp_path, store=str(tmp_path / "results"))
    assert SiteReading(config).facts.store == "results" and SiteReading(config).facts.options == ()
    elsewhere = Config(root=tmp_path / "other", store=str(tmp_path / "results"))
    named = ("--store", str(tmp_path / "results"))
    assert SiteReading(elsewhere, options=named).facts.options == named
