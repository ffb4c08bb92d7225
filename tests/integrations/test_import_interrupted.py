"""An import that ends at any moment: done again it is whole, and nothing is there twice."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.features.exchange.importing import ImportedRun, Intake, Pairing, rows_of
from pairbench.features.exchange.pytest_benchmark import (
    KEY,
    ROUND_SIZES,
    extra_info_of,
    machine_info_of,
    read_benchmark_json,
)
from pairbench.store.reader import read_run, read_samples
from tests.builders import make_run
from tests.faults.kill_at import killed_at, lines_of

DATA = Path(__file__).parent / "data"
COUNTED = ("store/", "foreign/into_store")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedRun:
    """Return a file of two device models: one of pytest-benchmark's own, and one whose record is restored."""
    document = json.loads((DATA / "pytest-benchmark-5.3.1.json").read_text())
    record = make_run(rounds=2)[1]
    document["machine_info"][KEY] = machine_info_of(record)
    document["benchmarks"][0]["extra_info"] = extra_info_of(record) | {ROUND_SIZES: [20, 20]}
    path = tmp_path_factory.mktemp("files") / "saved.json"
    path.write_text(json.dumps(document))
    return rows_of(read_benchmark_json(path))


def rows(store: Path, run: ImportedRun) -> tuple[list[str], list[str]]:
    records, samples = read_run(store), read_samples(store, run.run_id)
    assert records.problems == samples.problems == ()
    return sorted(map(repr, records.value)), sorted(map(repr, samples.value))


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_at_any_line_and_done_again(tmp_path: Path, imported: ImportedRun, number: int) -> None:
    assert len({record.device_name for record in imported.records}) == 2
    Intake(tmp_path / "whole").take(imported)
    wanted = rows(tmp_path / "whole", imported)
    store = tmp_path / "store"

    def work() -> None:
        Intake(store).take(imported)

    lines = lines_of(work, *COUNTED)
    shutil.rmtree(store)
    met = 0
    for line in range(1, lines + 1, 1 + lines // 40):
        met += killed_at(line, work, *COUNTED, number=number)
        Intake(store).take(imported)
        assert rows(store, imported) == wanted, f"killed before line {line} of {lines}"
        assert Intake(store).take(imported) == imported.run_id
        shutil.rmtree(store)
    assert met >= 20


def test_samples_without_records_are_replaced_by_those_of_another_pairing(
    tmp_path: Path, imported: ImportedRun
) -> None:
    """What was imported first had no pairing, so its samples are of other implementations."""
    Intake(tmp_path).take(imported)
    for path in (tmp_path / "records").rglob("*.parquet"):
        path.unlink()
    paired = rows_of(read_benchmark_json(imported.source), Pairing(axis="way", baseline="plain"))
    assert Intake(tmp_path).take(paired) is None
    records, samples = read_run(tmp_path).value, read_samples(tmp_path, paired.run_id).value
    names = {(record.case, record.implementation) for record in records}
    assert {(row.case, row.implementation) for row in samples} <= names
    assert len(samples) == len(paired.samples)


def test_the_rest_of_a_run_joins_what_is_there(tmp_path: Path, imported: ImportedRun) -> None:
    """With another --when the same file has another run id."""
    Intake(tmp_path).take(imported)
    gone = [path for path in tmp_path.rglob("*.parquet") if "device=nvidia-h200" in str(path)]
    assert gone
    for path in gone:
        path.unlink()
    other = f"20200101T000000-{imported.run_id.partition('-')[2]}"
    again = replace(
        imported,
        run_id=other,
        records=tuple(replace(record, run_id=other) for record in imported.records),
        samples=tuple(replace(row, run_id=other) for row in imported.samples),
    )
    assert Intake(tmp_path).take(again) is None
    assert {path.stem for path in tmp_path.rglob("*.parquet")} == {imported.run_id}
    assert len(read_run(tmp_path).value) == len(imported.records)
    assert len(read_samples(tmp_path, imported.run_id).value) == len(imported.samples)


def test_two_models_whose_folder_is_the_same_are_both_kept(tmp_path: Path, imported: ImportedRun) -> None:
    alike = replace(
        imported,
        records=tuple(
            replace(record, device_name="nvidia h200" if record.device_name == "NVIDIA H200" else "NVIDIA H200")
            for record in imported.records
        ),
        samples=(),
    )
    assert Intake(tmp_path).take(alike) is None
    assert {record.device_name for record in read_run(tmp_path).value} == {"nvidia h200", "NVIDIA H200"}
