"""A run from the command line to the store, on the CPU."""

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pairbench.model.record import Record, Samples
from pairbench.store.reader import read_run
from tests.cli.conftest import RUNS, SUITES, Pairbench, records_of, settle
from tests.commands import Done, call
from tests.in_process import call_main


def row(document: dict[str, Any], operator: str, implementation: str, rows: int = 4) -> dict[str, Any]:
    """Return the record of an implementation in the case with some rows."""
    (found,) = (
        record
        for record in document["records"]
        if (record["operator"], record["implementation"]) == (operator, implementation)
        and record["axes"].get("rows", rows) == rows
    )
    return dict(found)


@pytest.fixture(scope="module")
def listed(quick: Pairbench) -> list[dict[str, Any]]:
    """Return the cases of the suites of the fine run."""
    done = quick("list", "--format", "json", *RUNS["fine"][1:])
    assert done.returncode == 0, done.stderr
    cases: list[dict[str, Any]] = json.loads(done.stdout)["cases"]
    return cases


def test_a_fine_run_has_exit_code_0_and_one_json_document_on_stdout(fine_run: Done, fine: dict[str, Any]) -> None:
    """Although a suite of it prints without end, to both streams and past Python; progress is plain lines on stderr."""
    assert fine_run.returncode == 0, fine_run.stderr
    assert fine.keys() == {"run_id", "store", "summary", "records", "notes"}
    assert "line 1999" not in fine_run.stderr and "not a message" not in fine_run.stderr
    assert "] cpu verify: shifts[" in fine_run.stderr and "\x1b" not in fine_run.stderr


def test_the_summary_says_how_the_time_was_spent(fine: dict[str, Any]) -> None:
    summary = fine["summary"]
    assert 0 < summary["measuring_s"]["cpu"] < summary["wall_s"]
    assert 0 < summary["judging_s"]["cpu"] < summary["wall_s"] - summary["measuring_s"]["cpu"]
    assert summary["measuring_fraction"]["cpu"] == pytest.approx(summary["measuring_s"]["cpu"] / summary["wall_s"])
    assert summary["interrupted"] is False and summary["remeasured_blocks"] == 0
    assert set(summary["statuses"]) == {"measured", "skipped"}
    assert set(summary["stop_reasons"]) <= {"precise", "sample_cap", "time_cap"}
    assert sum(summary["stop_reasons"].values()) == summary["statuses"]["measured"]


def test_list(listed: list[dict[str, Any]]) -> None:
    assert {row["tier"] for row in listed if row["case"].startswith("shifts")} == {"edge", "smoke", "real"}
    first = listed[0]
    assert first["implementations"] == ["baseline", "named"] and first["impostors"] == ["twice", "swapped"]
    assert first["source"] == "made up"


def test_records_are_in_the_order_of_declaration(
    fine_store: Path, fine: dict[str, Any], listed: list[dict[str, Any]]
) -> None:
    """In what is printed and in the store, whatever was timed or final first; of a case the baseline comes first."""
    planned = [(case["suite"], case["case"]) for case in listed if case["tier"] == "smoke"]
    for records in (fine["records"], pd.read_parquet(fine_store / "records").to_dict("records")):
        assert list(dict.fromkeys((record["suite"], record["case"]) for record in records)) == planned
    names = [record["implementation"] for record in fine["records"] if record["operator"] == "linear"]
    assert names == 2 * ["baseline", "transposed", "even_rows"]


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
    plain = row(fine, "syncs", "baseline")
    assert (plain["ops_per_call"], plain["peak_bytes"], plain["allocations_per_call"]) == (1, 256, 1)


def test_what_is_measured_and_what_is_skipped_with_the_variants_own_words(fine: dict[str, Any]) -> None:
    skipped = row(fine, "linear", "even_rows", rows=5)
    assert (skipped["status"], skipped["reason"]) == ("skipped", "not valid here: 5 rows are odd")
    assert row(fine, "linear", "even_rows")["status"] == "measured"
    kernel = next(record for record in fine["records"] if record["implementation"] == "kernel")
    assert kernel["status"] == "skipped" and "Triton's interpreter verified it" in kernel["reason"]
    assert kernel["margin"] == 1 and kernel["call_p50_ns"] is None
    # Impostors are the business of `verify`.
    assert row(fine, "impostor_passes", "good")["status"] == "measured"
    assert {record["tier"] for record in fine["records"]} == {"smoke"}
    assert row(fine, "shifts", "baseline")["speedup"] is None


