"""A run on a host that has other work to do says so first, in its summary, and with every record."""

import json
from pathlib import Path

from tests.cli.conftest import SUITES, settle
from tests.commands import call

SUITE = f"{SUITES}/good.py::shifts"
WARNING = "cores are busy with other work: latencies of this run are not to be believed"


def test_a_loaded_host_is_said_and_recorded(tmp_path: Path) -> None:
    environment = {**settle(tmp_path), "TESTS_HOST_LOAD": "0.9"}
    done = call(tmp_path, environment, "run", SUITE, "--device", "cpu", "--format", "json")
    assert [WARNING in line for line in done.stderr.splitlines()].index(True) == 0, done.stderr
    assert done.stderr.count(WARNING) == 1
    document = json.loads(done.stdout)
    load = document["summary"]["host_load"]["cpu"]
    assert WARNING in load["remark"] and len(load["rounds"]) == 1
    timed = [row for row in document["records"] if row["status"] == "measured"]
    assert timed and all(row["call_p50_ns"] for row in timed), "nothing that was measured is dropped"
    assert all(row["environment"]["observed"]["load"]["before"] == load["before"] for row in document["records"])
    shown = call(tmp_path, environment, "show")
    assert WARNING in shown.stdout and "withheld" in shown.stdout


def test_an_idle_host_is_no_news(tmp_path: Path) -> None:
    environment = settle(tmp_path)
    done = call(tmp_path, environment, "run", SUITE, "--device", "cpu")
    assert "busy" not in done.stderr and "withheld" not in done.stdout, done.stderr
