import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.analyze.records import environment_columns
from pairbench.cli.exchange import Tool, import_
from pairbench.errors import UsageError
from pairbench.features.exchange.foreign import ImportFailedError
from pairbench.features.exchange.importing import ImportedRun, Intake, Pairing, rows_of
from pairbench.features.exchange.pytest_benchmark import (
    ENVIRONMENT_COLUMNS,
    KEY,
    ROUND_SIZES,
    SAMPLES_OF,
    extra_info_of,
    is_ours,
    machine_info_of,
    read_benchmark_json,
    record_of,
    run_info_of,
)
from pairbench.model.record import Record
from pairbench.store.reader import read_run, read_samples, runs
from tests.builders import ended, make_run
from tests.in_process import call_main

DATA = Path(__file__).parent / "data"
NEW, OLD = DATA / "pytest-benchmark-5.3.1.json", DATA / "pytest-benchmark-4.0.0.json"
WAY = Pairing(axis="way", baseline="plain")
REST = '"machine_info": {}, "datetime": "2026-11-21"}'


def by_name(run: ImportedRun) -> dict[str, Record]:
    return {f"{record.case}-{record.implementation}": record for record in run.records}


def saved(path: Path) -> dict[str, dict[str, Any]]:
    return {bench["fullname"]: bench for bench in json.loads(path.read_text())["benchmarks"]}


def changed(target: Path, change: Callable[[dict[str, Any]], object], source: Path = NEW) -> Path:
    document = json.loads(source.read_text())
    change(document)
    target.write_text(json.dumps(document))
    return target


def test_each_benchmark_is_a_record() -> None:
    records = by_name(rows_of(read_benchmark_json(NEW)))
    assert set(records) == {
        *(f"test_square[n={n},way={way}]-baseline" for n in (1000, 4000) for way in ("plain", "fast")),
        *(f"test_shape[shape={shape}]-baseline" for shape in ("2x3x4", "8x8")),
        *(f"TestText.test_upper[text={text}]-baseline" for text in ("a_b-c8687a", "a_b-c14cdd")),
    }
    record = records["test_square[n=4000,way=fast]-baseline"]
    assert (record.suite, record.operator, record.mode) == ("tests/test_square.py", "test_square", "eager")
    assert json.loads(record.axes or "") == {"n": 4000, "way": "fast"}
    assert (record.status, record.timer, record.role) == ("measured", "pytest-benchmark perf_counter", "baseline")
    assert (record.definition_hash, record.implementation_hash, record.tier) == (None, None, None)


def test_latencies_are_the_files_and_a_tail_of_means_is_no_tail_of_calls() -> None:
    records = by_name(rows_of(read_benchmark_json(NEW)))
    record = records["test_square[n=4000,way=fast]-baseline"]
    stats = saved(NEW)["tests/test_square.py::test_square[fast-4000]"]["stats"]
    assert record.call_p50_ns == pytest.approx(stats["median"] * 1e9)
    assert (record.n_samples, record.n_rounds) == (stats["rounds"], 1)
    cuts = statistics.quantiles(stats["data"], n=20, method="inclusive")
    assert record.call_p95_ns == pytest.approx(cuts[-1] * 1e9)
    assert (record.round_p50_ns, record.round_p95_ns) == ((record.call_p50_ns,), (record.call_p95_ns,))
    low, high = record.call_p50_ns_low or math.inf, record.call_p50_ns_high or 0.0
    assert low <= stats["median"] * 1e9 * (1 + 1e-9) and stats["median"] * 1e9 * (1 - 1e-9) <= high
    means = records["test_shape[shape=8x8]-baseline"]
    assert saved(NEW)["tests/test_square.py::test_shape[(8, 8)]"]["stats"]["iterations"] == 20
    assert means.call_p50_ns and means.call_p50_ns_low
    assert (means.call_p95_ns, means.round_p95_ns) == (None, None)


