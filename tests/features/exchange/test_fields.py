"""A record in a pytest-benchmark JSON: what goes in comes out, and what is no record is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.analyze.records import environment_columns
from pairbench.features.exchange.pytest_benchmark import (
    ENVIRONMENT_COLUMNS,
    KEY,
    RUN_COLUMNS,
    extra_info_of,
    is_ours,
    machine_info_of,
    record_of,
    run_info_of,
)
from pairbench.model.environment import Device, Environment
from pairbench.model.record import Record, columns
from pairbench.store.reader import read_frame, read_run
from tests.builders import ended, make_run

REFERENCE = Path(__file__).parents[3] / "results" / "reference"


def there_and_back(record: Record) -> Record:
    """Return a record after its way through a file."""
    parts = (extra_info_of(record), machine_info_of(record), run_info_of(record))
    extra, machine, run = json.loads(json.dumps(parts, allow_nan=False))
    assert is_ours(extra, {KEY: machine})
    return record_of(extra, machine, run)


def test_made_up_records_come_back() -> None:
    records = make_run()
    failed = ended(records[0], "failed", "out of luck")
    assert [there_and_back(record) for record in (*records, failed)] == [*records, failed]


@pytest.mark.slow
def test_real_records_come_back() -> None:
    """Of every ninth reference run: with kernels, launches, device latencies and all that went wrong."""
    run_ids = sorted(set(read_frame(REFERENCE, columns=["run_id"]).value.run_id))
    records = [record for run_id in run_ids[::9] for record in read_run(REFERENCE, run_id).value]
    assert len(records) > 100
    assert [there_and_back(record) for record in records] == records


def test_every_column_has_its_place() -> None:
    record = make_run()[0]
    present = {name for name in columns(Record) if getattr(record, name) is not None}
    parts = [set(extra_info_of(record)), set(machine_info_of(record)), set(run_info_of(record))]
    assert set.union(*parts) == present
    assert sum(map(len, parts)) == len(present)
    assert {*RUN_COLUMNS, *ENVIRONMENT_COLUMNS} <= set(columns(Record))


def test_values_are_plain_and_finite() -> None:
    record = replace(make_run()[0], tflops=math.inf, gbps=math.nan, round_p50_ns=(1.0, math.nan))
    extra = extra_info_of(record)
    assert "tflops" not in extra
    assert "gbps" not in extra
    assert extra["round_p50_ns"] == [1.0, None]
    assert extra["kernels"][0].keys() == {"name", "count", "total_ns"}
    assert isinstance(extra["kernels"], list)


def test_an_environment_gives_the_columns_that_its_records_have() -> None:
    environment = Environment(
        device=Device(selector="cuda:0", kind="cuda", name="NVIDIA H200", uuid="GPU-0"),
        driver="580.1",
        cuda="12.8",
        cudnn=None,
        torch="2.11.0",
        triton="3.6.0",
        python="3.12.3",
        hostname="box",
        cpu="a CPU",
        rest={"flags": {"matmul.allow_tf32": False}},
    )
    found = environment_columns(environment)
    assert tuple(found) == ENVIRONMENT_COLUMNS
    assert found["environment_hash"] == environment.hash
    assert json.loads(found["environment"]) == environment.rest
    assert machine_info_of(environment) == {name: value for name, value in found.items() if value is not None}


def test_another_device_goes_before_the_machine() -> None:
    record = make_run()[0]
    extra = extra_info_of(record) | {"device_uuid": "GPU-1"}
    assert record_of(extra, machine_info_of(record), run_info_of(record)) == replace(record, device_uuid="GPU-1")


def test_what_is_no_column_is_ignored_and_the_run_is_the_files() -> None:
    record = make_run()[0]
    extra = extra_info_of(record) | {"note": "by hand", "run_id": "another"}
    assert record_of(extra, machine_info_of(record), run_info_of(record)) == record


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
    record = make_run()[0]
    with pytest.raises(ValueError, match=message):
        record_of(extra_info_of(record) | change, machine_info_of(record), run_info_of(record))


@pytest.mark.parametrize(
    ("extra", "machine"), [({}, {KEY: {}}), ({"suite": "a.py"}, {KEY: {}}), (None, {}), (None, {KEY: "x"})]
)
def test_others_benchmarks_are_not_taken_for_ours(extra: dict[str, Any] | None, machine: dict[str, Any]) -> None:
    assert not is_ours(extra_info_of(make_run()[0]) if extra is None else extra, machine)
