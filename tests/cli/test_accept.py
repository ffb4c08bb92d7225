"""`pairbench accept`: the levels that it stores, the requests that it refuses, and how a later comparison uses the levels."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.store.documents import read_acceptances
from tests.builders import CASES, SUITE, ended, make_run, run_id_of
from tests.cli.conftest import SLOWER, Cli, write

NAME = f"{SUITE}::{CASES[0]}-fused-eager"


def test_an_accepted_level_is_no_regression_any_more_and_a_worse_one_is(cli: Cli) -> None:
    write(make_run(0), make_run(1, slower=SLOWER))
    assert cli("compare").code == 1
    said = cli("accept", NAME, "--reason", "an exact softmax")
    assert (said.code, said.err) == (0, "") and NAME in said.out and "accepted/" in said.out
    said = cli("compare", "-f", "json")
    assert said.code == 0
    (change,) = [change for change in said.document["changes"] if change["name"] == NAME]
    assert change["accepted"] == "an exact softmax" and change["outcome"] == "unchanged"
    write(make_run(2, slower=SLOWER, branch="topic"))
    assert cli("compare", run_id_of(0), run_id_of(2)).code == 0
    write(make_run(3, slower={f"{CASES[0]}-fused": 1.4}))
    assert cli("compare", run_id_of(0), run_id_of(3)).code == 1


@pytest.mark.parametrize(("again", "p50_ns"), [(None, 120_000), (1.3, 124_900)])
def test_a_level_of_all_measurements_of_a_run_is_stored(cli: Cli, again: float | None, p50_ns: float) -> None:
    """A run whose suspects were measured again has two of them."""
    write(make_run(0, slower=SLOWER))
    if again:
        write(make_run(1, slower={f"{CASES[0]}-fused": again}, confirms=run_id_of(0)))
    assert cli("accept", NAME, "--reason", " because ", "--run", run_id_of(0)[:13]).code == 0
    ((series, found),) = read_acceptances("results").value.items()
    assert series.name == NAME and (found.run_id, found.reason) == (run_id_of(0), "because")
    assert found.p50_ns == pytest.approx(p50_ns, rel=0.01)
    assert (found.exact["kernels_per_call"], found.exact["margin"]) == (1, 0.75) and found.definition_hash == "d" * 16


def test_a_glob_accepts_all_that_it_fits(cli: Cli) -> None:
    write(make_run(0))
    said = cli("accept", f"{SUITE}::rms_norm[*tokens=*-fused-eager", "--reason", "x", "-f", "json")
    assert said.code == 0 and len(said.document["accepted"]) == 2
    assert len(read_acceptances("results").value) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reason", "x", NAME.replace("fused", "fussed")], f"did you mean {NAME}"),
        (["--reason", "  ", NAME], "--reason is empty, expected a sentence"),
        (["--reason", "x", NAME, "--run", "nonsense"], "'nonsense' names no run"),
        (["--reason", "x", NAME, "--device", "B200"], "--device B200 is in no record"),
        (["--reason", "x", f"{SUITE}::{CASES[1]}-fused-eager"], "has no level to accept in run .*: oom: made up"),
        (["--reason", "x", f"{SUITE}::{CASES[1]}-baseline-eager"], "has no level to accept .*nan"),
    ],
)
def test_refusals(cli: Cli, arguments: list[str], words: str) -> None:
    whole, (baseline, fused) = make_run(0, cases=CASES[:1]), make_run(0, cases=CASES[1:])
    write([*whole, replace(baseline, round_p50_ns=(float("nan"),) * 5), ended(fused, "oom")])
    said = cli("accept", *arguments)
    assert said.code == 2 and not said.out and re.search(words.replace("[", r"\["), said.err), said.err
    assert not Path("results/accepted").exists()


def test_several_device_models_have_to_be_told_apart(cli: Cli) -> None:
    write((*make_run(0), *make_run(0, device_name="NVIDIA B200")))
    said = cli("accept", NAME, "--reason", "x")
    assert said.code == 2 and "was measured on NVIDIA B200, NVIDIA H200; say which with --device" in said.err
    assert cli("accept", NAME, "--reason", "x", "--device-name", "h200").code == 0
    assert [series.device_name for series in read_acceptances("results").value] == ["NVIDIA H200"]


def test_a_series_is_named_as_run_names_cases(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    said = cli("accept", CASES[0], "-i", "fused", "--reason", "so it is", "-f", "json")
    assert said.code == 0 and [row["series"] for row in said.document["accepted"]] == [NAME], said.err
    assert cli("trend", CASES[0], "-i", "fused", "--mode", "eager").code in (0, 3)
    said = cli("trend", CASES[0], "-i", "nobody")
    assert said.code == 2 and "is not in store" in said.err
    said = cli("show", "-i", "fused", "-f", "json")
    assert said.code == 0 and {row["implementation"] for row in said.document["records"]} == {"baseline", "fused"}
    said = cli("show", "--mode", "graph")
    assert said.code == 2 and "--mode graph selects nothing of run" in said.err


@pytest.mark.parametrize(
    ("options", "devices"),
    [
        (["--device", "cuda"], {"NVIDIA H200", "NVIDIA H200 NVL"}),
        (["--device", "h200"], {"NVIDIA H200", "NVIDIA H200 NVL"}),
        (["-d", "nvidia h200"], {"NVIDIA H200"}),
        (["--device-name", "NVL"], {"NVIDIA H200 NVL"}),
        ([CASES[1], "--device", "auto"], {"NVIDIA H200", "NVIDIA H200 NVL"}),
        (["latest", SUITE, "-i", "fused"], {"NVIDIA H200", "NVIDIA H200 NVL"}),
        (["--tier", "smoke"], set()),
        (["another.py"], set()),
    ],
)
def test_what_is_stored_is_chosen_by_the_options_of_run(cli: Cli, options: list[str], devices: set[str]) -> None:
    write((*make_run(0), *make_run(0, device_name="NVIDIA H200 NVL")))
    said = cli("show", *options, "-f", "json")
    assert said.code == (0 if devices else 2), said.err
    if devices:
        assert {row["device_name"] for row in said.document["records"]} == devices
        assert (CASES[0] in {row["case"] for row in said.document["records"]}) == (CASES[1] not in options)


def test_compare_and_plot_choose_in_the_same_words(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    for verb in (("compare", "latest~1", "latest"), ("plot",)):
        nothing = cli(*verb, "--tier", "smoke")
        assert nothing.code == 2 and "--tier smoke selects nothing" in nothing.err
        assert cli(*verb, "--device", "cuda", "--tier", "real,headline", "-f", "json").code == 0
    for verb in (("compare", "latest~1", "latest"), ("plot",), ("show",)):
        misspelt = cli(*verb, "-i", "nobody", "--device", "cuda")
        assert misspelt.code == 2 and "-i nobody --device cuda selects nothing" in misspelt.err, "baselines alone"
    write(*[[record for record in make_run(2) if record.implementation == "baseline"]])
    gone = cli("compare", "latest~1", "latest", "-i", "fused", "-f", "json")
    assert gone.code == 0 and gone.outcomes == {"unchanged": 2, "missing": 2}, "the reference has it"


def test_a_level_is_that_of_the_newest_run_that_had_time_for_the_series(cli: Cli) -> None:
    newest = [
        replace(record, status="skipped", reason=OUT_OF_BUDGET, call_p50_ns=None) if record.case == CASES[0] else record
        for record in make_run(2)
    ]
    write(make_run(0), make_run(1), newest)
    said = cli("accept", NAME, "--reason", "so it is")
    assert said.code == 0 and run_id_of(1) in said.out, said.err
    said = cli("accept", NAME, "--reason", "so it is", "--run", "latest")
    assert said.code == 2 and said.err
