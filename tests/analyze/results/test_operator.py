"""Which records a page of results shows, and in which order."""

import json
from dataclasses import replace

from pairbench.features.results.operator import results_of
from pairbench.features.results.values import ModeResults, OperatorResults
from pairbench.model.environment import HostLoad
from pairbench.model.record import Record
from tests.analyze.test_records import ENVIRONMENT
from tests.builders import ended, only, run_id_of
from tests.results_made import measured, operator

ONE = operator({"tokens": 64, "dtype": "bfloat16"})
KEY = "rms_norm[dtype=bfloat16,tokens=64]"
TIERS = ("real", "headline")
BUSY = HostLoad(cores=2, before=2.0)


def found_in(records: list[Record], declared: object = ONE) -> OperatorResults:
    found = results_of(declared, records, TIERS)  # type: ignore[arg-type]
    assert found is not None
    return found


def eager(records: list[Record]) -> ModeResults:
    mode = found_in(records).cases[0].in_mode("eager")
    assert mode is not None
    return mode


def test_the_newest_run_counts() -> None:
    mode = eager([*measured(ONE, 2), *measured(ONE, 1)])
    assert mode.best is not None
    assert mode.best.run_id == run_id_of(2)


def test_baseline_and_best_variant_are_of_one_run() -> None:
    newer = only(measured(ONE, 2), implementation="baseline")
    mode = eager([*measured(ONE, 1), *newer])
    assert mode.best is not None and mode.baseline is not None
    assert mode.best.run_id == mode.baseline.run_id == run_id_of(1)


def test_the_declared_definition_goes_before_a_newer_run_of_another() -> None:
    other = measured(ONE, 2, definition_hash="e" * 16)
    found = found_in([*measured(ONE, 1), *other])
    assert {behind.record.run_id for behind in found.runs} == {run_id_of(1)}
    assert found.outdated == ()
    assert found_in(other).outdated == (KEY,)


def test_a_skip_takes_the_place_of_no_measurement_but_a_failure_does() -> None:
    fused = only(measured(ONE, 2), implementation="fused")[0]
    skipped = [*measured(ONE, 1), ended(fused, "skipped", "interrupted")]
    assert eager(skipped).variants[0].status == "measured"
    failed = [*measured(ONE, 1), ended(fused, "failed", "it raised")]
    assert eager(failed).best is None
    assert [record.reason for record in found_in(failed).refused] == ["it raised"]


def test_a_cpu_that_had_other_work_to_do_has_no_speedups() -> None:
    busy = BUSY.put_in(ENVIRONMENT).rest
    records = [replace(one, device_kind="cpu", environment=json.dumps(busy)) for one in measured(ONE, 1)]
    mode = eager(records)
    assert mode.baseline is not None and mode.variants and mode.best is None and mode.steps == {}
    assert found_in(records).notes == (f"speedups withheld: {BUSY.disturbs('cpu')}",)
    assert eager([replace(one, device_kind="cuda") for one in records]).best is not None


def test_do_bench_stands_in_only_where_there_is_nothing_else() -> None:
    other = measured(ONE, 2, timer="do_bench")
    assert found_in([*measured(ONE, 1), *other]).notes == ()
    assert found_in(other).notes == ("some were timed by do_bench",)


def test_tf32_is_said() -> None:
    records = measured(ONE, environment='{"flags": {"matmul.allow_tf32": true}}')
    assert found_in(records).notes == ("2 of 2 records were made with TF32 on",)


def test_the_precision_of_a_case_goes_before_the_setting() -> None:
    records = [replace(one, float32_precision="ieee") for one in measured(ONE)]
    (note,) = found_in(records).notes
    assert note.startswith("float32 products and convolutions: IEEE float32")
    (mixed,) = found_in([replace(records[0], float32_precision="tf32"), *records[1:]]).notes
    assert mixed == "1 of 2 records were made with TF32 on"
    on = '{"flags": {"matmul.allow_tf32": true}}'
    assert found_in([replace(one, environment=on) for one in records]).notes == (note,)
    assert found_in([replace(one, device_kind="cpu") for one in records]).notes == ()


def test_the_best_is_the_fastest_that_was_measured() -> None:
    declared = operator({"tokens": 64}, names=("baseline", "slow", "fused", "wrong"))
    records = measured(declared, slower={"slow": 1.5, "wrong": 0.1})
    records = [ended(record, "mismatched") if record.implementation == "wrong" else record for record in records]
    (case,) = found_in(records, declared).cases
    (mode,) = case.modes
    assert mode.best is not None and mode.best.implementation == "fused"
    assert [record.implementation for record in mode.variants] == ["slow", "fused", "wrong"]


def test_cases_come_by_dtype_and_then_by_size() -> None:
    points = [
        {"tokens": 4096, "dtype": "float32"},
        {"tokens": 64, "dtype": "float32"},
        {"tokens": 512, "dtype": "bfloat16"},
    ]
    for costs in (True, False):
        declared = operator(*points, costs=costs)
        found = found_in(measured(declared), declared)
        assert [case.case.key for case in found.cases] == [
            "rms_norm[dtype=bfloat16,tokens=512]",
            "rms_norm[dtype=float32,tokens=64]",
            "rms_norm[dtype=float32,tokens=4096]",
        ]


def test_what_is_declared_and_not_in_the_store_is_named() -> None:
    declared = operator({"tokens": 64}, {"tokens": 128})
    records = [record for record in measured(declared) if record.case != "rms_norm[tokens=128]"]
    assert [case.key for case in found_in(records, declared).missing] == ["rms_norm[tokens=128]"]


def test_other_tiers_and_cases_that_are_no_longer_declared_are_left_out() -> None:
    smoke = operator({"tokens": 64}, tier="smoke")
    assert results_of(smoke, measured(smoke), TIERS) is None
    assert results_of(replace(ONE, cases=()), measured(ONE), TIERS) is None
    assert results_of(ONE, [], TIERS) is None
