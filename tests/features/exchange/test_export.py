import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.cli.exchange import Form, export
from pairbench.errors import UsageError
from pairbench.features.exchange.importing import Intake, Pairing, rows_of
from pairbench.features.exchange.pytest_benchmark import (
    SAMPLES_OF,
    STATS_OF,
    benchmark_document,
    csv_of,
    read_benchmark_json,
    stats_of,
)
from pairbench.model.record import CALL, Record, Samples, columns, result_of
from pairbench.report.render import to_json
from pairbench.store.reader import read_run, read_samples, runs
from tests.builders import ended, make_run, make_samples, write_runs
from tests.commands import ROOT, call
from tests.integrations.pytest_project import own_environment

REFERENCE = ROOT / "results" / "reference"
DATA = Path(__file__).parent / "data"


def there_and_back(
    records: tuple[Record, ...], samples: tuple[Samples, ...], folder: Path
) -> tuple[tuple[Record, ...], tuple[Samples, ...]]:
    path = folder / "run.json"
    path.write_text(to_json(benchmark_document(records, samples)[0]))
    found = rows_of(read_benchmark_json(path))
    return found.records, found.samples


def their_stats(data: list[float]) -> Any:
    from pytest_benchmark import stats

    module: Any = stats  # it has no types
    found = module.Stats()
    for value in data:
        found.update(value)
    return found


def by_place(record: Record) -> tuple[str, ...]:
    return tuple(str(name) for name in (record.suite, record.case, record.implementation, record.mode, record.timer))


def test_real_runs_come_back(tmp_path: Path) -> None:
    for run in runs(REFERENCE).value[::30]:
        records, samples = read_run(REFERENCE, run.run_id).value, read_samples(REFERENCE, run.run_id).value
        restored, sampled = there_and_back(records, samples, tmp_path)
        assert sorted(restored, key=by_place) == sorted(records, key=by_place)
        kept = {(row.case, row.implementation, row.mode, row.round): len(row.call_ns) for row in sampled}
        # The file has the samples of each result; those of the device alone are no samples of calls to restore, and what was refused has no result.
        of_calls = {
            (one.case, one.implementation, one.mode)
            for one in records
            if result_of(one) is CALL and one.call_p50_ns is not None
        }
        assert {place[:3] for place in kept} <= of_calls
        whole = {(row.case, row.implementation, row.mode) for row in samples} & of_calls
        assert not whole or kept  # throttled ones that were measured again are no longer there
        all_of = {(row.case, row.implementation, row.mode, row.round): len(row.call_ns) for row in samples}
        assert kept.keys() <= all_of.keys()
        assert all(count <= all_of[place] for place, count in kept.items())


def test_records_without_a_latency_are_named_and_come_back(tmp_path: Path) -> None:
    fine, wrong = make_run()[:2]
    whole = ended(fine, "failed", "the suite could not be loaded")
    nameless = dict.fromkeys(("operator", "case", "axes", "dtype", "implementation", "role", "mode", "definition_hash"))
    broken = replace(whole, suite="suites/gone.py", **nameless)  # type: ignore[arg-type]
    records = (fine, ended(wrong, "failed"), broken)
    document, not_measured = benchmark_document(records, ())
    assert not_measured == ("rms_norm[dtype=bfloat16,tokens=1024]-fused-eager (failed)", "suites/gone.py (failed)")
    assert [item["name"] for item in document["benchmarks"]] == ["rms_norm[dtype=bfloat16,tokens=1024]-baseline-eager"]
    assert there_and_back(records, (), tmp_path)[0] == records


def test_runs_on_several_devices_come_back(tmp_path: Path) -> None:
    records = (*make_run(), *make_run(device_uuid="GPU-1", driver="590.2", environment_hash="a" * 16))
    restored, _ = there_and_back(records, (), tmp_path)
    assert restored == records
    names = [item["fullname"] for item in benchmark_document(records, ())[0]["benchmarks"]]
    assert len(set(names)) == len(names) == 8
    assert names[0].endswith("-baseline-eager (GPU-0)") and names[-1].endswith("-fused-eager (GPU-1)")


def exported(record: Record, *samples: Samples) -> dict[str, Any]:
    (item,) = benchmark_document((record,), samples)[0]["benchmarks"]
    return dict(item)


