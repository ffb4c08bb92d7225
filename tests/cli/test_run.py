"""A run from the command line to the store, on the CPU."""

import json
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pairbench.model.record import Record, Samples
from pairbench.store.reader import read_run
from tests.cli.conftest import RUNS, settle
from tests.commands import call

Done = subprocess.CompletedProcess[str]


def row(document: dict[str, Any], operator: str, implementation: str, **more: object) -> dict[str, Any]:
    found = [
        record
        for record in document["records"]
        if (record["operator"], record["implementation"]) == (operator, implementation)
        and all(record[name] == value for name, value in more.items())
    ]
    assert found
    return dict(found[0])


def test_a_fine_run_has_exit_code_0_and_one_json_document_on_stdout(fine_run: Done) -> None:
    """Although a suite of it prints without end, to both streams and past Python."""
    assert fine_run.returncode == 0, fine_run.stderr
    document = json.loads(fine_run.stdout)
    assert set(document) == {"run_id", "store", "summary", "records", "notes"}
    assert "line 1999" not in fine_run.stderr and "not a message" not in fine_run.stderr


def test_the_summary_says_how_the_time_was_spent(fine: dict[str, Any]) -> None:
    summary = fine["summary"]
    assert 0 < summary["measuring_s"]["cpu"] < summary["wall_s"]
    assert 0 < summary["judging_s"]["cpu"] < summary["wall_s"] - summary["measuring_s"]["cpu"]
    assert summary["measuring_fraction"]["cpu"] == pytest.approx(summary["measuring_s"]["cpu"] / summary["wall_s"])
    assert summary["interrupted"] is False and summary["remeasured_blocks"] == 0
    assert set(summary["statuses"]) == {"measured", "skipped"}
    assert set(summary["stop_reasons"]) <= {"precise", "sample_cap", "time_cap"}
    assert sum(summary["stop_reasons"].values()) == summary["statuses"]["measured"]


def test_progress_goes_to_stderr_as_plain_lines(fine_run: Done) -> None:
    assert "] cpu verify: shifts[" in fine_run.stderr
    assert "\x1b" not in fine_run.stderr


def test_records_are_in_the_order_of_declaration(fine: dict[str, Any]) -> None:
    """The baseline first, then the variants, whatever was final first."""
    assert [
        (record["case"], record["implementation"]) for record in fine["records"] if record["operator"] == "linear"
    ] == [
        ("linear[columns=16,dtype=float32,rows=4]", "baseline"),
        ("linear[columns=16,dtype=float32,rows=4]", "transposed"),
        ("linear[columns=16,dtype=float32,rows=4]", "even_rows"),
        ("linear[columns=16,dtype=float32,rows=5]", "baseline"),
        ("linear[columns=16,dtype=float32,rows=5]", "transposed"),
        ("linear[columns=16,dtype=float32,rows=5]", "even_rows"),
    ]


def test_cases_are_in_the_order_in_which_they_are_listed(
    fine_folder: Path, fine: dict[str, Any], tmp_path: Path
) -> None:
    """In what is printed and in the store, in whatever order they were timed, and are final."""
    listed = call(tmp_path, settle(tmp_path), "list", "--format", "json", *RUNS["fine"][1:])
    planned = [(case["suite"], case["case"]) for case in json.loads(listed.stdout)["cases"] if case["tier"] == "smoke"]
    stored = pd.read_parquet(fine_folder / "results" / "records")
    for records in (fine["records"], stored.to_dict("records")):
        assert list(dict.fromkeys((record["suite"], record["case"]) for record in records)) == planned


