import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.features.exchange.foreign import Result, Timing, told_apart
from pairbench.features.exchange.importing import (
    NOT_IMPORTED,
    ImportedRun,
    Intake,
    Pairing,
    import_runs,
    order_interval,
    rows_of,
)
from pairbench.features.exchange.pytest_benchmark import KEY, read_benchmark_json
from pairbench.store.reader import read_run, read_samples
from tests.faults.imports import benchmark_document


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedRun:
    """Return a file of two device models: one of pytest-benchmark's own, and one whose record is restored."""
    document = benchmark_document()
    del document[KEY]
    path = tmp_path_factory.mktemp("files") / "saved.json"
    path.write_text(json.dumps(document))
    return rows_of(read_benchmark_json(path))


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
    folders = {path.parent for path in (tmp_path / "records").rglob("*.parquet")}
    month = f"month={imported.run_id[:4]}-{imported.run_id[4:6]}"
    assert folders == {tmp_path / "records" / f"device={slug}" / month for slug in ("amd-epyc", "nvidia-h200")}
    for path in tmp_path.rglob("device=nvidia-h200/*/*.parquet"):
        path.unlink()
    other = f"20200101T000000-{imported.run_id.partition('-')[2]}"
    again = imported._replace(
        run_id=other,
        records=tuple(replace(record, run_id=other) for record in imported.records),
        samples=tuple(replace(row, run_id=other) for row in imported.samples),
    )
    assert Intake(tmp_path).take(again) is None
    assert {path.stem for path in tmp_path.rglob("*.parquet")} == {imported.run_id}
    assert len(read_run(tmp_path).value) == len(imported.records)
    assert len(read_samples(tmp_path, imported.run_id).value) == len(imported.samples)


def test_two_models_whose_folder_is_the_same_are_both_kept(tmp_path: Path, imported: ImportedRun) -> None:
    alike = imported._replace(
        records=tuple(
            replace(record, device_name="nvidia h200" if record.device_name == "NVIDIA H200" else "NVIDIA H200")
            for record in imported.records
        ),
        samples=(),
    )
    assert Intake(tmp_path).take(alike) is None
    assert {record.device_name for record in read_run(tmp_path).value} == {"nvidia h200", "NVIDIA H200"}


def result(*axes: tuple[str, str | int], label: str = "", p50_ns: float = 1000.0) -> Result:
    timing = Timing(timer="asv", p50_ns=p50_ns, n_samples=1)
    return Result(suite="square.py", operator="square", axes=tuple(sorted(axes)), label=label, timing=timing)


@pytest.mark.parametrize("text", [":plain", "way:", ""])
def test_a_pairing_names_its_axis(text: str) -> None:
    with pytest.raises(UsageError, match="expected AXIS or AXIS:BASELINE"):
        Pairing.parse(text)


@pytest.mark.parametrize(
    ("ways", "text", "message"),
    [
        (("plain", "fast"), "colour:plain", "no benchmark has such a parameter, expected one of n, way"),
        (("plain", "fast"), "way:slow", "it never is 'slow'.* with one of fast, plain"),
        (("plain", "fast"), "way", "it never is 'baseline'"),
        (("plain", "baseline"), "way:plain", "what the baseline is called here"),
    ],
)
def test_a_pairing_that_pairs_nothing_or_has_two_baselines_is_refused(
    ways: tuple[str, ...], text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Pairing.parse(text).check({"way": {*ways}, "n": {"4"}})
    Pairing.parse("way").check({"way": {"baseline", "plain"}})


def test_what_cannot_be_read_is_not_the_fault_of_a_pairing(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.json")
    (row,) = import_runs(str(tmp_path / "store"), "pytest-benchmark", [absent], implementation="way:plain")
    assert row["outcome"] == NOT_IMPORTED and "cannot be read" in row["reason"]


def test_equal_cases_are_told_apart_by_their_labels_and_once() -> None:
    twins = [result(("way", "lambda-1"), label=label) for label in ("<lambda>0", "<lambda>1", "<lambda>1")]
    kept, twice = told_apart([*twins, result(("way", "plain"), label="plain")])
    assert [item.axes[0][0] for item in kept] == ["id", "id", "way"]
    assert len({item.axes for item in kept}) == 3
    assert twice == ("square.py::square[<lambda>1]",)
    kept, twice = told_apart([result(("n", 1)), result(("n", 1))])
    assert [item.axes for item in kept] == [(("n", 1),)] and len(twice) == 1


def test_the_interval_of_a_percentile_covers_it() -> None:
    """95 % of the time, as for any distribution: here of 400 samples of each of 1000 processes."""
    rng = random.Random(1)
    for q, truth in ((50, 0.5), (95, 0.95)):
        found = [order_interval([rng.random() for _ in range(400)], q) for _ in range(1000)]
        assert all(low <= estimate <= high for estimate, low, high in found)
        assert 0.93 <= sum(low <= truth <= high for _, low, high in found) / len(found) <= 0.985


def test_the_interval_of_six_samples_is_all_of_them_and_fewer_have_none() -> None:
    assert order_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0], 50) == (3.5, 1.0, 6.0)
    for few in ([3.0, 1.0, 2.0, 5.0, 4.0], [1.0]):
        estimate, low, high = order_interval(few, 50)
        assert estimate == sorted(few)[len(few) // 2] and math.isnan(low) and math.isnan(high)