def test_a_benchmark_is_named_for_pytest_benchmark() -> None:
    record = make_run(axes='{"dtype": "bfloat16", "tokens": 1024}')[1]
    item = exported(record)
    assert item["fullname"] == "suites/norm.py::rms_norm[dtype=bfloat16,tokens=1024]-fused-eager"
    assert item["group"] == record.case
    assert item["params"] == {"dtype": "bfloat16", "tokens": 1024, "implementation": "fused", "mode": "eager"}


def test_stats_are_of_the_samples_without_those_that_were_measured_again() -> None:
    record = make_run(rounds=2)[0]
    second = make_samples(record, (3000.0, 9000.0, 5000.0), round=1, throttled=(False, True, False))
    item = exported(record, make_samples(record, (1000.0, 2000.0)), second)
    assert item["extra_info"][STATS_OF] == "samples"
    assert item["stats"]["data"] == pytest.approx([1e-6, 2e-6, 3e-6, 5e-6])
    assert (item["stats"]["median"], item["stats"]["rounds"]) == (pytest.approx(2.5e-6), 4)


@pytest.mark.parametrize(("kind", "result"), [("cuda", "device"), ("cpu", "call")])
def test_stats_are_of_the_device_on_a_gpu_and_of_calls_on_a_cpu(kind: str, result: str) -> None:
    record = replace(make_run(rounds=1)[0], device_kind=kind, device_p50_ns=500.0, device_round_p50_ns=(500.0,))
    item = exported(record, make_samples(record, (1000.0, 2000.0), device_ns=(400.0, 600.0)))
    assert item["stats"]["data"] == pytest.approx({"device": [4e-7, 6e-7], "call": [1e-6, 2e-6]}[result])
    assert item["extra_info"][SAMPLES_OF] == result and item["extra_info"]["call_p50_ns"] == record.call_p50_ns
    pruned = exported(record)
    middle = 5e-7 if result == "device" else (record.call_p50_ns or 0) / 1e9
    assert pruned["stats"]["median"] == pytest.approx(middle) and pruned["extra_info"][SAMPLES_OF] == result


def test_stats_are_of_rounds_where_samples_are_gone_and_say_so() -> None:
    record = make_run(rounds=3)[0]
    item, rounds = exported(record), [ns / 1e9 for ns in record.round_p50_ns or ()]
    assert item["extra_info"][STATS_OF] == "round_p50_ns" and "data" not in item["stats"]
    stats = item["stats"]
    assert (stats["rounds"], stats["min"], stats["max"]) == pytest.approx((3, min(rounds), max(rounds)))
    old = replace(record, round_p50_ns=None)
    stats = exported(old)["stats"]
    assert (stats["rounds"], stats["median"]) == (1, pytest.approx((old.call_p50_ns or 0) / 1e9))


@given(data=st.lists(st.floats(min_value=1e-9, max_value=1e3), min_size=1, max_size=40))
def test_stats_are_those_of_pytest_benchmark(data: list[float]) -> None:
    theirs, ours = their_stats(data), stats_of(data)
    for name in ("min", "max", "mean", "stddev", "median", "q1", "q3", "iqr", "ops", "total", "rounds"):
        assert ours[name] == pytest.approx(getattr(theirs, name), rel=1e-6, abs=1e-12 * max(data)), name
    assert set(ours) == {*theirs.fields, "iterations"}


def test_outliers_are_those_of_pytest_benchmark() -> None:
    data = np.random.default_rng(0).lognormal(0, 1, 501).tolist()
    theirs, ours = their_stats(data), stats_of(data)
    for name in ("iqr_outliers", "stddev_outliers", "outliers", "ld15iqr"):
        assert ours[name] == getattr(theirs, name), name
    # Not compared: versions of pytest-benchmark disagree on this one.
    assert ours["hd15iqr"] == max(value for value in data if value <= ours["q3"] + 1.5 * ours["iqr"])


