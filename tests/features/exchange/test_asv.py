import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairbench.cli.exchange import Tool, import_
from pairbench.cli.stored import trend
from pairbench.errors import UsageError
from pairbench.features.exchange.foreign import ForeignRun, ImportFailedError
from pairbench.features.exchange.importing import find_results, read_asv_file, rows_of
from pairbench.model.record import Record
from pairbench.store.reader import read_run, runs
from tests.in_process import call_main

DATA = Path(__file__).parent / "data" / "asv"
NEWER = next((DATA / "box").glob("68433e35-*.json"))


def read(path: Path = NEWER, **options: bool) -> ForeignRun:
    return read_asv_file(path, find_results(path.parent)[1], **options)


def row_of(name: str) -> dict[str, Any]:
    document = json.loads(NEWER.read_text())
    return dict(zip(document["result_columns"], document["results"][name], strict=False))


def records() -> dict[str, Record]:
    return {f"{record.case}-{record.implementation}": record for record in rows_of(read()).records}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "asv"))


def test_a_folder_is_found_from_above_and_from_within() -> None:
    found = find_results(DATA)
    assert [file.parent.name for file in found[0]] == ["box", "box"]
    assert "square.Square.time_square" in found[1]
    assert find_results(DATA / "box") == found


def test_each_value_is_a_record() -> None:
    found = records()
    assert set(found) == {
        *(f"Square.time_square[n={n},way={way}]-baseline" for n in (1000, 4000) for way in ("plain", "fast")),
        *(f"{name}[]-baseline" for name in ("time_skipped", "time_broken", "time_call", "peakmem_list")),
    }
    record = found["Square.time_square[n=4000,way=fast]-baseline"]
    row = row_of("square.Square.time_square")
    assert row["params"] == [["<function plain>", "<function fast>"], ["1000", "4000"]]
    assert (record.suite, record.operator, record.timer) == ("square.py", "Square.time_square", "asv")
    assert record.call_p50_ns == pytest.approx(row["result"][3] * 1e9)
    assert (record.n_samples, record.n_rounds, record.round_p50_ns) == (4, 1, (record.call_p50_ns,))
    assert record.definition_hash == row["version"]
    assert record.implementation_hash is None


def test_peaks_of_memory_join_the_latency_of_the_same_name() -> None:
    found = records()
    peaks = row_of("square.Square.peakmem_square")["result"]
    assert found["Square.time_square[n=4000,way=fast]-baseline"].peak_bytes == peaks[3]
    alone = found["peakmem_list[]-baseline"]
    assert (alone.status, alone.peak_bytes) == ("skipped", row_of("square.peakmem_list")["result"][0])
    assert "no time_* of the same name" in (alone.reason or "")


def test_failed_and_skipped_benchmarks_come_back_as_such_and_single_calls_have_a_tail() -> None:
    found = records()
    broken, skipped = found["time_broken[]-baseline"], found["time_skipped[]-baseline"]
    assert (broken.status, broken.reason) == ("failed", "asv has no result for it: it failed, or took too long")
    assert (skipped.status, skipped.call_p50_ns) == ("skipped", None)
    assert found["time_call[]-baseline"].call_p95_ns is not None
    assert found["Square.time_square[n=4000,way=fast]-baseline"].call_p95_ns is None


def test_the_run_is_the_files_and_what_is_left_out_is_named() -> None:
    run = read()
    assert Counter(run.left_out) == {"square.Square.track_length": 4, "square.mem_list": 1}
    assert run.origin.run_id.startswith("20261121T")
    assert run.origin.started_at > "2026-11-21"
    assert run.origin.commit == "68433e358a66b87835cdb3f48cea9a61f6c93491"
    assert (run.origin.commit_at, run.origin.branch) == ("2024-03-02T10:00:00+00:00", None)
    assert run.origin.dirty is None  # an existing environment: asv did not check the code out
    assert (run.environment.device.name, run.environment.hostname) == ("A CPU", "box")


