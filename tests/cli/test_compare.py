"""`pairbench compare` on made-up stores: what is judged, what is gone, outputs and exit codes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders import CASES, make_run, run_id_of
from tests.cli.compared import SLOWER, Cli, files, reference_of, write

# What is judged


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


def test_without_a_plan_to_fail_an_undecided_series_only_fails_under_strict(cli: Cli) -> None:
    write(make_run(0, cv=0.2), make_run(1, cv=0.2))
    assert (cli("compare").code, cli("compare", "--strict").code) == (0, 3)


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


def test_files_and_other_stores_are_sides(cli: Cli) -> None:
    write(make_run(0), make_run(1, slower=SLOWER))
    write(*(make_run(number) for number in range(10, 13)), store="elsewhere")
    first, second = files()
    assert cli("compare", str(first), str(second)).code == 1
    said = cli("compare", str(first), str(first))
    assert said.code == 2 and "is the current side itself" in said.err
    said = cli("compare", "elsewhere", "latest", "-f", "json")
    assert said.code == 1 and reference_of(said) == [10, 11, 12]


# What is gone


def test_a_vanished_case_is_missing(cli: Cli) -> None:
    write(make_run(0), make_run(1, cases=CASES[:1]))
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 2, "missing": 2}
    assert cli("compare", "--strict").code == 3


def test_a_renamed_case_is_missing_and_new(cli: Cli) -> None:
    write(make_run(0), make_run(1, cases=[CASES[0], CASES[1].replace("tokens", "rows")]))
    said = cli("compare", "-f", "json")
    assert said.outcomes == {"unchanged": 2, "missing": 2, "new": 2}
    assert "renamed to" in said.out


def test_what_vanished_before_the_reference_is_no_news(cli: Cli) -> None:
    write(make_run(0), make_run(1, cases=CASES[:1]), make_run(2, cases=CASES[:1]))
    assert cli("compare", "-f", "json", "--strict").outcomes == {"unchanged": 2}


def asked(select: list[list[str | None]], **changes: Any) -> dict[str, Any]:
    found = {"select": select, "suites": ["suites/norm.py"], "tiers": ["real"], "modes": ["eager"], **changes}
    return {"environment": json.dumps({"observed": {"asked": found}})}


@pytest.mark.parametrize(
    ("select", "missing"),
    [
        ([], 2),
        ([["suites/norm.py", None]], 2),
        ([[None, "rms_*"]], 2),
        ([[None, CASES[1]]], 2),
        ([["suites/norm.py", CASES[0]]], 0),
        ([["suites/conv.py", None]], 0),
        ([[None, "softmax"]], 0),
    ],
)
def test_what_nobody_asked_for_is_not_missing(cli: Cli, select: list[list[str | None]], missing: int) -> None:
    write(make_run(0), make_run(1, cases=CASES[:1], **asked(select)))
    outcomes = cli("compare", "-f", "json").outcomes
    assert outcomes.get("missing", 0) == missing and outcomes["unchanged"] == 2
    assert cli("compare", run_id_of(0), run_id_of(1), "-f", "json").outcomes == outcomes


@pytest.mark.parametrize("changes", [{"tiers": ["smoke"]}, {"modes": ["graph"]}, {"suites": ["mine/norm.py"]}])
def test_other_tiers_modes_and_folders_were_not_asked_for(cli: Cli, changes: dict[str, list[str]]) -> None:
    write(make_run(0), make_run(1, cases=CASES[:1], **asked([], **changes)))
    assert "missing" not in cli("compare", "-f", "json").outcomes


@pytest.mark.parametrize(("wanted", "missing"), [([], 2), (["fu*"], 1), (["fused", "baseline"], 2), (["gone"], 0)])
def test_other_implementations_were_not_asked_for(cli: Cli, wanted: list[str], missing: int) -> None:
    write(make_run(0), make_run(1, cases=CASES[:1], **asked([], implementations=wanted)))
    assert cli("compare", "-f", "json").outcomes.get("missing", 0) == missing


def test_a_suite_file_that_is_gone_is_missing(cli: Cli) -> None:
    write((*make_run(0), *make_run(0, cases=["conv[n=1]"], suite="suites/gone.py")), make_run(1, **asked([])))
    assert cli("compare", "-f", "json").outcomes == {"unchanged": 4, "missing": 2}


# Where it is shown


def test_markdown_and_json(cli: Cli) -> None:
    write(make_run(0), make_run(1, slower=SLOWER))
    assert "|" in cli("compare", "-f", "markdown").out
    assert cli("compare", "-f", "json").document["outcomes"]["regression"] == 1
    said = cli("compare", "-f", "xml")
    assert said.code == 2 and "--format 'xml' is unknown" in said.err


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
