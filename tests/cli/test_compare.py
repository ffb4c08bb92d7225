"""`pairbench compare` on made-up stores: the default reference, what bad input gets, outputs and exit codes."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.model.record import Record
from pairbench.workflow.compare import reference
from tests.builders import CASES, DEVICE, ended, make_run, only, run_id_of, sha, write_runs
from tests.in_process import Said, call_main

ROOT = Path(__file__).parents[2]
SLOWER = {f"{CASES[0]}-fused": 1.2}


class Compared(Said):
    """What `compare` came to."""

    @property
    def outcomes(self) -> dict[str, int]:
        return {name: number for name, number in self.document["outcomes"].items() if number}


Cli = Callable[..., Compared]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process, in an empty folder that is no checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Compared:
        said = call_main(tmp_path, *arguments)
        assert "Traceback" not in said.err, said.err
        return Compared(said.code, said.out, said.err)

    return run


def write(*runs: Sequence[Record], store: str = "results") -> None:
    write_runs(store, *runs)


def files() -> list[Path]:
    return sorted(Path("results/records").rglob("*.parquet"))


def reference_of(said: Compared) -> list[int]:
    ids = {run_id_of(number): number for number in range(100)}
    return [ids[run] for run in said.document["reference"]["runs"]]


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


@pytest.mark.parametrize(
    "arguments",
    [[run_id_of(0), run_id_of(2)], [sha(0)[:9], sha(2)], ["2024-01-01T00:00", "latest"], ["last:1", "auto"]],
)
def test_both_sides_can_be_named(cli: Cli, arguments: list[str]) -> None:
    write(make_run(0), make_run(2, slower=SLOWER))
    said = cli("compare", *arguments, "-f", "json")
    assert said.code == 1 and reference_of(said) == [0]


def test_files_and_other_stores_are_sides(cli: Cli) -> None:
    write(make_run(0), make_run(1, slower=SLOWER))
    write(*(make_run(number) for number in range(10, 13)), store="elsewhere")
    first, second = files()
    assert cli("compare", str(first), str(second)).code == 1
    said = cli("compare", str(first), str(first))
    assert said.code == 2 and "is the current side itself" in said.err
    said = cli("compare", "elsewhere", "latest", "-f", "json")
    assert said.code == 1 and reference_of(said) == [10, 11, 12]


# The default reference


def test_outside_a_checkout_every_earlier_run_is_reference(cli: Cli) -> None:
    write(*(make_run(number) for number in range(8)))
    assert reference_of(cli("compare", "-f", "json")) == [0, 1, 2, 3, 4, 5, 6]


def test_a_large_store_has_less_of_each_series(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "RECORDS", 6 * 4)
    write(*(make_run(number) for number in range(9)))
    assert reference_of(cli("compare", "-f", "json")) == [2, 3, 4, 5, 6, 7]


def test_in_a_checkout_up_to_five_runs_are_reference(cli: Cli) -> None:
    head = checkout()
    write(*(make_run(number, commit=head) for number in range(8)))
    assert reference_of(cli("compare", "-f", "json")) == [2, 3, 4, 5, 6]


def checkout(branch: str = "main") -> str:
    for command in (
        ["init", "-q", "-b", branch],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], check=True, capture_output=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_in_a_checkout_only_the_default_branch_is_reference(cli: Cli) -> None:
    head = checkout()
    write(
        make_run(0),
        make_run(1, branch="topic", slower=SLOWER),
        make_run(2, branch=None, commit=head),  # a detached checkout of a commit on main, as CI has it
        make_run(3, dirty=True, slower=SLOWER),
        make_run(4, branch="topic", dirty=True),
    )
    said = cli("compare", "-f", "json")
    assert said.code == 0 and reference_of(said) == [0, 2] and said.document["reference"]["asked"] == "main"


def test_outside_a_checkout_every_earlier_clean_run_is(cli: Cli) -> None:
    write(make_run(0), make_run(1, branch="topic"), make_run(2, dirty=True), make_run(3, commit=None, branch=None))
    assert reference_of(cli("compare", "-f", "json")) == [0, 1]
    write(make_run(4, commit=None, branch=None))
    checkout()
    assert reference_of(cli("compare", "-f", "json")) == [0, 1, 3]  # nothing is known of where the current run stands


def test_without_any_run_of_the_default_branch_there_is_nothing_to_compare_with(cli: Cli) -> None:
    checkout()
    write(make_run(0, branch="topic"), make_run(1, branch="topic"))
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"new": 4}
    assert "no earlier comparable run of main on NVIDIA H200; earlier runs are" in said.err and run_id_of(0) in said.err
    assert cli("compare", "--strict").code == 3
    assert cli("compare", "topic", "--strict").code == 0


def test_the_same_environment_is_preferred_where_it_was_measured(cli: Cli) -> None:
    new: dict[str, Any] = {"environment_hash": "a" * 16, "driver": "580.2"}
    write(make_run(0, **new), make_run(1), make_run(2), make_run(3, **new))
    assert reference_of(cli("compare", "-f", "json")) == [0]
    write(make_run(4, environment_hash="b" * 16, driver="590.0"))
    said = cli("compare", "-f", "json")
    assert reference_of(said) == [0, 1, 2, 3]
    assert "driver" in json.dumps([change["era"] for change in said.document["changes"]])


def test_runs_of_other_cases_do_not_hide_the_reference(cli: Cli) -> None:
    others = [make_run(number, cases=["conv[n=1]"], suite="suites/conv.py") for number in range(1, 31)]
    write(make_run(0), *others, make_run(31))
    said = cli("compare", "-f", "json", "--strict")
    assert said.code == 0 and said.outcomes == {"unchanged": 4} and reference_of(said) == [0]


def test_each_series_has_its_own_reference(cli: Cli) -> None:
    write(make_run(0, cases=CASES[:1]), make_run(1, cases=CASES[1:]), make_run(2))
    said = cli("compare", "-f", "json")
    assert said.outcomes == {"unchanged": 4}
    runs = {
        change["name"].split("::")[1].split("-")[0]: change["reference_runs"] for change in said.document["changes"]
    }
    assert runs == {CASES[0]: [run_id_of(0)], CASES[1]: [run_id_of(1)]}


def test_another_timer_or_question_is_named_and_not_compared(cli: Cli) -> None:
    write(make_run(0), make_run(1, timer="do_bench"))
    said = cli("compare", "--strict")
    assert said.code == 3 and "another timer: cuda_event -> do_bench" in said.out
    write(make_run(2, definition_hash="e" * 16))
    said = cli("compare", "--strict")
    assert said.code == 3 and "the question changed" in said.out


def test_another_device_model_or_mode_is_named_where_both_sides_are(cli: Cli) -> None:
    write(make_run(0), make_run(1, device_name="NVIDIA B200"), make_run(2, mode="graph"))
    said = cli("compare", run_id_of(0), run_id_of(1), "--strict")
    assert said.code == 3 and "another device model: NVIDIA H200 -> NVIDIA B200" in said.out
    assert re.search(
        r"-fused-eager.*: [\d.]+ us -> [\d.]+ us, [\d.]+x of the time, speedup [\d.]+x -> [\d.]+x", said.out
    )
    assert "x of the time" in cli("compare", run_id_of(0), run_id_of(1), "-f", "markdown").out
    said = cli("compare", run_id_of(0), run_id_of(2), "--strict")
    assert said.code == 3 and "another mode: eager -> graph" in said.out
    said = cli("compare", "auto", run_id_of(1))
    assert said.code == 0 and "no earlier comparable run of any branch on NVIDIA B200" in said.err


def test_a_run_on_two_devices_is_compared_on_both(cli: Cli) -> None:
    both = [(*make_run(number), *make_run(number, device_name="NVIDIA B200")) for number in range(2)]
    write(*both)
    assert cli("compare", "-f", "json").outcomes == {"unchanged": 8}


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


# What bad input gets


def test_the_first_run_has_nothing_to_compare_with(cli: Cli) -> None:
    write(make_run(0))
    said = cli("compare")
    assert said.code == 0 and "nothing to compare with" in said.err and "no earlier run at all" in said.err
    said = cli("compare", "--strict", "-f", "json")
    assert said.code == 3 and said.outcomes == {"new": 4}
    said = cli("compare", "last:5")
    assert (
        said.code == 0
        and "nothing to compare with: there is no run of 'last:5' earlier than the current one" in said.err
    )
    assert cli("compare", "last:5", "--strict").code == 3


def test_an_empty_store(cli: Cli) -> None:
    said = cli("compare")
    assert said.code == 2 and "has no records" in said.err and "pairbench run" in said.err
    Path("results/records").mkdir(parents=True)
    assert cli("compare", "--strict").code == 2


def test_no_such_side(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    said = cli("compare", "nonsense")
    assert said.code == 2 and "'nonsense' names no run" in said.err and run_id_of(1) in said.err


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", "half", "foreign", "zeros"])
def test_a_bad_file_among_good_ones_is_named_and_skipped(cli: Cli, content: bytes | str) -> None:
    write(*(make_run(number) for number in range(4)))
    bad = files()[1]
    whole = bad.read_bytes()
    match content:
        case "half":
            bad.write_bytes(whole[: len(whole) // 2])
        case "foreign":
            pq.write_table(pa.table({"colour": ["red"]}), bad)
        case "zeros":
            bad.write_bytes(whole[:4] + b"\0" * (len(whole) - 20_000) + whole[4 + len(whole) - 20_000 :])
        case bytes():
            bad.write_bytes(content)
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 4}
    assert str(bad) in said.err and any(str(bad) in problem for problem in said.document["problems"])
    assert str(bad) in cli("compare").out
    assert cli("compare", "--strict").code == 3


def test_when_the_newest_run_cannot_be_read_an_older_one_does_not_pass_for_it(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)))
    bad = files()[-1]
    bad.write_bytes(bad.read_bytes()[:500])
    said = cli("compare", "-f", "json")
    assert said.code == 4 and f"the newest run may be in a file that cannot be read: {bad.absolute()}" in said.err
    assert said.document["current"]["runs"] == [run_id_of(1)]
    assert cli("compare", "auto", run_id_of(1)).code == 0
    said = cli("compare", "auto", run_id_of(2))
    assert said.code == 2 and str(bad) in said.err


def test_a_store_of_nothing_but_bad_files(cli: Cli) -> None:
    write(make_run(0))
    files()[0].write_bytes(b"")
    said = cli("compare")
    assert said.code == 2 and "no run of it can be read" in said.err and "parquet: cannot be read" in said.err


def test_all_versions_of_the_schema_are_read(cli: Cli) -> None:
    """The files of both releases hold one run, so one of them is renamed, within."""
    data = ROOT / "tests/store/data"
    folder = Path("results/records/device=nvidia-h200/month=2026-01")
    folder.mkdir(parents=True)
    names = []
    for version in ("v1", "v2"):
        (source,) = (data / version / "records").rglob("*.parquet")
        table = pq.read_table(source, partitioning=None)
        run_id = f"2024010{version[1]}T000000-{version}"
        column = pa.array([run_id] * len(table))
        started = pa.array([f"2024-01-0{version[1]}T00:00:00+00:00"] * len(table))
        for name, values in (("run_id", column), ("started_at", started)):
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)
        if "confirms" in table.column_names:
            table = table.set_column(
                table.schema.get_field_index("confirms"), "confirms", pa.nulls(len(table), pa.string())
            )
        pq.write_table(table, folder / f"{run_id}.parquet")
        names.append(run_id)
    said = cli("compare", names[0], names[1], "-f", "json")
    assert said.code in (0, 1) and not said.document["problems"]
    assert said.document["reference"]["runs"] == names[:1] and sum(said.outcomes.values()) > 1
    said = cli("compare", "-f", "json")
    assert said.document["current"]["runs"] == names[1:]


def test_a_run_from_the_future_is_named_and_left_out(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    write(
        [replace(record, run_id="29990101T000000-ffffff", started_at="2999-01-01T00:00:00Z") for record in make_run(2)]
    )
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.document["current"]["runs"] == [run_id_of(1)]
    assert "run 29990101T000000-ffffff says to have started in the future" in said.err
    assert cli("compare", "--strict").code == 3
    assert cli("compare", "latest", "29990101T000000-ffffff").code == 0


def test_a_start_that_does_not_fit_the_id_is_named(cli: Cli) -> None:
    write(make_run(0), [replace(record, started_at="2023-12-31T00:00:00+00:00") for record in make_run(1)])
    said = cli("compare", "-f", "json")
    assert said.document["reference"]["runs"] == [run_id_of(0)], "the order of the ids holds"
    assert (
        f"run {run_id_of(1)} started at 2023-12-31T00:00:00+00:00 by its records, which is not what its id says"
        in said.err
    )
    assert (
        f"run {run_id_of(0)} of the reference started at 2024-01-01T00:00:00.000+00:00, after the current run"
        in said.err
    )
    assert (said.code, cli("compare", "--strict").code) == (0, 3)


def test_a_run_that_was_copied_twice_counts_once(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)))
    for number, copied in enumerate(files()):
        shutil.copy(copied, copied.with_name(f"copy{number}-{copied.name}"))
        (copied.parents[1] / "month=2031-01").mkdir(exist_ok=True)
        shutil.copy(copied, copied.parents[1] / "month=2031-01" / copied.name)
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 4}
    for number in range(3):
        assert (
            f"run {run_id_of(number)} is in the store more than once: 8 of its rows are there again, the same"
            in said.err
        )
    assert cli("compare", "--strict").code == 3


def test_two_machines_that_gave_the_same_id(cli: Cli) -> None:
    """The same model: one is taken, and it is said. Another model: they are two runs, and nothing is lost."""
    theirs = make_run(1, hostname="other", slower=SLOWER)
    write(make_run(0), make_run(1))
    write(theirs, store="theirs")
    (file,) = Path("theirs/records").rglob("*.parquet")
    other = Path("results/records/device=other/month=2024-01")
    other.mkdir(parents=True)
    shutil.copy(file, other)
    said = cli("compare", "-f", "json")
    assert (
        f"run {run_id_of(1)} is in the store more than once: 4 of its rows are there again, 4 of them with other values"
        in said.err
    )
    assert cli("compare", "--strict").code in (1, 3)
    (other / file.name).unlink()
    write_runs("theirs2", make_run(1, device_name="NVIDIA B200", hostname="other"))
    shutil.copytree("theirs2", "results", dirs_exist_ok=True)
    said = cli("compare", "-f", "json")
    assert not said.err and said.outcomes == {"unchanged": 4, "new": 4}


@pytest.mark.parametrize("status", ["failed", "mismatched", "timeout", "oom"])
def test_a_side_that_failed(cli: Cli, status: str) -> None:
    broken = [ended(record, status) if record.implementation == "fused" else record for record in make_run(1)]
    write(make_run(0), broken)
    said = cli("compare", "-f", "json")
    assert said.code == 1 and said.outcomes == {"failed": 2, "unchanged": 2} and "made up" in said.out
    write(make_run(2))
    said = cli("compare", run_id_of(1), run_id_of(2), "-f", "json")
    assert said.code == 0 and "regression" not in said.outcomes


def test_all_rounds_failed_on_the_reference_side_alone(cli: Cli) -> None:
    write([ended(record, "failed") for record in make_run(0)], make_run(1))
    assert cli("compare").code == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_that_are_none_never_pass(cli: Cli, value: float, side: int) -> None:
    def spoilt(record: Record) -> Record:
        return replace(record, call_p50_ns=value, round_p50_ns=(value,) * 5, speedup=value, margin=value)

    runs = [make_run(0), make_run(1)]
    write(*([spoilt(record) for record in run] if number == side else run for number, run in enumerate(runs)))
    said = cli("compare", "--strict", "-f", "json")
    assert said.code in (1, 3) and "unchanged" not in said.outcomes


def test_a_run_without_rounds(cli: Cli) -> None:
    write(make_run(0), [replace(record, round_p50_ns=None, round_p95_ns=None) for record in make_run(1)])
    assert cli("compare", "--strict").code in (0, 3)


def test_a_suite_that_could_not_be_loaded(cli: Cli) -> None:
    blank: dict[str, Any] = dict.fromkeys(
        ("operator", "case", "implementation", "role", "mode", "tier", "definition_hash")
    )
    (first, *_) = make_run(1)
    write(make_run(0), [replace(ended(first, "failed", "suite norm.py, line 3: SyntaxError"), **blank)])
    said = cli("compare", "auto", run_id_of(1), "-f", "json")
    assert said.code == 1 and said.outcomes == {"failed": 4} and "SyntaxError" in said.out


def test_a_damaged_acceptance_is_named(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    Path("results/accepted").mkdir()
    Path("results/accepted/1.json").write_text("{")
    said = cli("compare")
    assert said.code == 0 and "accepted/1.json: cannot be read" in said.err
    assert cli("compare", "--strict").code == 3


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


def test_a_process_of_its_own(tmp_path: Path, pairbench: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    write_runs(tmp_path / "results", make_run(0), make_run(1, slower=SLOWER))
    done = pairbench("compare", "--strict")
    assert done.returncode == 1 and "1 regression" in done.stdout and DEVICE in done.stdout


def test_only_names_what_it_takes(tmp_path: Path) -> None:
    assert {record.case for record in only(make_run(0), case=CASES[0])} == {CASES[0]}