def test_a_run_can_count_as_made_when_its_commit_was() -> None:
    measured, run = read(), read(at_commit=True)
    assert run.origin.started_at == "2024-03-02T10:00:00.000+00:00"
    assert run.environment.rest["observed"] == {"measured_at": measured.origin.started_at}
    assert run.environment.hash == measured.environment.hash


def test_without_the_list_of_benchmarks_prefixes_tell(copied: Path) -> None:
    (copied / "benchmarks.json").unlink()
    run = read_asv_file(copied / "box" / NEWER.name, find_results(copied)[1])
    assert Counter(run.left_out) == Counter(read().left_out)
    cases = {record.case for record in rows_of(run).records}
    assert "Square.time_square[param1=fast,param2=4000]" in cases


def test_shortened_rows_are_read(copied: Path) -> None:
    """What asv writes where a benchmark has no samples: a row ends where only nulls would follow."""
    document = json.loads(NEWER.read_text())
    document["results"] = {name: row[:5] for name, row in document["results"].items()}
    (copied / "box" / NEWER.name).write_text(json.dumps(document))
    run = rows_of(read(copied / "box" / NEWER.name))
    timed = [record for record in run.records if record.call_p50_ns is not None]
    assert len(timed) == 5 and run.samples == ()
    assert all(record.call_p50_ns_low is None and record.n_samples is None for record in timed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "is of version 1, expected a result file of asv (api version 2); `asv update`"),
        ({"version": None}, "is of version None"),
        ({"results": []}, "has [] as 'results', expected an object"),
        ({"results": {}}, "holds no time_* or peakmem_* benchmark"),
        ({"results": {"a.time_b": 7}}, "has 7 for 'a.time_b', expected a list"),
        ({"results": {"a.time_b": [[1.0, 2.0], [["1"]]]}}, "has 2 of 'result' for 'a.time_b', expected 1"),
        ({"results": {"a.time_b": [[1.0], 7]}}, "has the params 7 for 'a.time_b', expected lists"),
        ({"date": "yesterday"}, "'date' is 'yesterday', expected milliseconds since 1970"),
    ],
)
def test_a_file_that_is_no_such_file_is_refused_in_a_sentence(
    copied: Path, change: dict[str, Any], message: str
) -> None:
    path = copied / "box" / NEWER.name
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ImportFailedError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)


def test_a_folder_without_results_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ImportFailedError, match="holds no results, expected asv's results_dir"):
        find_results(tmp_path)
    with pytest.raises(ImportFailedError, match="is no folder, expected asv's results_dir"):
        find_results(tmp_path / "nowhere")


def test_the_command_asks_for_the_order_and_imports_what_it_can(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="1 of 2 runs were measured before one of an earlier commit, so nothing was"):
        import_(Tool.ASV, [str(copied)], store=str(tmp_path / "results"))
    assert not (tmp_path / "results").exists()

    (copied / "box" / "half.json").write_text(NEWER.read_text()[:500])
    arguments = ["import", "asv", "asv", "empty", "--when", "committed", "--device-name", "NVIDIA H200"]
    done = call_main(tmp_path, *arguments, "--implementation", "way:plain", "--format", "json")
    assert done.code == 1
    assert [row["outcome"] for row in done.document["imports"]] == ["imported"] * 2 + ["not imported"] * 2
    assert "half.json: is no JSON, or only a part of one" in done.err
    assert "empty: is no folder" in done.err
    assert "10 values left out" in done.err and "square.Square.track_length (8)" in done.err
    found = runs(tmp_path / "results").value
    assert [run.commit and run.commit[:8] for run in found] == ["68433e35", "e0b4390f"]  # the newest first
    assert {record.device_name for record in read_run(tmp_path / "results").value} == {"NVIDIA H200"}

    trend("n=1000]-fast", output="json", store=str(tmp_path / "results"))
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["commit"][:8] for point in points] == ["e0b4390f", "68433e35"]