def test_pandas_is_enough_to_read_the_store(fine_store: Path, fine: dict[str, Any]) -> None:
    frame = pd.read_parquet(fine_store / "records")
    assert {item.name for item in fields(Record)} <= set(frame.columns)
    assert len(fields(Record)) == 140
    assert len(frame) == len(fine["records"])
    assert set(frame["run_id"]) == {fine["run_id"]}
    measured = frame[frame["status"] == "measured"]
    assert (measured["call_p50_ns"] > 0).all() and len(measured) == fine["summary"]["statuses"]["measured"]


def test_one_file_a_dataset_is_left_and_reads_back_as_records(fine_store: Path, fine: dict[str, Any]) -> None:
    found = sorted(str(path.relative_to(fine_store)) for path in fine_store.rglob("*") if path.is_file())
    assert [name.split("/")[0] for name in found] == ["records", "samples"]
    assert all(name.endswith(f"/{fine['run_id']}.parquet") for name in found)
    reading = read_run(fine_store)
    assert not reading.problems
    assert {(record.case, record.implementation, record.status) for record in reading.value} == {
        (record["case"], record["implementation"], record["status"]) for record in fine["records"]
    }


def test_the_samples_are_stored_and_give_the_records_numbers(fine_store: Path, fine: dict[str, Any]) -> None:
    (file,) = (fine_store / "samples").rglob("*.parquet")
    assert set(pq.read_schema(file).names) == {item.name for item in fields(Samples)}
    frame = pd.read_parquet(fine_store / "samples")
    record = row(fine, "shifts", "named")
    (samples,) = frame[(frame["case"] == record["case"]) & (frame["implementation"] == "named")].to_dict("records")
    assert len(samples["call_ns"]) == record["n_samples"] == len(samples["position"]) == len(samples["at_ns"])
    assert pd.Series(samples["call_ns"]).median() == record["call_p50_ns"]
    assert list(samples["at_ns"]) == sorted(samples["at_ns"])
    assert not any(samples["throttled"])
    for _, group in frame.groupby("case"):  # in a block everybody has another position
        for positions in zip(*group["position"], strict=True):
            assert sorted(positions) == list(range(len(group)))


def test_the_environment_is_kept(fine: dict[str, Any]) -> None:
    environment = fine["records"][0]["environment"]
    assert environment["flags"]["matmul.allow_tf32"] is False
    assert {"variables", "cores", "packages", "observed", "kernel"} <= set(environment)
    assert environment["observed"]["ceilings"]["copy_gbps"] > 0
    assert len({record["environment_hash"] for record in fine["records"]}) == 1


BUSY = "cores are busy with other work: latencies of this run are not to be believed"


def test_on_a_loaded_host_a_users_own_file_in_a_folder_of_its_own(tmp_path: Path, fine_run: Done) -> None:
    """No checkout, nothing of ours, and no commit to tell; the load is said once, first, and recorded."""
    assert "busy" not in fine_run.stderr, "an idle host is no news"
    environment = {**settle(tmp_path), "TESTS_HOST_LOAD": "0.9"}
    shutil.copy(SUITES / "slow.py", tmp_path / "my_ops.py")
    done = call(tmp_path, environment, "run", "my_ops.py", "--device", "cpu", "--store", "here", "--format", "json")
    assert [BUSY in line for line in done.stderr.splitlines()].index(True) == 0, done.stderr
    assert done.stderr.count(BUSY) == 1
    document = json.loads(done.stdout)
    load = document["summary"]["host_load"]["cpu"]
    assert BUSY in load["remark"] and len(load["rounds"]) == 1
    assert all(record["call_p50_ns"] for record in document["records"]), "nothing that was measured is dropped"
    assert {record["environment"]["observed"]["load"]["before"] for record in document["records"]} == {load["before"]}
    records = read_run(tmp_path / "here").value
    assert {(record.suite, record.commit, record.status) for record in records} == {("my_ops.py", None, "measured")}
    shown = call_main(tmp_path, "show", "--store", "here")
    assert BUSY in shown.out and "withheld" in shown.out


