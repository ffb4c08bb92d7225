"""`pairbench compare` on made-up stores: verdicts and exit codes, what is gone, and bad input, which never passes for good."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.record import Series
from pairbench.workflow.requested import Requested
from tests.builders import CASES, make_run, run_id_of
from tests.cli.conftest import SLOWER, Cli, write


def record_files() -> list[Path]:
    return sorted(Path("results/records").rglob("*.parquet"))


def test_nothing_changed(cli: Cli) -> None:
    write(*(make_run(number) for number in range(4)))
    said = cli("compare", "--strict")
    assert said.code == 0 and not said.err
    assert "no regression, 4 unchanged" in said.out and "3 runs" in said.out


def test_a_regression_fails_and_is_laid_at_the_codes_door(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)), make_run(3, slower=SLOWER))
    said = cli("compare", "-f", "json")
    assert said.code == 1
    assert said.outcomes == {"regression": 1, "unchanged": 3}
    (change,) = [change for change in said.document["changes"] if change["outcome"] == "regression"]
    assert change["name"].endswith(f"{CASES[0]}-fused-eager") and change["attribution"] == "code"
    assert "|" in cli("compare", "-f", "markdown").out


def test_the_smallest_effect_is_in_percent(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)), make_run(3, slower={"fused": 1.05}))
    assert cli("compare").code == 1
    assert cli("compare", "--min-effect", "20").code == 0
    said = cli("compare", "--min-effect", "0")
    assert said.code == 2 and "--min-effect is 0, expected a percentage between 0 and 100, such as 2" in said.err


def test_a_selection_is_of_both_sides(cli: Cli) -> None:
    write(make_run(0), make_run(1, slower=SLOWER))
    said = cli("compare", "--select", CASES[1], "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 2}
    said = cli("compare", "--select", "conv*")
    assert said.code == 2 and "'conv*' selects nothing of" in said.err


def test_a_case_that_vanished_is_missing_and_a_renamed_one_is_new_as_well(cli: Cli) -> None:
    write(make_run(0), make_run(1, cases=[CASES[0], CASES[1].replace("tokens", "rows")]))
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 2, "missing": 2, "new": 2} and "renamed to" in said.out
    write(make_run(2, cases=CASES[:1]), make_run(3, cases=CASES[:1]))
    said = cli("compare", "-f", "json", "--strict")
    assert said.outcomes == {"unchanged": 2}, "what vanished before the reference is no news"


def asked(**changes: Any) -> str:
    """Return the environment of a run that was asked for all of one suite, or for something else."""
    wanted = {"select": [], "suites": ["suites/norm.py"], "tiers": ["real"], "modes": ["eager"], **changes}
    return json.dumps({"observed": {"asked": wanted}})


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        ({}, 2),
        ({"select": [["suites/norm.py", None]]}, 2),
        ({"select": [[None, "rms_*"]]}, 2),
        ({"select": [[None, CASES[1]]]}, 2),
        ({"select": [["suites/norm.py", CASES[0]]]}, 0),
        ({"select": [["suites/conv.py", None]]}, 0),
        ({"select": [[None, "softmax"]]}, 0),
        ({"tiers": ["smoke"]}, 0),
        ({"modes": ["graph"]}, 0),
        ({"suites": ["mine/norm.py"]}, 0),
        ({"implementations": ["fu*"]}, 1),
        ({"implementations": ["fused", "baseline"]}, 2),
        ({"implementations": ["gone"]}, 0),
    ],
)
def test_a_run_says_which_series_it_was_asked_for(changes: dict[str, Any], covered: int) -> None:
    requested = Requested.read(asked(**changes), {})
    of_case = [series for record in make_run(0, cases=CASES[1:]) if (series := Series.of(record))]
    assert requested and sum(requested.covers(series, "real") for series in of_case) == covered


def test_what_a_run_was_not_asked_for_is_not_missing_and_a_suite_that_is_gone_is(cli: Cli) -> None:
    gone = make_run(0, cases=["conv[n=1]"], suite="suites/gone.py")
    write((*make_run(0), *gone), make_run(1, cases=CASES[:1], environment=asked()))
    assert cli("compare", "-f", "json").outcomes == {"unchanged": 2, "missing": 4}
    write(make_run(2, cases=CASES[:1], environment=asked(select=[[None, CASES[0]]])))
    assert cli("compare", "-f", "json").outcomes == {"unchanged": 2}
    assert cli("compare", run_id_of(0), run_id_of(2), "-f", "json").outcomes == {"unchanged": 2}


def test_on_github(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    write(make_run(0), make_run(1, slower=SLOWER))
    Path("summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert "::error" not in cli("compare").err
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    said = cli("compare", "-f", "json")
    assert re.search(r"^::error ", said.err, re.MULTILINE) and "::error" not in said.out
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("before\n") and summary.count(cli("compare", "-f", "markdown").out) >= 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such/folder.md")
    assert "GITHUB_STEP_SUMMARY 'no/such/folder.md' cannot be written" in cli("compare").err


def test_the_first_run_has_nothing_to_compare_with(cli: Cli) -> None:
    write(make_run(0))
    said = cli("compare")
    assert said.code == 0 and "nothing to compare with" in said.err and "no earlier run at all" in said.err
    said = cli("compare", "--strict", "-f", "json")
    assert said.code == 3 and said.outcomes == {"new": 4}
    said = cli("compare", "last:5")
    assert said.code == 0 and "there is no run of 'last:5' earlier than the current one" in said.err


def test_no_such_side(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    said = cli("compare", "nonsense")
    assert said.code == 2 and "'nonsense' names no run" in said.err and run_id_of(1) in said.err


def test_a_bad_file_among_good_ones_is_named_and_skipped(cli: Cli) -> None:
    write(*(make_run(number) for number in range(4)))
    bad = record_files()[1]
    bad.write_bytes(bad.read_bytes()[:5000])
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 4}
    assert str(bad) in said.err and any(str(bad) in problem for problem in said.document["problems"])
    assert cli("compare", "--strict").code == 3


def test_when_the_newest_run_cannot_be_read_an_older_one_does_not_pass_for_it(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)))
    bad = record_files()[-1]
    bad.write_bytes(bad.read_bytes()[:500])
    said = cli("compare", "-f", "json")
    assert said.code == 4 and f"the newest run may be in a file that cannot be read: {bad.absolute()}" in said.err
    assert said.document["current"]["runs"] == [run_id_of(1)]
    assert cli("compare", "auto", run_id_of(1)).code == 0
    said = cli("compare", "auto", run_id_of(2))
    assert said.code == 2 and str(bad) in said.err


def test_a_start_that_does_not_fit_the_id_is_named(cli: Cli) -> None:
    write(make_run(0), [replace(record, started_at="2023-12-31T00:00:00+00:00") for record in make_run(1)])
    said = cli("compare", "-f", "json")
    assert said.document["reference"]["runs"] == [run_id_of(0)], "the order of the ids holds"
    assert (
        f"run {run_id_of(1)} started at 2023-12-31T00:00:00+00:00 by its records, which is not what its id says"
        in said.err
    )
    assert f"run {run_id_of(0)} of the reference started at 2024-01-01T00:00:00.000+00:00, after" in said.err
    assert (said.code, cli("compare", "--strict").code) == (0, 3)


def test_a_run_that_is_there_twice_counts_once_and_is_named(cli: Cli) -> None:
    """Copied whole, or of another machine that gave the same id."""
    write(*(make_run(number) for number in range(3)))
    first, second, _ = record_files()
    shutil.copy(first, first.with_name(f"copy-{first.name}"))
    write(make_run(1, hostname="other", slower=SLOWER), store="theirs")
    (theirs,) = Path("theirs/records").rglob("*.parquet")
    (second.parents[1] / "month=2031-01").mkdir()
    shutil.copy(theirs, second.parents[1] / "month=2031-01")
    said = cli("compare", "-f", "json")
    assert said.outcomes == {"unchanged": 4}
    twice = "is in the store more than once: 4 of its rows are there again"
    assert f"run {run_id_of(0)} {twice}, the same" in said.err
    assert f"run {run_id_of(1)} {twice}, 4 of them with other values" in said.err
    assert cli("compare", "--strict").code == 3


def test_one_id_on_two_device_models_is_two_runs(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    write(make_run(1, device_name="NVIDIA B200", hostname="other"), store="theirs")
    shutil.copytree("theirs", "results", dirs_exist_ok=True)
    said = cli("compare", "-f", "json")
    assert not said.err and said.outcomes == {"unchanged": 4, "new": 4}


@pytest.mark.parametrize("value", [float("nan"), 0.0, None])
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_that_are_none_never_pass(cli: Cli, value: float | None, side: int) -> None:
    rounds = None if value is None else (value,) * 5
    runs = [make_run(0), make_run(1)]
    spoilt: dict[str, Any] = dict.fromkeys(("call_p50_ns", "speedup", "margin"), value)
    spoilt |= {"round_p50_ns": rounds, "round_p95_ns": rounds}
    write(*(make_run(number, **spoilt) if number == side else run for number, run in enumerate(runs)))
    said = cli("compare", "--strict", "-f", "json")
    assert said.code in (1, 3) and "unchanged" not in said.outcomes


def test_a_damaged_acceptance_is_named(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    Path("results/accepted").mkdir()
    Path("results/accepted/1.json").write_text("{")
    said = cli("compare")
    assert said.code == 0 and "accepted/1.json: cannot be read" in said.err
    assert cli("compare", "--strict").code == 3