def test_csv_has_every_column_and_counts_stay_whole() -> None:
    records = (
        make_run()[0],
        replace(make_run()[1], launches_per_call=None, kernels=None, reason='with "quotes",\nand'),
    )
    rows = list(csv.DictReader(io.StringIO(csv_of(records))))
    assert list(rows[0]) == list(columns(Record))
    assert rows[0]["launches_per_call"] == "6"
    assert rows[1]["launches_per_call"] == rows[1]["kernels"] == rows[0]["speedup"] == ""
    assert rows[1]["reason"] == 'with "quotes",\nand'
    assert tuple(json.loads(rows[0]["round_p50_ns"])) == records[0].round_p50_ns
    assert json.loads(rows[0]["kernels"])[0]["name"] == "baseline_kernel"
    assert float(rows[0]["call_p50_ns"]) == records[0].call_p50_ns


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_runs(tmp_path / "results", make_run(0), make_run(1, slower={"fused": 1.5}))
    return tmp_path


def test_pytest_benchmark_compares_two_exported_runs(store: Path) -> None:
    ids = [run.run_id for run in runs(store / "results").value]
    for name, run_id in (("now.json", ids[0]), ("before.json", ids[1])):
        export(Form.PYTEST_BENCHMARK, run_id, target=str(store / name), store=str(store / "results"))
    arguments = ("compare", "before.json", "now.json", "--group-by=fullname")
    done = call(store, own_environment(store), *arguments, module="pytest_benchmark")
    assert done.returncode == 0, done.stderr
    assert "rms_norm[dtype=bfloat16,tokens=4096]-fused-eager" in done.stdout
    assert done.stdout.count(": 2 tests") == 4

    run = rows_of(read_benchmark_json(store / "now.json"))
    assert Intake(store / "results").take(run) == ids[0]  # it is there already
    assert Intake(store / "other").take(run) is None
    assert read_run(store / "other").value == read_run(store / "results").value


def test_pytest_compares_its_benchmarks_with_an_exported_run_and_what_it_saves_is_imported(store: Path) -> None:
    """`--benchmark-compare` joins by full name; the name is made that of a test, which takes far longer."""
    document, _ = benchmark_document(make_run(), ())
    document["benchmarks"][0]["fullname"] = "test_wait.py::test_wait[torch]"
    (store / "run.json").write_text(to_json(document))
    (store / "test_wait.py").write_text(
        "import pytest, time\n"
        "@pytest.mark.parametrize('backend', ['torch', 'sleepless'])\n"
        "def test_wait(benchmark, backend):\n"
        "    benchmark.pedantic(time.sleep, args=(0.02 if backend == 'torch' else 0.01,), rounds=3)\n"
    )
    options = ["--benchmark-compare=run.json", "--benchmark-compare-fail=median:10%", "--benchmark-json=saved.json"]
    done = call(store, own_environment(store), "-q", "-p", "no:xdist", *options, module="pytest")
    assert done.returncode == 1
    assert "Comparing against benchmarks from: run.json" in done.stdout + done.stderr
    assert "Performance has regressed" in done.stdout + done.stderr
    saved = rows_of(read_benchmark_json(store / "saved.json"), Pairing(axis="backend", baseline="torch")).records
    (speedup,) = [record.speedup for record in saved if record.implementation == "sleepless"]
    assert speedup and 1.2 < speedup < 3 and len(saved) == 2


def test_csv_takes_several_runs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(Form.CSV, "last:2", target=None, store=str(store / "results"))
    assert len({row["run_id"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}) == 2


@pytest.mark.parametrize(
    ("form", "run", "target", "message"),
    [
        (Form.PYTEST_BENCHMARK, "last:2", None, r"'last:2' is 2 runs \([^.]*\), and"),
        (Form.CSV, "nonsense", None, "'nonsense' names no run of store"),
        (Form.CSV, "latest", "nowhere/run.csv", "cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_exported_is_said_in_a_sentence(
    store: Path, form: Form, run: str, target: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export(form, run, target=target, store=str(store / "results"))


def test_imported_benchmarks_can_be_exported(tmp_path: Path) -> None:
    run = rows_of(read_benchmark_json(DATA / "pytest-benchmark-5.3.1.json"))
    restored, samples = there_and_back(run.records, run.samples, tmp_path)
    assert restored == run.records
    assert [row.call_ns for row in samples] == [pytest.approx(row.call_ns) for row in run.samples]
