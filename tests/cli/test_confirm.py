"""`run --confirm`: what is measured again, in which company, and what becomes of the exit code."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from pairbench.config import Config
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Survey
from pairbench.model.environment import Device, Settings
from pairbench.model.plan import BrokenSuite
from pairbench.model.record import Record
from pairbench.store.reader import read_run, runs
from pairbench.workflow.comparer import Confirmed, confirm_run
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.record import DoneRun
from pairbench.workflow.requested import Requested
from pairbench.workflow.setup import Chosen, Request
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, run_id_of, write_runs
from tests.cli.conftest import SLOWER, Pairbench
from tests.in_process import call_main

GPU = Device(selector="cuda:0", kind="cuda", name=DEVICE)
CPU = Device(selector="cpu", kind="cpu", name="a CPU")


@dataclass
class Again:
    """Stands in for measuring: writes made-up records as a run that confirms another."""

    store: Path
    records: tuple[Record, ...] = ()
    interrupted: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, request: Request, *, confirms: str | None = None) -> DoneRun:
        call = {"modes": request.context.settings.modes, "chosen": request.chosen}
        self.calls.append({**call, "devices": request.devices, "confirms": confirms})
        write_runs(self.store, self.records)
        return DoneRun(run_id=self.records[0].run_id, records=list(self.records), interrupted=self.interrupted)


@dataclass
class Bench:
    store: Path
    again: Again

    def confirm(self, *, modes: tuple[str, ...] = ("eager", "compile")) -> Confirmed:
        (newest, *_) = runs(self.store).value
        done = DoneRun(run_id=newest.run_id, records=list(read_run(self.store).value))
        context = WorkerContext(
            settings=Settings(modes=modes), cache=self.store, interrupted=cast(Any, None), memory_bytes=1
        )
        survey = Survey(devices=(GPU, CPU), operators=(), broken=(BrokenSuite(suite="x.py", reason="x"),))
        config = Config(root=self.store, store=str(self.store))
        chosen, progress = Chosen(survey=survey, selections=()), PlainProgress()
        request = Request(config=config, context=context, chosen=chosen, devices=(GPU, CPU), progress=progress)
        return confirm_run(request, done.run_id)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    again = Again(tmp_path)
    monkeypatch.setattr("pairbench.workflow.record.record_run", again)
    return Bench(tmp_path, again)


def test_without_a_reference_or_suspects_nothing_is_measured(bench: Bench) -> None:
    write_runs(bench.store, make_run(0))
    assert bench.confirm().judged.note
    write_runs(bench.store, make_run(1))
    found = bench.confirm()
    assert (found.again, found.exit_code, bench.again.calls) == (None, 0, [])


def test_a_suspects_whole_case_is_measured_again_and_fails_where_it_is_slow_both_times(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(bench.store, make_run(0), make_run(1, slower=SLOWER))
    bench.again.records = make_run(2, cases=CASES[:1], slower=SLOWER, confirms=run_id_of(1))
    found = bench.confirm()
    (call,) = bench.again.calls
    assert (call["modes"], call["devices"], call["confirms"]) == (("eager",), (GPU,), run_id_of(1))
    (selection,) = call["chosen"].selections
    assert (selection.suite, selection.pattern) == (SUITE, CASES[0]) and call["chosen"].survey.broken == ()
    said = f"1 look worse than the reference and are measured again: {SUITE}::{CASES[0]}-fused"
    assert said in capsys.readouterr().err
    assert found.exit_code == 1 and "1 regression" in found.render("table")
    assert found.judged.comparison.current.runs == (run_id_of(1), run_id_of(2))
    (worse,) = [change for change in found.judged.comparison.changes if change.confirmed]
    assert worse.series.implementation == "fused"
    plain = found.plain()
    assert plain["confirming_run_id"] == run_id_of(2) and plain["comparison"]["exit_code"] == 1


def test_interrupted_while_measuring_again(bench: Bench) -> None:
    write_runs(bench.store, make_run(0), make_run(1, slower=SLOWER))
    bench.again.records = make_run(2, cases=CASES[:1], slower=SLOWER, confirms=run_id_of(1))
    bench.again.interrupted = True
    assert bench.confirm().exit_code == 130


def test_what_is_slow_once_does_not(bench: Bench) -> None:
    write_runs(bench.store, make_run(0), make_run(1, slower=SLOWER))
    bench.again.records = make_run(2, cases=CASES[:1], confirms=run_id_of(1))
    found = bench.confirm()
    assert found.exit_code == 0
    assert {name: number for name, number in found.plain()["comparison"]["outcomes"].items() if number} == {
        "undecided": 1,
        "unchanged": 3,
    }


def test_what_fails_is_tried_again_too(bench: Bench) -> None:
    failed = [ended(record, "failed") if record.implementation == "fused" else record for record in make_run(1)]
    write_runs(bench.store, make_run(0), failed)
    bench.again.records = tuple(ended(record, "failed") for record in make_run(2, confirms=run_id_of(1)))
    assert bench.confirm().exit_code == 1
    assert len(bench.again.calls) == 1 and len(bench.again.calls[0]["chosen"].selections) == 2


SUITE_TEXT = """
from pairbench import Operator, grid

def plain(x):
    return x.sin().cos()

def variant(x):
    {first}
    return x.sin().cos()

pair = Operator("pair", baseline=plain, variants={{"variant": variant}},
    inputs=lambda make, rows: {{"x": make.uniform(rows)}}, cases=grid(rows=[8, 16]))
"""


def test_one_more_operator_is_seen_confirmed_and_fails(tmp_path: Path, pairbench: Pairbench) -> None:
    """The whole way, by a count that does not depend on how busy this machine is."""
    suite = tmp_path / "ops.py"
    suite.write_text(SUITE_TEXT.format(first="pass"))
    first = pairbench("run", "ops.py::pair", "--device", "cpu", "--confirm", "-f", "json")
    assert first.returncode == 0, first.stderr
    assert "nothing to compare with" in first.stderr
    document = json.loads(first.stdout)
    assert document["confirming_run_id"] is None and document["comparison"]["outcomes"]["new"] == 4
    environment = json.dumps(document["records"][0]["environment"])
    asked = Requested.read(environment, {})
    assert asked is not None and asked.select == (("ops.py", "pair"),) and asked.tiers == {"smoke"}
    suite.write_text(SUITE_TEXT.format(first="x.neg()"))
    second = pairbench("run", "ops.py::pair[rows=8]", "--device", "cpu", "--confirm", "-f", "json")
    assert second.returncode == 1, second.stderr
    assert "measured again: ops.py::pair[rows=8]-variant-eager" in second.stderr
    document = json.loads(second.stdout)
    (worse,) = [change for change in document["comparison"]["changes"] if change["outcome"] == "regression"]
    # Where the machine is quiet, the time that the operator takes is seen as well, and goes before it.
    assert "ops_per_call" in [judged["metric"] for judged in worse["judgements"] if judged["outcome"] == "regression"]
    assert (worse["confirmed"], worse["attribution"]) == (True, "code")
    # What nobody asked for is not missing.
    assert document["comparison"]["outcomes"]["missing"] == 0
    again = read_run(tmp_path / "results").value
    assert {record.confirms for record in again} == {document["run_id"]}
    assert {record.implementation for record in again} == {"baseline", "variant"}
    assert call_main(tmp_path, "compare").code == 1
