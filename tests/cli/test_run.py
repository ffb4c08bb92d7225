"""A run from the command line to the store, on the CPU."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pairbench.model.record import Record, Samples
from pairbench.store.reader import read_run

Done = subprocess.CompletedProcess[str]
Pairbench = Callable[..., Done]


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
    assert set(document) == {"run_id", "store", "summary", "records"}
    assert "line 1999" not in fine_run.stderr and "not a message" not in fine_run.stderr


def test_the_summary_says_how_the_time_was_spent(fine: dict[str, Any]) -> None:
    summary = fine["summary"]
    assert 0 < summary["measuring_s"]["cpu"] < summary["wall_s"]
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


def test_pandas_is_enough_to_read_the_store(fine_folder: Path, fine: dict[str, Any]) -> None:
    frame = pd.read_parquet(fine_folder / "results" / "records")
    assert {item.name for item in fields(Record)} <= set(frame.columns)
    assert len(fields(Record)) == 81
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


def test_outside_a_checkout_there_is_no_commit(pairbench: Pairbench, tmp_path: Path, suites: Path) -> None:
    """A user's own file in an otherwise empty folder is all that it takes."""
    shutil.copy(suites / "slow.py", tmp_path / "my_ops.py")
    done = pairbench("run", "my_ops.py", "--store", "here", "-f", "markdown")
    assert done.returncode == 0, done.stderr
    assert "| " in done.stdout and "slow" in done.stdout
    assert ", stored in here" in done.stdout
    for closing in ("What ended the measuring: ", "Blocks measured again because the device throttled: 0"):
        assert any(line.startswith(closing) for line in done.stdout.splitlines()[-5:]), done.stdout
    frame = pd.read_parquet(tmp_path / "here" / "records")
    assert frame["commit"].isna().all() and set(frame["suite"]) == {"my_ops.py"}
    by_name = frame.set_index("implementation")
    assert 0.3 < by_name.loc["twice", "speedup"] < 0.8
    assert 0.6 < by_name.loc["same", "speedup"] < 1.6


def test_compile_pays_once(compiled: dict[str, Any], compiled_run: Done) -> None:
    """The first call holds the compilation, and the median does not."""
    assert compiled_run.returncode == 0, compiled_run.stderr
    found = row(compiled, "slow", "baseline", mode="compile")
    assert found["status"] == "measured" and found["timer"] == "perf_counter"
    assert found["first_call_ns"] > 20 * found["call_p50_ns"]
    eager = row(compiled, "slow", "baseline", mode="eager")
    assert eager["first_call_ns"] < found["first_call_ns"]


def test_operators_that_were_fused_away_are_not_counted(compiled: dict[str, Any]) -> None:
    counts = {
        (name, mode): row(compiled, "slow", name, mode=mode)["ops_per_call"]
        for name in ("baseline", "twice")
        for mode in ("eager", "compile")
    }
    assert (counts["baseline", "eager"], counts["twice", "eager"]) == (20, 40)
    assert counts["baseline", "compile"] == counts["twice", "compile"] == 0


def test_a_speedup_is_over_the_baseline_of_the_same_mode(compiled: dict[str, Any]) -> None:
    for mode in ("compile", "eager"):
        baseline, twice = (row(compiled, "slow", name, mode=mode) for name in ("baseline", "twice"))
        assert twice["speedup"] == pytest.approx(baseline["call_p50_ns"] / twice["call_p50_ns"])