def test_without_raw_samples_there_is_a_median_and_no_more() -> None:
    found = rows_of(read_benchmark_json(OLD))
    record = by_name(found)["test_square[n=4000,way=fast]-baseline"]
    assert record.call_p50_ns and record.n_samples == 40
    assert (record.call_p50_ns_low, record.call_p95_ns, found.samples) == (None, None, ())


def test_the_run_is_the_files() -> None:
    run, old = read_benchmark_json(NEW), read_benchmark_json(OLD)
    commit = json.loads(NEW.read_text())["commit_info"]
    assert run.origin.run_id.startswith("20261121T203126-")
    assert run.origin.started_at == "2026-11-21T20:31:26.227+00:00"
    assert old.origin.started_at == "2026-11-21T20:31:24.814+00:00"  # 4.0.0 writes UTC without saying so
    assert (run.origin.commit, run.origin.branch, run.origin.dirty) == (commit["id"], "main", False)
    assert run.origin.commit_at == "2024-03-03T10:00:00+00:00"
    assert (run.environment.device.kind, run.environment.device.name) == ("cpu", "AMD EPYC")
    assert (run.environment.python, run.environment.hostname) == ("3.11.7", "vm")


def test_what_varies_by_itself_is_no_new_environment_and_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    def elsewhere(document: dict[str, Any]) -> None:
        document["machine_info"]["cpu"]["hz_actual"] = [1, 0]
        document["datetime"] = "2026-11-22T00:00:00+00:00"
        document["commit_info"] = {"id": "unversioned", "time": None, "dirty": False, "branch": "(unknown)"}

    def another(document: dict[str, Any]) -> None:
        document["machine_info"]["release"] = "7.0"

    run, known = read_benchmark_json(changed(tmp_path / "a.json", elsewhere)), read_benchmark_json(NEW).environment
    assert run.environment.hash == known.hash
    assert read_benchmark_json(changed(tmp_path / "b.json", another)).environment.hash != known.hash
    origin = run.origin
    assert (origin.commit, origin.commit_at, origin.branch, origin.dirty) == (None, None, None, None)


def test_pairs_have_speedups() -> None:
    for path in (NEW, OLD):
        records = by_name(rows_of(read_benchmark_json(path), WAY))
        ours, theirs = records["test_square[n=4000]-fast"], records["test_square[n=4000]-baseline"]
        assert (ours.role, theirs.role, theirs.speedup) == ("variant", "baseline", None)
        assert ours.call_p50_ns and theirs.call_p50_ns
        assert ours.speedup == pytest.approx(theirs.call_p50_ns / ours.call_p50_ns)
        if path is NEW:
            low, high = ours.speedup_low or math.inf, ours.speedup_high or 0.0
            assert low < theirs.call_p50_ns / ours.call_p50_ns < high
        else:
            assert (ours.speedup_low, ours.speedup_high) == (None, None)


def test_a_latency_that_cannot_be_is_a_failure(tmp_path: Path) -> None:
    def broken(document: dict[str, Any]) -> None:
        for bench, median in zip(document["benchmarks"], (0.0, -1.0, math.nan, "fast"), strict=False):
            bench["stats"]["median"] = median
        document["benchmarks"][4]["stats"] = None

    records = rows_of(read_benchmark_json(changed(tmp_path / "a.json", broken))).records
    assert [record.status for record in records] == ["failed"] * 5 + ["measured"] * 3
    assert records[0].reason == "its median latency is 0.0 s, expected a positive number"
    assert records[0].call_p50_ns is None and records[0].timer is None