def test_a_record_on_a_cpu(fine: dict[str, Any]) -> None:
    found = row(fine, "shifts", "named")
    assert found["status"] == "measured" and found["reason"] is None
    assert (found["role"], found["mode"], found["tier"], found["dtype"]) == ("variant", "eager", "smoke", "float32")
    assert found["timer"] == "perf_counter" and found["launch_status"] == "not_applicable"
    assert found["call_p50_ns_low"] <= found["call_p50_ns"] <= found["call_p50_ns_high"] <= found["call_p95_ns_high"]
    assert found["host_p50_ns"] == found["call_p50_ns"]
    assert found["first_call_ns"] > 0
    assert found["n_rounds"] == 1 and len(found["round_p50_ns"]) == 1 and found["n_samples"] >= 10
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    assert found["max_abs_error"] >= 0 and found["margin"] == 1 and found["mismatched_fraction"] == 0
    assert (found["flops"], found["bytes_moved"]) == (64, 768)
    assert found["gbps"] == pytest.approx(768 / found["call_p50_ns"])
    assert 0 < found["roofline_fraction"] < 1
    assert found["axes"] == {"columns": 16, "dtype": "float32", "rows": 4}
    for name in ("device_p50_ns", "device_timer", "kernels_per_call", "syncs_per_call", "sm_clock_mhz", "driver"):
        assert found[name] is None


def test_operators_and_memory_are_counted_exactly(fine: dict[str, Any]) -> None:
    assert row(fine, "shifts", "baseline")["ops_per_call"] == 2
    assert row(fine, "shifts", "named")["ops_per_call"] == 2
    assert row(fine, "syncs", "good")["ops_per_call"] == 1
    syncs = row(fine, "syncs", "syncs")
    assert syncs["status"] == "measured" and syncs["ops_per_call"] >= 4
    # One output of 4 x 16 float32, and nothing else.
    plain = row(fine, "syncs", "baseline", case="syncs[dtype=float32,rows=4]")
    assert (plain["ops_per_call"], plain["peak_bytes"], plain["allocations_per_call"]) == (1, 256, 1)


def test_a_baseline_has_no_speedup(fine: dict[str, Any]) -> None:
    assert row(fine, "shifts", "baseline")["speedup"] is None


def test_not_valid_is_skipped_with_the_variants_own_words(fine: dict[str, Any]) -> None:
    found = row(fine, "linear", "even_rows", case="linear[columns=16,dtype=float32,rows=5]")
    assert (found["status"], found["reason"]) == ("skipped", "not valid here: 5 rows are odd")
    assert row(fine, "linear", "even_rows", case="linear[columns=16,dtype=float32,rows=4]")["status"] == "measured"


def test_triton_on_a_cpu_is_verified_and_not_timed(fine: dict[str, Any]) -> None:
    found = row(fine, "interpreted", "kernel")
    assert found["status"] == "skipped" and "Triton's interpreter verified it" in found["reason"]
    assert found["margin"] == 1 and found["call_p50_ns"] is None


def test_the_default_tier_on_a_cpu_is_smoke(fine: dict[str, Any]) -> None:
    assert {record["tier"] for record in fine["records"]} == {"smoke"}


def test_verifying_impostors_is_not_the_business_of_run(fine: dict[str, Any]) -> None:
    assert row(fine, "impostor_passes", "good")["status"] == "measured"


def test_without_the_option_to_confirm_nothing_is_compared(fine: dict[str, Any]) -> None:
    assert not {"comparison", "confirming_run_id"} & fine.keys()


COUNTED = (
    *("suite", "case", "implementation", "mode", "status", "reason"),
    *("ops_per_call", "peak_bytes", "allocations_per_call"),
    *("max_abs_error", "mismatched_fraction", "margin", "implementation_hash", "definition_hash", "environment_hash"),
)


def test_forked_workers_find_the_same_as_fresh_ones(fine: dict[str, Any], tmp_path: Path) -> None:
    """Whatever is no time, down to the environment's hash."""
    done = call(tmp_path, settle(tmp_path), "run", "--format", "json", "--device", "cpu", *RUNS["fine"][1:])
    assert done.returncode == 0, done.stderr
    forked, fresh = (
        [{name: record[name] for name in COUNTED} for record in document["records"]]
        for document in (json.loads(done.stdout), fine)
    )
    assert forked == fresh


