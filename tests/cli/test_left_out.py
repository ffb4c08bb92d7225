"""What a run leaves out, by its budget, `--skip-existing` or `--implementation`, no verdict takes for gone."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairbench.store import upkeep
from pairbench.store.location import StoreLocation
from tests.cli.conftest import SUITES, Pairbench, records_of
from tests.in_process import call_main

RUN = ("run", "--device", "cpu", "--format", "json")


def cases_of(records: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(record["case"] for record in records))


def outcomes_of(folder: Path) -> dict[str, str]:
    """Return the outcome of each case when the newest run is compared."""
    changes = call_main(folder, "compare", "--format", "json").document["changes"]
    return {change["series"]["case"]: change["outcome"] for change in changes}


def test_what_is_out_of_budget_comes_first_the_next_time(pairbench: Pairbench, tmp_path: Path) -> None:
    # One case is done whatever it takes, and for more there is no time.
    command = (*RUN, f"{SUITES}/good.py::shifts", f"{SUITES}/good.py::running_total", "--budget", "0.1s")
    first = json.loads(pairbench(*command).stdout)
    skipped = [one for one in first["records"] if one["reason"] == "out of budget"]
    (tried,) = {*cases_of(first["records"])} - {*cases_of(skipped)}
    assert first["summary"]["out_of_budget_cases"] == len(cases_of(skipped)) > 1
    assert {one["status"] for one in skipped} == {"skipped"}
    shown = call_main(tmp_path, "show").out
    assert shown.count("out of budget") == 1 and tried in shown

    second = [one for one in records_of(pairbench(*command)) if one["reason"] != "out of budget"]
    assert len(cases_of(second)) == 1 and cases_of(second) != [tried]
    outcomes = outcomes_of(tmp_path)
    assert outcomes[tried] == "incomparable", "measured before, and out of this run's budget"
    assert not {"missing", "failed", "regression"} & set(outcomes.values())
    # The history goes on where it was measured last.
    trend = call_main(tmp_path, "trend", f"{tried}-named-eager", "--format", "json")
    assert trend.code == 0 and "out of budget" not in trend.out


def test_what_is_in_the_store_is_not_run_again(
    pairbench: Pairbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = (*RUN, "--skip-existing", f"{SUITES}/good.py::running_total", f"{SUITES}/good.py::extremes")
    first = pairbench(*both[:-1])
    assert len(cases_of(records_of(first))) == 1 and "already" not in first.stderr
    second = pairbench(*both)
    other = cases_of(records_of(second))
    assert other and not {*other} & {*cases_of(records_of(first))}
    assert f"1 of {1 + len(other)} cases are in store" in second.stderr
    # The newest run was asked for no more than it did not leave out.
    assert set(outcomes_of(tmp_path).values()) == {"new"}

    monkeypatch.setattr(upkeep, "AT_LEAST", 2)
    place = StoreLocation.of(tmp_path / "results")
    assert [one.files for one in upkeep.compact(place, keep=0)] == [1]
    assert [file.is_compacted for file in place.files("records")] == [True]
    none = pairbench(*both, "--format", "table")
    assert none.returncode == 0 and "Nothing to run" in none.stdout
    assert [file.is_compacted for file in place.files("records")] == [True]


def test_only_the_implementations_that_are_named_are_run_and_asked_for(pairbench: Pairbench, tmp_path: Path) -> None:
    good = (SUITES / "good.py").read_text()
    (tmp_path / "ops.py").write_text(good.replace('variants={"named"', 'variants={"other": both_shifts, "named"'))
    named = pairbench(*RUN, "ops.py::shifts", "ops.py::extremes", "-i", "n*d")
    assert named.returncode == 0, named.stderr
    records = records_of(named)
    ends = {(record["operator"], record["implementation"]) for record in records}
    assert ends == {("shifts", "baseline"), ("shifts", "named")}
    assert all(record["speedup"] for record in records if record["role"] == "variant")
    assert [record["environment"]["observed"]["asked"]["implementations"] for record in records] == [["n*d"]] * 4
