"""What the judging must say of changes planted on a real GPU: nothing of none, and whose each one is."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SUITE = Path(__file__).parents[1] / "suites" / "planted.py"
SLOWER_BY = 0.02


class Bench:
    """A folder with a suite and a store, and the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(SUITE, folder / "planted.py")

    def run(self, *options: str, cycles: int = 0) -> str:
        """Measure the suite as it is and return the run's id."""
        document = self._pairbench("run", "planted.py", "--tier", "real", *options, cycles=cycles)
        assert document["summary"]["statuses"] == {"measured": 8}
        run_id: str = document["run_id"]
        return run_id

    def run_and_confirm(self) -> dict[str, Any]:
        """Measure the suite as it is, and what looks worse a second time; return the JSON document with its changes."""
        return self._pairbench("run", "planted.py", "--tier", "real", "--confirm")

    def compare(self, reference: str, current: str) -> tuple[dict[str, dict[str, Any]], int]:
        """Return the changes by operator and implementation, and the exit code."""
        document = self._pairbench("compare", reference, current)
        return named(document["changes"]), document["rc"]

    def edit(self, **lines: str) -> None:
        """Put other code where a mark stands."""
        text = SUITE.read_text().splitlines()
        for mark, code in lines.items():
            (at,) = (number for number, line in enumerate(text) if line.endswith(f"# planted: {mark}"))
            text[at] = f"    {code}"
        (self.folder / "planted.py").write_text("\n".join(text) + "\n")

    def cycles(self, operator: str) -> int:
        """Return as many cycles as the planted share of an operator's latency has."""
        row = pd.read_parquet(self.folder / "results" / "records").query("operator == @operator").iloc[0]
        return int(row.device_p50_ns * SLOWER_BY * row.sm_clock_mhz / 1e3)

    def _pairbench(self, *arguments: str, cycles: int = 0) -> dict[str, Any]:
        return pairbench(*arguments, folder=self.folder, codes=(0, 1), PLANTED_CYCLES=str(cycles))


def named(changes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return changes by operator and implementation."""
    found = {change["name"].split("::")[1]: change for change in changes}
    return {f"{name.split('[')[0]} {name.split('-')[1]}": change for name, change in found.items()}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def clean(bench: Bench) -> list[str]:
    """Return two runs of the same code."""
    return [bench.run(), bench.run()]


@pytest.fixture(scope="module")
def planted(bench: Bench, clean: list[str]) -> dict[str, dict[str, Any]]:
    """Return what comes of a slowed variant, one more launch, and a machine that is slower for both sides."""
    bench.edit(slowed=f"spin({bench.cycles('slower')})", launch="return out * 1")
    changes, rc = bench.compare("last:3", bench.run(cycles=2 * bench.cycles("machine")))
    assert rc == 1
    return changes


def test_the_same_code_raises_no_alarm(bench: Bench, clean: list[str]) -> None:
    changes, rc = bench.compare(*clean)
    assert len(changes) == 8 and rc == 0
    assert {change["outcome"] for change in changes.values()} <= {"unchanged", "undecided"}


def test_a_suspect_is_measured_again_and_then_fails(tmp_path: Path, bench: Bench, clean: list[str]) -> None:
    again = Bench(tmp_path)
    shutil.copytree(bench.folder / "results", tmp_path / "results")
    again.edit(slowed=f"spin({again.cycles('slower')})")
    document = again.run_and_confirm()
    assert set(document["comparison"]["reference"]["runs"]) == set(clean)
    assert document["rc"] == 1
    changes = named(document["comparison"]["changes"])
    assert changes["slower slowed"]["outcome"] == "regression" and changes["slower slowed"]["confirmed"] is True
    others = {name: change["outcome"] for name, change in changes.items() if name != "slower slowed"}
    assert set(others.values()) <= {"unchanged", "undecided"}, others


def test_a_slowed_variant_is_caught_and_the_code_did_it(planted: dict[str, dict[str, Any]]) -> None:
    change = planted["slower slowed"]
    assert (change["outcome"], change["verdict"], change["attribution"]) == ("regression", "slower", "code")
    p50 = next(item for item in change["judgements"] if item["metric"] == "device_p50_ns")
    assert p50["change"]["estimate"] == pytest.approx(1 + SLOWER_BY, abs=0.01)
    assert change["implementation_changed"] is True
    assert planted["slower baseline"]["outcome"] in ("unchanged", "undecided")


def test_one_more_launch_is_caught_exactly(planted: dict[str, dict[str, Any]]) -> None:
    change = planted["launches launches_more"]
    assert change["outcome"] == "regression" and change["attribution"] == "code"
    launches = next(item for item in change["judgements"] if item["metric"] == "launches_per_call")
    assert launches["current"] == launches["reference"] + 1 and launches["outcome"] == "regression"
    assert [kernel["what"] for kernel in change["kernels"]].count("new") == 1


def test_a_slower_machine_is_told_from_the_code(planted: dict[str, dict[str, Any]]) -> None:
    for implementation in ("baseline", "swapped"):
        change = planted[f"machine {implementation}"]
        assert (change["verdict"], change["attribution"]) == ("slower", "machine"), change


def test_what_was_not_touched_raises_no_alarm(planted: dict[str, dict[str, Any]]) -> None:
    for implementation in ("baseline", "swapped"):
        assert planted[f"untouched {implementation}"]["outcome"] in ("unchanged", "undecided")


def test_another_flag_is_the_environment(bench: Bench, clean: list[str]) -> None:
    bench.edit()
    changes, _ = bench.compare(clean[1], bench.run("--tf32"))
    for change in changes.values():
        assert change["attribution"] == "environment" and change["verdict"] == "faster", change
        assert any("tf32" in era["field"].lower() for era in change["era"])