def test_pandas_is_enough_to_read_the_store(fine_folder: Path, fine: dict[str, Any]) -> None:
    frame = pd.read_parquet(fine_folder / "results" / "records")
    assert {item.name for item in fields(Record)} <= set(frame.columns)
    assert len(fields(Record)) == 135
    assert len(frame) == len(fine["records"])
    assert set(frame["run_id"]) == {fine["run_id"]}
    measured = frame[frame["status"] == "measured"]
    assert (measured["call_p50_ns"] > 0).all() and len(measured) == fine["summary"]["statuses"]["measured"]


def test_one_file_a_dataset_is_left_and_nothing_else(fine_folder: Path, fine: dict[str, Any]) -> None:
    store = fine_folder / "results"
    found = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
    assert [name.split("/")[0] for name in found] == ["records", "samples"]
    assert all(name.endswith(f"/{fine['run_id']}.parquet") for name in found)


def test_the_samples_are_stored_and_give_the_records_numbers(fine_folder: Path, fine: dict[str, Any]) -> None:
    (file,) = (fine_folder / "results" / "samples").rglob("*.parquet")
    assert set(pq.read_schema(file).names) == {item.name for item in fields(Samples)}
    frame = pd.read_parquet(fine_folder / "results" / "samples")
    record = row(fine, "shifts", "named")
    (samples,) = frame[(frame["case"] == record["case"]) & (frame["implementation"] == "named")].to_dict("records")
    assert len(samples["call_ns"]) == record["n_samples"] == len(samples["position"]) == len(samples["at_ns"])
    assert pd.Series(samples["call_ns"]).median() == record["call_p50_ns"]
    assert set(samples["position"]) == {0, 1}
    assert list(samples["at_ns"]) == sorted(samples["at_ns"])
    assert not any(samples["throttled"])


def test_in_a_block_everybody_has_another_position(fine_folder: Path) -> None:
    frame = pd.read_parquet(fine_folder / "results" / "samples")
    for _, group in frame.groupby("case"):
        for positions in zip(*group["position"], strict=True):
            assert sorted(positions) == list(range(len(group)))


def test_the_store_reads_back_as_records(fine_folder: Path, fine: dict[str, Any]) -> None:
    reading = read_run(fine_folder / "results")
    assert not reading.problems
    assert {(record.case, record.implementation, record.status) for record in reading.value} == {
        (record["case"], record["implementation"], record["status"]) for record in fine["records"]
    }


def test_the_environment_is_kept(fine: dict[str, Any]) -> None:
    environment = fine["records"][0]["environment"]
    assert environment["flags"]["matmul.allow_tf32"] is False
    assert {"variables", "cores", "packages", "observed", "kernel"} <= set(environment)
    assert environment["observed"]["ceilings"]["copy_gbps"] > 0
    assert len({record["environment_hash"] for record in fine["records"]}) == 1


@pytest.fixture(scope="module")
def own(own_folder: Path) -> dict[tuple[str, str], Record]:
    """Return the records of a user's own file by implementation and mode."""
    return {(str(record.implementation), str(record.mode)): record for record in read_run(own_folder / "here").value}


def test_a_users_own_file_in_a_folder_of_its_own(own: dict[tuple[str, str], Record], own_run: Done) -> None:
    """No checkout, nothing of ours, and no commit to tell."""
    assert own_run.returncode == 0, own_run.stderr
    assert {record.suite for record in own.values()} == {"my_ops.py"}
    assert {record.commit for record in own.values()} == {None}
    assert {record.status for record in own.values()} == {"measured"}


def test_markdown_and_the_closing_lines(own_run: Done) -> None:
    assert "| " in own_run.stdout and "slow" in own_run.stdout and "stored in here" in own_run.stdout
    for closing in ("What ended the measuring: ", "Blocks measured again because the device throttled: 0"):
        assert any(line.startswith(closing) for line in own_run.stdout.splitlines()[-5:]), own_run.stdout


