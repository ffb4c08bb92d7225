import json
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.features.attempt.attempts import LastTries
from pairbench.model.record import Series
from tests.builders import make_run


def test_tries_come_back_by_project_device_and_series(tmp_path: Path) -> None:
    records = make_run(launches_per_call=3)
    LastTries(tmp_path / "one", tmp_path).keep(records)
    found = LastTries(tmp_path / "one", tmp_path).read()
    assert set(found) == {Series.of(record) for record in records}
    for record in records:
        series = Series.of(record)
        assert series is not None
        names = ("call_p50_ns", "device_p50_ns", "speedup", "launches_per_call", "definition_hash", "timer", "status")
        assert all(getattr(found[series], name) == getattr(record, name) for name in names)
        assert found[series].environment is None
    assert LastTries(tmp_path / "other", tmp_path).read() == {}
    elsewhere = [replace(record, device_name="another", launches_per_call=4) for record in records]
    LastTries(tmp_path / "one", tmp_path).keep(elsewhere)
    launches = {
        series.device_name: one.launches_per_call
        for series, one in LastTries(tmp_path / "one", tmp_path).read().items()
    }
    assert launches == {"another": 4, records[0].device_name: 3}


@pytest.mark.parametrize(
    "change", [{"call_p50_ns": "fast"}, {"launches_per_call": [1]}, {"case": None}, {"more": 1}, {}]
)
def test_a_try_that_is_not_what_it_should_be_is_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    tries, records = LastTries(tmp_path, tmp_path), make_run()
    tries.keep(records)
    (file,) = tmp_path.rglob("*.json")
    content = json.loads(file.read_text())
    first = next(iter(content["values"].values()))
    if change:
        first.update(change)
    else:
        del first["status"]
    file.write_text(json.dumps(content))
    assert len(tries.read()) == len(records) - 1
