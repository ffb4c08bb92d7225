"""State that is put back between calls, so that a cache which is appended to can be timed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SUITES, settle
from tests.commands import call


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("reset")
    words = ["--device", "cpu", "--rounds", "2", "--format", "json"]
    done = call(folder, settle(folder), "run", str(SUITES / "reset" / "appends.py"), *words)
    return {(row["operator"], row["implementation"]): row for row in json.loads(done.stdout)["records"]}


@pytest.mark.parametrize("operator", ["restored", "by_function"])
@pytest.mark.parametrize("implementation", ["baseline", "by_slice"])
def test_a_cache_with_a_position_is_timed(
    rows: dict[tuple[str, str], dict[str, Any]], operator: str, implementation: str
) -> None:
    row = rows[operator, implementation]
    assert row["status"] == "measured", row["reason"]
    assert row["n_samples"] > 20 and row["ops_per_call"] > 1


def test_without_it_there_is_no_room_left(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert rows["not_reset", "by_slice"]["status"] == "failed"
    assert rows["not_reset", "by_slice"]["call_p50_ns"] is None