def test_functions_that_look_the_same_are_told_apart(tmp_path: Path) -> None:
    def lambdas(document: dict[str, Any]) -> None:
        for address, bench in enumerate(document["benchmarks"][:4], start=0x7F00):
            bench["params"]["way"] = f"UNSERIALIZABLE[<function <lambda> at {address:#x}>]"

    records = rows_of(read_benchmark_json(changed(tmp_path / "a.json", lambdas))).records
    cases = [record.case for record in records]
    assert len(set(cases)) == len(cases) == 8
    assert cases[0] == "test_square[id=plain-1000]"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; expected a JSON file that pytest-benchmark saved"),
        (NEW.read_text()[:5000], "is no JSON, or only a part of one"),
        ("[1, 2]", "holds a list"),
        ("{}", "has no 'benchmarks' and 'machine_info'"),
        ('{"benchmarks": []}', "has no 'machine_info', expected"),
        ((DATA / "asv" / "benchmarks.json").read_text(), "has no 'benchmarks' and 'machine_info'"),
        ('{"benchmarks": [], "machine_info": {}}', "has no 'datetime', expected a text"),
        ('{"benchmarks": [], "machine_info": {}, "datetime": "today"}', "the datetime 'today', expected ISO 8601"),
        (f'{{"benchmarks": [], {REST}', "holds no benchmark"),
        (f'{{"benchmarks": [7], {REST}', "benchmark 0 is 7, expected an object"),
        (f'{{"benchmarks": [{{}}], {REST}', "has no 'stats', expected an object"),
        (f'{{"benchmarks": [{{"stats": {{}}, "fullname": "a"}}], {REST}', "'a' is not named like a test"),
    ],
)
def test_a_file_that_is_no_such_file_is_refused_in_a_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(ImportFailedError) as caught:
        read_benchmark_json(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)
    assert "expected" in str(caught.value)


def with_ours(document: dict[str, Any]) -> None:
    """Add the fields that pairbench's plugin writes: one benchmark of three rounds, beside benchmarks without them, and one that failed."""
    record = make_run(rounds=3)[1]
    document["machine_info"][KEY] = machine_info_of(record)
    data = [1e-4 + 1e-6 * number for number in range(6)]
    document["benchmarks"][0] |= {"extra_info": extra_info_of(record) | {ROUND_SIZES: [1, 2, 3]}}
    document["benchmarks"][0]["stats"] |= {"data": data}
    document[KEY] = {"not_measured": [extra_info_of(ended(make_run()[0], "failed"))]}


def test_what_pairbench_wrote_is_restored_beside_others_benchmarks(tmp_path: Path) -> None:
    run = rows_of(read_benchmark_json(changed(tmp_path / "a.json", with_ours)))
    origin = read_benchmark_json(NEW).origin
    columns = {name: getattr(origin, name) for name in ("started_at", "commit", "commit_at", "branch", "dirty")}
    ours = [record for record in run.records if record.definition_hash]
    wanted = make_run(rounds=3, run_id=run.run_id, **columns)[1]
    assert ours == [wanted, ended(make_run(run_id=run.run_id, **columns)[0], "failed")]
    assert len(run.records) == 9
    rounds = [row.call_ns for row in run.samples if row.case == wanted.case]
    assert [len(values) for values in rounds] == [1, 2, 3]
    assert rounds[2] == pytest.approx((103_000, 104_000, 105_000))

    def on_a_gpu(document: dict[str, Any]) -> None:
        with_ours(document)
        document["benchmarks"][0]["extra_info"][SAMPLES_OF] = "device"

    # Samples of the device are not taken for those of calls.
    run = rows_of(read_benchmark_json(changed(tmp_path / "b.json", on_a_gpu)))
    assert next(record for record in run.records if record.case == wanted.case).round_p50_ns
    assert not [row for row in run.samples if row.case == wanted.case]


def test_a_part_of_what_pairbench_wrote_is_refused(tmp_path: Path) -> None:
    def torn(document: dict[str, Any]) -> None:
        with_ours(document)
        del document["machine_info"][KEY]["environment"]

    with pytest.raises(
        ImportFailedError, match="what pairbench wrote there has no environment, expected a whole record"
    ):
        read_benchmark_json(changed(tmp_path / "a.json", torn))


