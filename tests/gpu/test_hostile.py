"""Implementations that break a GPU cost themselves, and nothing else of the run."""

from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT
from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SUITES = ("gpu.py", "odd.py::syncs", "hostile.py::wrong")
IMPLEMENTATIONS = ("asserts", "illegal", "allocates", "syncs", "tail", "by_address", "good")


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Verify all hostile suites at once; return rows by operator, implementation and mode."""
    files = [f"tests/suites/{suite}" for suite in SUITES]
    modes = ["--mode", "eager", "--mode", "graph", *(f"-i{name}" for name in IMPLEMENTATIONS)]
    rows = pairbench("verify", *files, "--device", "cuda:0", *modes, codes=(1,))["verifications"]
    return {(row["operator"], row["implementation"], row["mode"]): row for row in rows}


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    ("operator", "implementation", "status", "reason"),
    [
        ("gpu_assert", "asserts", "failed", "device-side assert"),
        ("gpu_illegal", "illegal", "failed", "illegal memory access"),
        ("gpu_oom", "allocates", "oom", "out of memory"),
        ("wrong", "tail", "mismatched", "NaN"),
        ("wrong", "by_address", "mismatched", ""),
    ],
)
def test_each_ends_as_itself(
    found: Any, operator: str, implementation: str, status: str, reason: str, mode: str
) -> None:
    row = found[operator, implementation, mode]
    assert row["status"] == status
    if (implementation, mode) == ("tail", "graph"):
        reason = "differs"  # what a graph's own memory held when it was captured
    assert reason in row["reason"]
    assert found[operator, "good", mode]["status"] == found[operator, "baseline", mode]["status"] == "verified"


def test_a_wait_for_the_device_is_legal_until_it_is_to_be_captured(found: Any) -> None:
    eager, graph = found["syncs", "syncs", "eager"], found["syncs", "syncs", "graph"]
    assert eager["status"] == "verified"
    assert "capturing" in eager["uncapturable"]
    assert graph["status"] == "skipped"
    assert "cannot be captured" in graph["reason"]


def test_a_baseline_that_a_variant_slows_gives_no_speedup(tmp_path: Path) -> None:
    suite = ROOT / "tests/suites/exploits/disturbs.py::slowed"
    document = pairbench("run", str(suite), "--device", "cuda:0", folder=tmp_path)
    rows = {row["implementation"]: row for row in document["records"]}
    for name in ("slows", "good"):
        assert rows[name]["status"] == "measured" and rows[name]["speedup"] is rows[name]["device_speedup"] is None
        assert "its speedup is withheld: the baseline takes" in rows[name]["reason"]
