"""What measures, called as from a notebook: nothing runs in this process, and everything that was measured comes back."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import pairbench
from pairbench.errors import (
    ConfigError,
    DeclarationError,
    IncompleteRunError,
    SelectionError,
    StoreFailedError,
    UsageError,
)
from pairbench.features import ab
from pairbench.interface.opened import file_of, open_targets
from pairbench.interface.stored import Verdicts
from pairbench.model.environment import Device
from pairbench.suite.modules import load_suite
from pairbench.workflow.progress import PlainProgress
from tests.builders import git
from tests.commands import forked_workers

QUICK: dict[str, Any] = {"case_seconds": 0.02, "min_samples": 10, "rounds": 1, "device": "cpu"}
declared = pairbench.Operator(
    "declared",
    baseline=lambda x: x + x,
    variants={"doubled": lambda x: 2 * x},
    inputs=lambda make, n: {"x": make.normal(n)},
    cases=pairbench.grid(n=[8, 16]),
)


def made(name: str, factor: float) -> pairbench.Operator:
    """Return an operator that no file declares, with a local variable in it."""

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    return pairbench.Operator(
        name,
        baseline=plain,
        variants={"added": lambda x: x + (factor - 1) * x, "wrong": lambda x: x * (factor + 0.1)},
        inputs=lambda make, n: {"x": make.normal(n)},
        cases=pairbench.grid(n=[64, 128]),
    )


@pytest.fixture(scope="module", autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have workers forked, and a folder without settings."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch, forked_workers():
        patch.setenv("PAIRBENCH_WORKERS", "fork")
        patch.setenv("XDG_STATE_HOME", str(folder))
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def result(places: Path) -> pairbench.Result:
    return pairbench.run(made("scaled", 3.0), **QUICK)


def test_a_run_gives_records_samples_and_tables(result: pairbench.Result) -> None:
    frame = result.frame
    assert set(frame.status) == {"measured", "mismatched"} and not result.ok
    assert sorted(frame.n.unique()) == [64, 128]
    measured = frame[frame.status == "measured"]
    assert set(measured.implementation) == {"baseline", "added"}
    assert (measured.call_p50_ns > 0).all()
    samples = result.samples
    assert len(samples) == measured.n_samples.sum() and (samples.call_ns > 0).all()
    text = str(result)
    assert "scaled[n=128]" in text and "mismatched" in text and "not stored" in text
    assert set(result.best().case) == set(frame.case)
    assert "scaled[n=128]" in result._repr_html_() and "<svg" in result._repr_html_()
    assert "factor=3.0" in result.source


def test_a_run_can_be_saved_and_read(result: pairbench.Result, tmp_path: Path) -> None:
    for _ in range(2):  # the second time nothing is doubled
        result.save(tmp_path / "store")
    assert len(pairbench.read(tmp_path / "store")) == len(result.records)
    assert len(pairbench.samples(tmp_path / "store")) == len(result.samples)
    assert len(pairbench.samples(tmp_path / "store", select="scaled[n=64]")) < len(result.samples)
    with pytest.raises(SelectionError, match="'nothing' selects nothing"):
        pairbench.samples(tmp_path / "store", select="nothing")


def test_runs_in_a_store_are_compared(places: Path, result: pairbench.Result) -> None:
    result.save()
    again = pairbench.run(made("scaled", 3.0), store="results", **QUICK)
    assert again.store == "results" and (places / "results").is_dir()
    verdicts = pairbench.compare("latest~1", select="scaled")
    assert len(verdicts.comparison.changes) == 6, "the suite has another name in each run"
    assert "scaled[n=64]" in str(verdicts) and {"change", "verdict", "outcome"} <= set(verdicts.frame.columns)
    trend = pairbench.trend("scaled[n=64]-added")
    assert len(trend.frame) == 2 and trend.plot() is not None and "scaled[n=64]" in str(trend)


def test_an_operator_of_a_file_is_run_from_it_and_with_other_cases_from_its_text() -> None:
    assert file_of(declared) == Path(__file__)
    with open_targets(declared, cases=None) as opened:
        assert opened.select == [f"{__file__}::declared"] and not opened.text
    with open_targets(declared, cases=pairbench.grid(n=[32])) as opened:
        (operator,) = load_suite(Path(opened.select[0].partition("::")[0])).values()
        assert [case.key for case in operator.cases] == ["declared[n=32]"]
    with pytest.raises(DeclarationError, match="axis 'm'"), open_targets(declared, cases=pairbench.grid(m=[7])):
        pass


def test_measure_takes_tensors_as_they_lie_and_gradients(places: Path) -> None:
    x = torch.randn(6, 40).t()[::2]
    # The oracle's inputs are of another dtype, and so lie otherwise.
    functions = {
        "plain": lambda x, y, n: x + n * (y - x),
        "C": torch.lerp,
        "strided": lambda a, b, n: a + n * (b - a) if a.stride(0) == 2 or a.dtype == torch.float64 else b,
    }
    arguments = {"x": x, "y": torch.randn(20, 6), "n": 0.25}
    found = pairbench.measure(functions, arguments, name="layout", gradients=["x"], **QUICK)
    assert found.ok and set(found.frame["status"]) == {"measured"}, found
    directions = ("bwd", "fwd", "fwd_bwd")
    assert sorted(found.frame["case"].unique()) == [
        f"layout[direction={one},dtype=float32,n=0.25,x=20x6,y=20x6]" for one in directions
    ]
    assert found.frame["saved_bytes"].notna().all()


def test_verify_and_try(places: Path) -> None:
    found = pairbench.verify(made("scaled", 3.0), device="cpu", impostors=True)
    assert not found.ok and set(found.frame.status) == {"verified", "mismatched"} and found.impostors
    tried = pairbench.try_(made("scaled", 3.0), device="cpu", implementations="added", case_seconds=0.02)
    assert tried.ok and len(tried.frame) == 2 and "scaled[n=64]" in str(tried)


def test_ctrl_c_gives_what_was_finished(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def stepped(self: PlainProgress, device: Device) -> None:
        steps.append(device)
        if len(steps) == 5:  # two cases are verified, and two timed
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(PlainProgress, "stepped", stepped)
    cut = pairbench.run(made("scaled", 3.0), **{**QUICK, "rounds": 50})
    assert cut.interrupted and not cut.ok and cut.records
    assert "interrupted" in str(cut) and "interrupted" in cut._repr_html_()


def test_mistakes_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"3 is of type int, expected an Operator, a suite file or a SELECT"):
        pairbench.run(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"cases= goes with an Operator; .* 'ops.py::silu\[n=1024\]'"):
        pairbench.run("ops.py", cases=[{"n": 3}])
    with pytest.raises(ConfigError, match="'roundz' is unknown; did you mean 'rounds'"):
        pairbench.run(declared, roundz=3)
    with pytest.raises(UsageError, match="two and more by name"):
        pairbench.measure({"alone": abs})
    with pytest.raises(UsageError, match=r"cases= has to say with which axes"):
        pairbench.measure({"a": abs, "b": abs}, lambda make, n: {})
    with pytest.raises(UsageError, match=r"argument 'x' is a Linear, expected tensors"):
        pairbench.measure({"a": lambda x: x, "b": lambda x: x}, [torch.nn.Linear(1, 1)])
    with pytest.raises(DeclarationError, match="expected a name of ASCII letters"):
        pairbench.measure({"a": abs, "b c": abs}, torch.ones(1))
    monkeypatch.setenv("PAIRBENCH_OWNER", "somebody")
    with pytest.raises(UsageError, match="below `if __name__ == '__main__':`"):
        pairbench.run(declared)


def test_two_commits_in_turns_and_verdicts_that_outlive_a_store_that_fails(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).parents[1] / "suites" / "good.py", tmp_path / "ops.py")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        git(tmp_path, *arguments)
    monkeypatch.chdir(tmp_path)
    measured: list[Any] = []

    real = ab.compare_commits

    def compare_commits(*arguments: Any) -> Any:
        measured.append(real(*arguments))
        return measured[0]

    def full(*_: object, **__: object) -> None:
        raise StoreFailedError("no space")

    asked: dict[str, Any] = {**QUICK, "rounds": 2, "select": "ops.py::shifts"}
    with mock.patch("pairbench.features.ab.compare_commits", compare_commits):
        found = pairbench.ab("HEAD", store="sides", **asked)
    samples = pairbench.samples("sides", run=pairbench.read("sides").run_id.min())
    assert set(samples.implementation) == {"baseline", "named"}
    assert {change.series.implementation for change in found.comparison.changes} == {"baseline", "named"}
    assert "HEAD" in str(found) and len(found.frame) > 2
    with pytest.raises(UsageError, match="'nowhere'"):
        pairbench.ab("nowhere", select="ops.py")

    monkeypatch.setattr("pairbench.features.ab.compare_commits", lambda *_: measured[0])
    monkeypatch.setattr("pairbench.features.ab.write_runs", full)
    with pytest.raises(IncompleteRunError, match="no space; this error's `result` has the verdicts") as caught:
        pairbench.ab("HEAD", store="others", **asked)
    assert isinstance(caught.value.result, Verdicts) and caught.value.result.comparison.changes