@pytest.mark.slow
def test_compile_pays_once_and_fuses(tmp_path: Path, pairbench: Pairbench) -> None:
    shutil.copy(SUITES / "slow.py", tmp_path / "my_ops.py")
    modes = ("--mode", "compile", "--mode", "eager", "-i", "twice", "--rounds", "2")
    records = records_of(pairbench("run", "my_ops.py", "--device", "cpu", "--format", "json", *modes))
    found = {(record["implementation"], record["mode"]): record for record in records}
    compiled, eager = found["baseline", "compile"], found["baseline", "eager"]
    assert compiled["timer"] == "perf_counter"
    assert compiled["first_call_ns"] > max(20 * compiled["call_p50_ns"], eager["first_call_ns"])
    assert (eager["ops_per_call"], found["twice", "eager"]["ops_per_call"]) == (20, 40)
    assert compiled["ops_per_call"] == found["twice", "compile"]["ops_per_call"] == 0, "what was fused is not counted"
    for mode in ("compile", "eager"):  # a speedup is over the baseline of the same mode
        baseline, twice = found["baseline", mode], found["twice", mode]
        assert twice["speedup"] == pytest.approx(baseline["call_p50_ns"] / twice["call_p50_ns"])


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
    """Return whether TF32 was asked for, and the records of implementations by case and name: of all, or of two cases."""
    folder = tmp_path_factory.mktemp("precise")
    (folder / "precise.py").write_text(_PRECISION)
    suites = (
        ["precise.py"] if request.param == "--tf32" else ["precise.py::setting", "precise.py::axis[rows=4,tf32=True]"]
    )
    done = call(folder, settle(folder), "run", *suites, "--device", "cpu", "--format", "json", request.param)
    found = json.loads(done.stdout)
    # A CPU has no TF32, so there is nothing to say.
    assert found["notes"] == [] and done.returncode == 1
    return request.param == "--tf32", {f"{row['case']} {row['implementation']}": row for row in found["records"]}


def test_a_case_or_else_the_option_pins_the_precision(precise: tuple[bool, dict[str, Any]]) -> None:
    tf32, found = precise
    statuses = {name: row["status"] for name, row in found.items() if row["role"] == "variant"}
    both = {"axis[rows=4,tf32=True] v": "mismatched", "setting[rows=4] v": "mismatched" if tf32 else "measured"}
    pinned = ("axis[rows=4,tf32=False] v", "given[tf32=True] v", "given[tf32=False] v")
    assert statuses == both | (dict.fromkeys(pinned, "measured") if tf32 else {})


def test_the_precision_of_a_case_is_recorded_and_its_environment_is_the_runs(
    precise: tuple[bool, dict[str, Any]],
) -> None:
    tf32, found = precise
    assert len({row["environment_hash"] for row in found.values()}) == 1
    assert {row["environment"]["flags"]["matmul.allow_tf32"] for row in found.values()} == {tf32}
    # Where nothing of a case was profiled nothing is known.
    known = {name: row["float32_precision"] for name, row in found.items()}
    plain = "axis[rows=4,tf32=False]" if tf32 else "setting[rows=4]"
    assert known[f"{plain} baseline"] == known[f"{plain} v"] == "ieee"
    assert {precision for name, precision in known.items() if name.startswith("given")} == ({None} if tf32 else set())


def test_modules_that_a_suite_makes_as_it_is_imported_are_the_same_in_every_process(tmp_path: Path) -> None:
    """The default seed of torch is drawn anew in each interpreter, and a lazy module gets its weights in its first call."""
    settings = settle(tmp_path)
    del settings["PAIRBENCH_WORKERS"]  # new interpreters time on a CPU
    (tmp_path / "modules.py").write_text(
        "import torch\nfrom pairbench import Operator, grid\n\n"
        "LINEAR = torch.nn.Linear(8, 8).requires_grad_(False)\nLAZY = torch.nn.LazyLinear(8)\n\n\n"
        "def lazy(x):\n    with torch.no_grad():\n        return LAZY(x)\n\n\n"
        "for name, module in (('linear', lambda x: LINEAR(x)), ('lazy', lazy)):\n"
        "    globals()[name + '_op'] = Operator(name, baseline=module, variants={'same': lambda x, m=module: m(x)},\n"
        "        inputs=lambda make, n: {'x': make.normal(n, 8)}, cases=grid(n=[4]))\n"
    )
    done = call(tmp_path, settings, "run", "modules.py", "--device", "cpu", "--format", "json")
    records = json.loads(done.stdout)["records"]
    assert {(row["operator"], row["status"]) for row in records} == {("linear", "measured"), ("lazy", "measured")}, done