def test_the_same_content_is_stored_once(tmp_path: Path) -> None:
    intake = Intake(tmp_path / "s")
    first = rows_of(read_benchmark_json(NEW))
    assert intake.take(first) is None
    assert intake.take(rows_of(read_benchmark_json(NEW), WAY)) == first.run_id
    assert Intake(tmp_path / "s").take(rows_of(read_benchmark_json(NEW, at_commit=True))) == first.run_id
    assert [run.run_id for run in runs(tmp_path / "s").value] == [first.run_id]
    assert read_run(tmp_path / "s").value == tuple(sorted(first.records, key=first.records.index))
    samples = read_samples(tmp_path / "s", first.run_id).value
    assert sum(len(row.call_ns) for row in samples) == sum(bench["stats"]["rounds"] for bench in saved(NEW).values())


def test_the_command_imports_what_it_can_and_says_what_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "half.json").write_text(NEW.read_text()[:5000])
    files = [str(OLD), "half.json", str(NEW), "nowhere.json"]
    done = call_main(tmp_path, "import", "pytest-benchmark", *files, "--format", "json")
    rows = {Path(row["source"]).name: row for row in done.document["imports"]}
    assert done.code == 1
    outcomes = {name: row["outcome"] == "imported" for name, row in rows.items()}
    assert outcomes == {OLD.name: True, "half.json": False, NEW.name: True, "nowhere.json": False}
    assert "pairbench: half.json: is no JSON" in done.err
    assert "pairbench: nowhere.json: cannot be read: No such file or directory" in done.err
    assert len(runs(tmp_path / "results").value) == 2

    import_(Tool.PYTEST_BENCHMARK, [str(NEW)], store=str(tmp_path / "results"))
    again = capsys.readouterr()
    assert "in the store already" in again.out and rows[NEW.name]["run_id"] in again.out
    assert again.err == ""
    assert len(runs(tmp_path / "results").value) == 2


def test_nothing_is_stored_where_the_options_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no benchmark has such a parameter, expected one of n, shape, text, way"):
        import_(Tool.PYTEST_BENCHMARK, [str(NEW)], implementation="colour:red", store=str(tmp_path / "results"))
    assert not (tmp_path / "results").exists()


def there_and_back(record: Record, **changes: Any) -> Record:
    """Return a record after its way through a file, in which some of its own fields are others."""
    parts = (extra_info_of(record) | changes, machine_info_of(record), run_info_of(record))
    return record_of(*json.loads(json.dumps(parts, allow_nan=False)))


def test_every_column_comes_back_and_numbers_are_finite() -> None:
    record = make_run()[0]
    assert there_and_back(record) == record
    extra = extra_info_of(replace(record, tflops=math.inf, gbps=math.nan, round_p50_ns=(1.0, math.nan)))
    assert not {"tflops", "gbps"} & set(extra) and extra["round_p50_ns"] == [1.0, None]
    # What is no column is ignored, and the run is the file's.
    assert there_and_back(record, note="by hand", run_id="another") == record


def test_an_environment_gives_the_columns_that_its_records_have() -> None:
    environment = read_benchmark_json(NEW).environment
    found = environment_columns(environment)
    assert tuple(found) == ENVIRONMENT_COLUMNS
    assert found["environment_hash"] == environment.hash and json.loads(found["environment"]) == environment.rest
    assert machine_info_of(environment) == {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_rounds": "five"}, "n_rounds"),
        ({"kernels": [{"name": "a"}]}, "does not fit"),
        ({"round_p50_ns": 5}, "does not fit"),
        ({"suite": None}, "has no suite"),
        ({"status": None}, "has no status"),
        ({"torch": None}, "has no torch"),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        there_and_back(make_run()[0], **change)


@pytest.mark.parametrize(
    ("extra", "machine"), [({}, {KEY: {}}), ({"suite": "a.py"}, {KEY: {}}), (None, {}), (None, {KEY: "x"})]
)
def test_others_benchmarks_are_not_taken_for_ours(extra: dict[str, Any] | None, machine: dict[str, Any]) -> None:
    assert not is_ours(extra_info_of(make_run()[0]) if extra is None else extra, machine)
