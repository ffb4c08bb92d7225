"""doctor, list, verify and show, and what every verb says to wrong arguments."""

import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SUITES, Cli, Pairbench, files, settle
from tests.commands import Done, call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "no_such_file.py"], "'no_such_file.py' does not exist, expected a file or a folder of suite files"),
        (["run", "--mode", "fast"], "mode 'fast' is unknown, expected one of eager, compile, graph"),
        (["run", "--rounds", "0"], "setting 'rounds' is 0, expected more than 0"),
        (["run", "--rounds", "many"], "Invalid value for '--rounds'"),
        (["run", "--budget=10d"], "expected a length of time such as '90s'"),
        (["calibrate", "--runs", "1"], "--runs is 1, expected at least 2"),
        (["list", "--format", "xml"], "--format 'xml' is unknown, expected one of table, markdown, json"),
        (["show", "--store", "nowhere"], "nowhere"),
        (["export"], "pytest-benchmark or csv"),
        (["fly"], "fly"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_have_a_sentence_and_exit_code_2(cli: Cli, arguments: list[str], words: str) -> None:
    said = cli(*arguments)
    assert said.code == 2 and words in said.err and not said.out, said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "good.py::shift"], "selects nothing; operators are: extremes, linear, running_total, shifts"),
        (["run", "good.py", "-i", "nme*"], "--implementation 'nme*' is none of the selected operators', which have "),
        (["run", "good.py", "--device", "cuda:7"], "--device 'cuda:7' is not here, expected auto, all or one of"),
        (["run", "good.py", "--timer", "do_bench", "--device", "cpu"], "--timer do_bench needs a CUDA device"),
        (["list", "good.py::shift"], "selects nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_arguments_that_fit_no_suite_have_a_sentence_and_exit_code_2(
    surveyed: Cli, arguments: list[str], words: str
) -> None:
    said = surveyed(*(word.replace("good.py", f"{SUITES}/good.py") for word in arguments))
    assert said.code == 2 and words in said.err and not said.out, said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "broken.py", "--format", "json"), "SyntaxError"),
        (("list", "nowhere.py", "--format=json"), "does not exist"),
        (("show", "-fjson"), "store"),
        (("trend", "-f", "json"), "Missing argument 'SERIES'"),
    ],
)
def test_a_mistake_is_json_where_json_is_asked_for(
    surveyed: Cli, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    done = surveyed(*words)
    assert said in done.document["error"] and done.document["error"] in done.err
    assert done.document["exit_code"] == done.code == 2


def test_doctor(quick: Pairbench) -> None:
    done = quick("doctor", "--device", "cpu", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = {row["what"]: row for row in json.loads(done.stdout)["doctor"]}
    assert {"Device", "Versions", "Ceilings", "Host memory", "Triton", "C++ compiler", "CPU clock", "Isolation"} <= set(
        found
    )
    assert found["Triton"]["state"] == "limited" and "interpreter" in found["Triton"]["detail"]
    assert "torch " in found["Versions"]["detail"] and "copy_gbps" in found["Ceilings"]["detail"]
    assert {row["state"] for row in found.values()} <= {"ok", "limited", "missing", "unknown"}


def test_a_suite_that_is_named_and_found_is_loaded_once(quick: Pairbench, tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    shutil.copy(SUITES / "good.py", tmp_path / "ops")
    (tmp_path / "pyproject.toml").write_text('[tool.pairbench]\nsuites = ["ops"]\n')
    key = "shifts[columns=1,dtype=float32,rows=1]"
    done = quick("list", "ops/good.py", "ops/good.py::*", key, "-f", "json", folder=tmp_path)
    cases = [row["case"] for row in json.loads(done.stdout)["cases"]]
    assert key in cases and len(cases) == len(set(cases))


def test_list_names_broken_suites_and_shows_the_rest(quick: Pairbench) -> None:
    done = quick("list", f"{SUITES}/good.py", f"{SUITES}/import_error.py")
    assert done.returncode == 2
    assert "shifts[columns=1,dtype=float32,rows=1]" in done.stdout
    assert "pairbench: suite import_error.py, line 3: ModuleNotFoundError" in done.stderr


def test_a_passing_impostor_makes_verify_fail(audited: dict[str, Any], audited_run: Done) -> None:
    assert audited_run.returncode == 1
    passed = [row for row in audited["impostors"] if not row["rejected"]]
    assert {row["operator"] for row in passed} == {"impostor_passes"} and all(row["declared"] for row in passed)
    reasons = {(row["impostor"], row["case"]): row["reason"] for row in passed}
    assert {name for name, _ in reasons} == {"not_one", "right_of_four"} and len(reasons) == 3
    for (name, case), reason in reasons.items():
        blamed = f"{case} cannot tell it from the baseline, and 1 other case rejects it; declare it as Variant(function, valid=...)"
        assert (blamed in reason) == (name == "right_of_four") == ("tolerance" not in reason), reason


def test_an_impostor_that_crashes_is_rejected_and_harms_nothing_else(audited: dict[str, Any]) -> None:
    rows = [row for row in audited["impostors"] if row["operator"] == "impostor_crashes" and row["declared"]]
    assert {row["impostor"]: row["rejected"] for row in rows} == {"wrong": True, "exits": True, "also_wrong": True}
    assert [row["reason"] for row in rows if row["impostor"] == "exits"] == ["ended its process with exit status 3"]
    automatic = [row["impostor"] for row in audited["impostors"] if row["operator"] == "impostor_crashes"]
    assert len(automatic) == len(set(automatic))
    verified = [row for row in audited["verifications"] if row["operator"] == "impostor_crashes"]
    assert {row["status"] for row in verified} == {"verified"}


def test_verify_takes_all_impostors_edge_cases_and_triton_through_its_interpreter(audited: dict[str, Any]) -> None:
    tried = {(row["operator"], row["impostor"], row["declared"]) for row in audited["impostors"]}
    assert {("shifts", "twice", True), ("shifts", "zeros of output 0", False)} <= tried
    found = {(row["case"], row["implementation"]): row for row in audited["verifications"]}
    assert found["shifts[columns=1,dtype=float32,rows=1]", "named"]["status"] == "verified"
    for rows in (1, 5):
        kernel = found[f"interpreted[dtype=float32,rows={rows}]", "kernel"]
        assert kernel["status"] == "verified" and kernel["margin"] == 1
        wrong = found[f"interpreted_wrong[dtype=float32,rows={rows}]", "kernel"]
        assert wrong["status"] == "mismatched"
    assert "linear[columns=16,dtype=float32,rows=4]" in {case for case, _ in found}


@pytest.fixture
def held(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Hold the lock of the CPU, and return the environment of commands that would have to wait for it."""
    locks = tmp_path / "places" / "locks"
    locks.mkdir(parents=True, mode=0o700)
    environment = settle(locks.parent)
    locks.chmod(0o700)
    with (locks / "cpu.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield {**environment, "PAIRBENCH_LOCKS": str(locks)}


def test_verify_of_what_is_right_leaves_nothing_behind_and_waits_for_no_device(
    held: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = call(folder, held, "verify", f"{SUITES}/good.py::extremes", "--impostors", "--device", "cpu")
    assert done.returncode == 0 and "waiting for it" not in done.stderr, done.stderr
    assert "4 verified" in done.stdout and "automatic" in done.stdout
    assert "oracle_ratio: largest error over the baseline's" in done.stdout
    assert list(folder.iterdir()) == []


def test_a_run_that_is_not_stored(pairbench: Pairbench, tmp_path: Path) -> None:
    suite = f"{SUITES}/good.py::running_total"
    done = pairbench("run", suite, "--device", "cpu", "--no-store", "--format", "markdown")
    assert done.returncode == 0 and ", not stored\n" in done.stdout and "speedup" in done.stdout, done.stderr
    assert not (tmp_path / "results").exists() and "| " in done.stdout
    for closing in ("What ended the measuring: ", "Blocks measured again because the device throttled: 0"):
        assert any(line.startswith(closing) for line in done.stdout.splitlines()[-5:]), done.stdout


@pytest.mark.parametrize("other", ["--confirm", "--skip-existing", "--store=elsewhere"])
def test_what_a_run_that_is_not_stored_cannot_do(cli: Cli, other: str) -> None:
    refused = cli("run", f"{SUITES}/good.py::shifts", "--device", "cpu", "--no-store", other)
    assert refused.code == 2 and "--no-store keeps nothing" in refused.err


def test_what_cannot_be_loaded_is_neither_verified_nor_run_and_waits_for_no_device(
    held: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    verified = call(folder, held, "verify", *files("no_operator"), "--device", "cpu", "-f", "json")
    document = json.loads(verified.stdout)
    assert [Path(suite["suite"]).name for suite in document["broken_suites"]] == ["no_operator.py"]
    assert document["verifications"] == []
    run = call(folder, held, "run", *files("no_operator"), "--device", "cpu")
    assert "suite no_operator.py" in run.stderr and not run.stdout and "waiting for it" not in run.stderr
    assert run.returncode == verified.returncode == 2
    assert list(folder.iterdir()) == []


def test_a_run_is_shown(cli: Cli, fine: dict[str, Any], fine_store: Path) -> None:
    store = ("--store", str(fine_store))
    whole = cli("show", *store)
    assert whole.code == 0 and "shifts" in whole.out and "even_rows" in whole.out
    assert cli("show", fine["run_id"][:11], *store).out == whole.out
    assert len(cli("show", "latest", "-f", "json", *store).document["records"]) == len(fine["records"])
    (found,) = cli("show", "--runs", "-f", "json", *store).document["runs"]
    assert found["run_id"] == fine["run_id"] and found["n_records"] == len(fine["records"])
    assert found["statuses"] == fine["summary"]["statuses"]


def test_a_part_of_a_run_is_shown(cli: Cli, fine_store: Path) -> None:
    store, axes = ("--store", str(fine_store)), "[columns=16,dtype=float32,rows=4]"
    found = cli("show", "-s", f"shifts{axes}", "-s", "running*", "-f", "json", *store)
    assert {row["case"] for row in found.document["records"]} == {f"shifts{axes}", f"running_total{axes}"}
    for words, said in ((("--select", "no_such"), "selects nothing of run"), (("1999",), "1999")):
        nothing = cli("show", *words, *store)
        assert nothing.code == 2 and said in nothing.err


BY_POSITION = """
from pairbench import Operator, Variant

def pair(name, baseline, variant, **more):
    inputs = lambda make, n: (make.normal(n, 8), make.normal(8, 8))
    return Operator(name, baseline=baseline, variants={"v": variant}, inputs=inputs, cases=[{"n": 8}], **more)

PAIRS = [
    pair("consumes", lambda x, w: x * x * w, Variant(lambda a, b: a.mul_(a) * b, consumes=["0"])),
    pair("learns", lambda x, w: x * x * w, lambda *both: both[0].pow(2) * both[1], gradients=["0", "1"]),
    pair("state", lambda x, w: w.add_(x), lambda a, b: b.add_(a), state=["1"], reset=True),
    pair("prepared", lambda x, w: x @ w, Variant(lambda a, b: a @ b, prepare=lambda b: {"1": b.clone()}), constants=["1"]),
    pair("another", lambda x, w: x @ w, lambda a: a),
]
"""


def test_arguments_by_position_in_every_declaration(quick: Pairbench, tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(BY_POSITION)
    done = quick("verify", "ops.py", "--device", "cpu", "-f", "json", folder=tmp_path)
    rows = json.loads(done.stdout)["verifications"]
    assert len(rows) == 14 and done.returncode == 1
    for row in rows:
        wrong = (row["operator"], row["implementation"]) == ("another", "v")
        assert row["status"] == ("failed" if wrong else "verified"), row
        assert not wrong or "too many positional arguments" in row["reason"]
