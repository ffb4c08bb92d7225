"""`pairbench accept`: what it stores, what it refuses, and what a later comparison makes of it."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.cli.app import main
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.store.documents import read_acceptances
from tests.builders import CASES, SUITE, ended, make_run, run_id_of, write_runs

Cli = Callable[..., tuple[int, str, str]]
NAME = f"{SUITE}::{CASES[0]}-fused-eager"
SLOWER = {f"{CASES[0]}-fused": 1.2}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process, in a folder of its own; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pairbench", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended_with:
            main()
        code = ended_with.value.code
        return code if isinstance(code, int) else 0, *capsys.readouterr()

    return run


def test_an_accepted_level_is_no_regression_any_more_and_a_worse_one_is(cli: Cli) -> None:
    write_runs("results", make_run(0), make_run(1, slower=SLOWER))
    assert cli("compare")[0] == 1
    code, out, err = cli("accept", NAME, "--reason", "an exact softmax")
    assert (code, err) == (0, "") and NAME in out and "accepted/" in out
    code, out, _ = cli("compare", "-f", "json")
    assert code == 0
    (change,) = [change for change in json.loads(out)["changes"] if change["name"] == NAME]
    assert change["accepted"] == "an exact softmax" and change["outcome"] == "unchanged"
    write_runs("results", make_run(2, slower=SLOWER, branch="topic"))
    assert cli("compare", run_id_of(0), run_id_of(2))[0] == 0
    write_runs("results", make_run(3, slower={f"{CASES[0]}-fused": 1.4}))
    assert cli("compare", run_id_of(0), run_id_of(3))[0] == 1


def test_what_is_stored(cli: Cli) -> None:
    write_runs("results", make_run(0, slower=SLOWER), make_run(1))
    assert cli("accept", NAME, "--reason", " because ", "--run", run_id_of(0)[:13])[0] == 0
    ((series, found),) = read_acceptances("results").value.items()
    assert series.name == NAME and (found.run_id, found.reason) == (run_id_of(0), "because")
    assert found.p50_ns == pytest.approx(120_000, rel=0.01) and found.p95_ns == pytest.approx(126_000, rel=0.01)
    assert (found.exact["kernels_per_call"], found.exact["margin"]) == (1, 0.75) and found.definition_hash == "d" * 16


def test_the_level_is_of_all_measurements_of_a_run(cli: Cli) -> None:
    """A run whose suspects were measured again has two of them."""
    write_runs(
        "results", make_run(0, slower=SLOWER), make_run(1, slower={f"{CASES[0]}-fused": 1.3}, confirms=run_id_of(0))
    )
    assert cli("accept", NAME, "--reason", "because")[0] == 0
    (found,) = read_acceptances("results").value.values()
    assert found.run_id == run_id_of(0) and found.p50_ns == pytest.approx(124_900, rel=0.01)


def test_a_glob_accepts_all_that_it_fits(cli: Cli) -> None:
    write_runs("results", make_run(0))
    code, out, _ = cli("accept", f"{SUITE}::rms_norm[*tokens=*-fused-eager", "--reason", "x", "-f", "json")
    assert code == 0 and len(json.loads(out)["accepted"]) == 2
    assert len(read_acceptances("results").value) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reason", "x", NAME.replace("fused", "fussed")], f"did you mean {NAME}"),
        (["--reason", "x", "zzz"], "'zzz' is no series of run"),
        (["--reason", "  ", NAME], "--reason is empty, expected a sentence"),
        ([NAME], "Missing option '--reason'"),
        (["--reason", "x", NAME, "--run", "nonsense"], "'nonsense' names no run"),
        (["--reason", "x", NAME, "--device-name", "B200"], "--device-name 'B200' is in no record"),
        (["--reason", "x", f"{SUITE}::{CASES[1]}-fused-eager"], "has no level to accept in run .*: oom: made up"),
        (["--reason", "x", f"{SUITE}::{CASES[1]}-baseline-eager"], "has no level to accept .*nan"),
    ],
)
def test_refusals(cli: Cli, arguments: list[str], words: str) -> None:
    records = []
    for record in make_run(0):
        if record.case == CASES[1]:
            spoilt = ended(record, "oom") if record.implementation == "fused" else record
            records.append(replace(spoilt, round_p50_ns=spoilt.round_p50_ns and (float("nan"),) * 5))
        else:
            records.append(record)
    write_runs("results", records)
    code, out, err = cli("accept", *arguments)
    assert code == 2 and not out and re.search(words.replace("[", r"\["), err), err
    assert not Path("results/accepted").exists()


def test_several_device_models_have_to_be_told_apart(cli: Cli) -> None:
    write_runs("results", (*make_run(0), *make_run(0, device_name="NVIDIA B200")))
    code, _, err = cli("accept", NAME, "--reason", "x")
    assert code == 2 and "was measured on NVIDIA B200, NVIDIA H200; say which with --device-name" in err
    assert cli("accept", NAME, "--reason", "x", "--device-name", "h200")[0] == 0
    assert [series.device_name for series in read_acceptances("results").value] == ["NVIDIA H200"]


def test_an_empty_store(cli: Cli) -> None:
    code, _, err = cli("accept", NAME, "--reason", "x")
    assert code == 2 and "has no records" in err


def test_a_series_is_named_as_run_names_cases(cli: Cli) -> None:
    write_runs("results", make_run(0), make_run(1))
    code, out, err = cli("accept", CASES[0], "-i", "fused", "--reason", "so it is", "-f", "json")
    assert code == 0, err
    assert [row["series"] for row in json.loads(out)["accepted"]] == [NAME]
    assert cli("trend", CASES[0], "-i", "fused", "--mode", "eager")[0] in (0, 3)
    code, _, err = cli("trend", CASES[0], "-i", "nobody")
    assert code == 2 and "is not in store" in err
    code, out, _ = cli("show", "-i", "fused", "-f", "json")
    assert code == 0 and {row["implementation"] for row in json.loads(out)["records"]} == {"baseline", "fused"}
    code, _, err = cli("show", "--mode", "graph")
    assert code == 2 and "take nothing of run" in err


def test_a_level_is_that_of_the_newest_run_that_had_time_for_the_series(cli: Cli) -> None:
    newest = [
        replace(record, status="skipped", reason=OUT_OF_BUDGET, call_p50_ns=None) if record.case == CASES[0] else record
        for record in make_run(2)
    ]
    write_runs("results", make_run(0), make_run(1), newest)
    code, out, err = cli("accept", NAME, "--reason", "so it is")
    assert code == 0, err
    assert run_id_of(1) in out
    code, _, err = cli("accept", NAME, "--reason", "so it is", "--run", "latest")
    assert code == 2 and err
