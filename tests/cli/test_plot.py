"""`pairbench plot` on stores of made-up runs."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.model.record import Record
from tests.builders import make_run, write_runs

Pairbench = Callable[..., subprocess.CompletedProcess[str]]


def run(number: int, sizes: tuple[int, ...], operator: str = "norm") -> list[Record]:
    found = []
    for n in sizes:
        slower = {"baseline": n / 2000, "fused": 0.5 + n / 2000}
        rows = make_run(number, cases=[f"{operator}[n={n}]"], slower=slower, cv=1e-6)
        found += [replace(row, axes=json.dumps({"n": n})) for row in rows]
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with an earlier run of all sizes and a newer one of some, twice as slow there."""
    folder = tmp_path_factory.mktemp("store")
    again = [replace(one, call_p50_ns=2 * (one.call_p50_ns or 0)) for one in run(5, (4096,))]
    write_runs(folder, run(1, (256, 512, 2048, 4096)) + run(1, (1, 2), "other"), again)
    return folder


def test_a_table_and_a_picture(quick: Pairbench, store: Path, tmp_path: Path) -> None:
    for name, *style in (("a.svg",), ("a.png",), ("a.HTML",), ("a.pdf", "--style", "paper")):
        done = quick("plot", "norm", "--x", "n", "--store", str(store), "--output", str(tmp_path / name), *style)
        assert done.returncode == 0, done.stderr
        assert "drew" in done.stderr and (tmp_path / name).stat().st_size > 1000
    assert "fused overtakes the baseline at n of about" in done.stdout
    assert "4096" in done.stdout and "fused" in (tmp_path / "a.svg").read_text()


def test_of_each_series_the_newest_run(quick: Pairbench, store: Path) -> None:
    newest = quick("plot", "norm", "--store", str(store), "-f", "json")
    (panel,) = json.loads(newest.stdout)["chart"]["panels"]
    values = {point["x"]: point["y"] for point in panel["lines"][0]["points"]}
    assert values[2048] == pytest.approx(204.8, rel=1e-3) and values[4096] == pytest.approx(2 * 409.6, rel=1e-3)
    latest = quick("plot", "--run", "latest", "--store", str(store), "-f", "json")
    (panel,) = json.loads(latest.stdout)["chart"]["panels"]
    assert [point["x"] for point in panel["lines"][0]["points"]] == [4096]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "'nothing' selects nothing that was measured in store"),
        (["norm", "--device-name", "B200"], "selects nothing"),
        (["norm", "--x", "m"], "x='m' is no axis of these cases, expected one of n"),
        (["norm", "--output", "a.gif"], "ends in '.gif', expected .png, .svg, .pdf or .html"),
        (["norm", "--style", "paper"], "--style paper draws a file and no --output names one"),
        (["norm", "--style", "paper", "--output", "a.png"], "ends in '.png', expected .svg or .pdf"),
        (["norm", "--output", "nowhere/a.svg"], "cannot be written"),
    ],
)
def test_mistakes_are_usage_errors(quick: Pairbench, store: Path, arguments: list[str], sentence: str) -> None:
    done = quick("plot", *arguments, "--store", str(store))
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr
