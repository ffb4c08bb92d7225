"""Suites that fail in every way: each bad entry has its own record and reason, and harms nobody else."""

import re
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.outcome import NOTHING_RIGHT
from tests.cli.conftest import HOSTILE, RUNS, SUITES
from tests.commands import Done

# Case or operator, implementation, status, part of the reason.
ENDS = [
    ("fails", "raises", "failed", "hostile.py, line 37: RuntimeError: the kernel was built for another shape"),
    ("fails", "other_names", "failed", "takes (input, inplace=False), expected the names that inputs() and prepare()"),
    ("ends", "exits", "failed", "ended its process with exit status 3"),
    ("ends", "exits_quietly", "failed", "ended its process with exit status 0"),
    ("ends", "segfaults", "failed", "signal SIGSEGV (segmentation fault) in hostile.py, line 67"),
    ("wrong", "cropped", "mismatched", "15], the baseline's has ["),
    ("wrong", "by_address", "mismatched", "differs from the baseline's"),
    # By an output of a timed call, or, where one is drawn that is right by chance, by a call on fresh inputs.
    ("wrong", "later", "mismatched", "output differs from the baseline's in 64 of 64 elements"),
    ("wrong", "tail", "mismatched", "output "),
    ("wrong", "in_place", "mismatched", "changes its input 'x'"),
    ("fails", "matmul_precision", "failed", "changes global flags, which are pinned alike for all: matmul.allow_tf32"),
    ("prepare_raises", "prepared", "failed", "line 139: RuntimeError: this layout needs a multiple of 32 columns"),
    ("inputs_raise[dtype=float32,rows=4]", "baseline", "failed", "inputs() failed: hostile.py, line 157: Value"),
    ("inputs_raise[dtype=float32,rows=4]", "good", "failed", "inputs() failed: hostile.py, line 157: ValueError"),
    ("loose", "baseline", "failed", "the tolerance lets impostors through (zeros, mean, shifted by one"),
    ("loose", "good", "failed", "so it cannot tell right from wrong; tighten it"),
    ("ends", "allocates", "oom", "out of memory"),
    ("interpreted_wrong", "kernel", "mismatched", "output "),
    ("strays", "further", "mismatched", "output differs from the baseline's in 1 of 20000 elements"),
]


def rows(document: dict[str, Any], where: str, implementation: str) -> list[dict[str, Any]]:
    return [
        row
        for row in document["records"]
        if where in (row["operator"], row["case"]) and row["implementation"] == implementation
    ]


@pytest.mark.parametrize(("where", "implementation", "status", "reason"), ENDS, ids=lambda text: str(text)[:30])
def test_a_bad_entry_has_its_status_and_reason(
    hostile: dict[str, Any], where: str, implementation: str, status: str, reason: str
) -> None:
    found = rows(hostile, where, implementation)
    assert found
    for row in found:
        assert row["status"] == status and reason in row["reason"], row["reason"]
        assert row["call_p50_ns"] is None and row["n_samples"] is None


def test_every_other_entry_is_measured(hostile: dict[str, Any]) -> None:
    bad = {(where, implementation) for where, implementation, *_ in ENDS}
    others = [
        row
        for row in hostile["records"]
        if not bad & {(row["operator"], row["implementation"]), (row["case"], row["implementation"])}
        and row["operator"] not in ("loose", "strays")
    ]
    assert len(others) == 11
    compared = {row["case"] for row in hostile["records"] if row["role"] == "variant" and row["status"] == "measured"}
    assert {(row["case"], row["implementation"], row["status"], row["reason"]) for row in others} == {
        (row["case"], row["implementation"], "measured", None)
        if row["case"] in compared
        else (row["case"], "baseline", "skipped", NOTHING_RIGHT)
        for row in others
    }
    assert all(row["call_p50_ns"] > 0 and row["n_samples"] >= 10 for row in others if row["case"] in compared)


def test_a_stray_is_let_through_where_the_baseline_is_off_and_said(hostile: dict[str, Any]) -> None:
    (row,) = rows(hostile, "strays", "nearer")
    assert row["status"] == "measured" and row["mismatched_fraction"] == 1 / 20_000
    # Where other processes are at work, its speedup may be withheld besides.
    assert row["reason"].startswith(
        "elements beyond the tolerance to the baseline that the float64 oracle finds right: 1"
    )


def test_a_bad_entry_makes_the_exit_code_1_and_no_traceback_reaches_the_user(hostile_run: Done) -> None:
    assert hostile_run.returncode == 1 and "Traceback" not in hostile_run.stderr


def test_a_hang_ends_at_the_timeout(broken: dict[str, Any]) -> None:
    (bad,) = rows(broken, "hangs", "hangs")
    assert bad["status"] == "timeout"
    assert "still running after the 3 s that one implementation has in a stage" in bad["reason"]
    assert [row["status"] for name in ("baseline", "good") for row in rows(broken, "hangs", name)] == ["measured"] * 2
    assert broken["summary"]["wall_s"] < 100


REASONS = {
    "import_error": "line 3: ModuleNotFoundError: No module named 'a_package_that_nobody_has_installed'",
    "syntax_error": "suite syntax_error.py, line 5: SyntaxError: invalid syntax",
    "dies_on_import": "suite dies_on_import.py: loading it ended its process with exit status 3",
    "no_operator": "suite no_operator.py: declares no operator",
}


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_file_has_its_own_record(broken: dict[str, Any], broken_run: Done, name: str) -> None:
    (row,) = [row for row in broken["records"] if row["suite"].endswith(f"/{name}.py")]
    assert row["status"] == "failed" and REASONS[name] in row["reason"]
    assert (row["operator"], row["case"], row["implementation"]) == (None, None, None)
    assert f"pairbench: {row['reason']}" in broken_run.stderr


def test_beside_broken_files_the_good_are_measured(broken: dict[str, Any], broken_run: Done) -> None:
    good = [row["status"] for row in broken["records"] if row["operator"] == "extremes"]
    assert good == 4 * ["measured"]
    assert broken_run.returncode == 2 and "Traceback" not in broken_run.stderr


def test_every_suite_is_tried() -> None:
    """Each file of tests/suites is in a run of these tests, or of those that need a GPU, look into calls or try what declarations add."""
    tried = {Path(argument.partition("::")[0]).stem for run in RUNS.values() for argument in run if ".py" in argument}
    elsewhere = {"gpu", "itself", "exam", "planted", "modules", "slow", "training", "consuming", "appends", "kinds"}
    assert {path.stem for path in SUITES.glob("*.py")} == tried | elsewhere
    declared = re.findall(r"^(\w+) = (?:declare|Operator)\(", (SUITES / "hostile.py").read_text(), re.MULTILINE)
    assert {*declared} == {*HOSTILE, "hangs"}