def test_compile_pays_once(own: dict[tuple[str, str], Record]) -> None:
    """The first call holds the compilation, and the median does not."""
    found, eager = own["baseline", "compile"], own["baseline", "eager"]
    assert found.first_call_ns and found.call_p50_ns and eager.first_call_ns
    assert found.timer == "perf_counter"
    assert found.first_call_ns > 20 * found.call_p50_ns
    assert eager.first_call_ns < found.first_call_ns


def test_operators_that_were_fused_away_are_not_counted(own: dict[tuple[str, str], Record]) -> None:
    counts = {key: record.ops_per_call for key, record in own.items()}
    assert (counts["baseline", "eager"], counts["twice", "eager"]) == (20, 40)
    assert counts["baseline", "compile"] == counts["twice", "compile"] == 0


def test_a_speedup_is_over_the_baseline_of_the_same_mode(own: dict[tuple[str, str], Record]) -> None:
    for mode in ("compile", "eager"):
        baseline, twice = own["baseline", mode], own["twice", mode]
        assert baseline.call_p50_ns and twice.call_p50_ns
        assert twice.speedup == pytest.approx(baseline.call_p50_ns / twice.call_p50_ns)


_PRECISION = """
import torch
from pairbench import Operator, grid

torch.set_float32_matmul_precision("medium")  # which no suite decides


def multiplied(x):
    return x @ x.t() + float(torch.backends.cuda.matmul.allow_tf32)


def declare(name, inputs, variant, cases):
    return Operator(name, baseline=multiplied, variants={"v": variant}, inputs=inputs, cases=cases, cost=lambda rows: (1.0, 1.0))


axis = declare(
    "axis", lambda make, rows: {"x": make.normal(rows, 8)}, lambda x: x @ x.t(), grid(rows=[4], tf32=[True, False])
)
setting = declare("setting", lambda make, rows: {"x": make.normal(rows, 8)}, lambda x: x @ x.t(), grid(rows=[4]))
given = Operator(
    "given",
    baseline=lambda x, allowed: x * (1 + float(torch.backends.cuda.matmul.allow_tf32)),
    variants={"v": lambda x, allowed: x * (1 + allowed)},
    inputs=lambda make, tf32: {"x": make.normal(8), "allowed": float(tf32)},
    cases=grid(tf32=[True, False]),
)
"""


@pytest.fixture(scope="module", params=["--tf32", "--no-tf32"])
def precise(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bool, dict[str, Any]]:
    """Return whether TF32 was asked for, and the records of all implementations by case and name."""
    folder = tmp_path_factory.mktemp("precise")
    (folder / "precise.py").write_text(_PRECISION)
    done = call(folder, settle(folder), "run", "precise.py", "--device", "cpu", "--format", "json", request.param)
    found = json.loads(done.stdout)
    # A CPU has no TF32, so there is nothing to say.
    assert found["notes"] == [] and done.returncode == 1
    return request.param == "--tf32", {f"{row['case']} {row['implementation']}": row for row in found["records"]}


def test_a_case_or_else_the_option_pins_the_precision(precise: tuple[bool, dict[str, Any]]) -> None:
    tf32, found = precise
    statuses = {name: row["status"] for name, row in found.items() if row["role"] == "variant"}
    assert statuses == {
        "axis[rows=4,tf32=True] v": "mismatched",
        "axis[rows=4,tf32=False] v": "measured",
        "setting[rows=4] v": "mismatched" if tf32 else "measured",
        "given[tf32=True] v": "measured",
        "given[tf32=False] v": "measured",
    }


def test_the_precision_of_a_case_is_recorded_and_its_environment_is_the_runs(
    precise: tuple[bool, dict[str, Any]],
) -> None:
    tf32, found = precise
    assert len({row["environment_hash"] for row in found.values()}) == 1
    assert {row["environment"]["flags"]["matmul.allow_tf32"] for row in found.values()} == {tf32}
    # Where nothing of a case was profiled nothing is known.
    known = {name: row["float32_precision"] for name, row in found.items()}
    assert known["axis[rows=4,tf32=False] baseline"] == known["axis[rows=4,tf32=False] v"] == "ieee"
    assert {precision for name, precision in known.items() if name.startswith("given")} == {None}
