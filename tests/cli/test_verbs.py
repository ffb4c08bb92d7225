"""doctor, list, verify and show, help, and what every verb says to wrong arguments."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SUITES, settle
from tests.commands import call

Done = subprocess.CompletedProcess[str]
Pairbench = Callable[..., Done]
VERBS = (
    *("doctor", "list", "verify", "run", "show"),
    *("compare", "ab", "trend", "accept", "calibrate", "breakdown", "diverge"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(quick: Pairbench, verb: str) -> None:
    done = quick(verb, "--help")
    assert done.returncode == 0 and not done.stderr
    assert f"Example: pairbench {verb}" in done.stdout


def test_help_lists_the_verbs_in_the_order_of_use(quick: Pairbench) -> None:
    done = quick("--help")
    places = [done.stdout.index(f" {verb} ") for verb in VERBS]
    assert places == sorted(places)
    assert quick("--version").stdout.startswith("pairbench ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "no_such_file.py"], "'no_such_file.py' does not exist, expected a file or a folder of suite files"),
        (["run", "SUITES/good.py::shift"], "selects nothing; operators are: extremes, linear, running_total, shifts"),
        (["verify", "SUITES/good.py::shift"], "selects nothing"),
        (["list", "SUITES/good.py::shift"], "selects nothing"),
        (
            ["run", "SUITES/good.py", "-i", "nme*"],
            "--implementation 'nme*' is none of the selected operators', which have ",
        ),
        (
            ["run", "SUITES/good.py", "--device", "cuda:7"],
            "--device 'cuda:7' is not here, expected auto, all or one of",
        ),
        (["run", "--mode", "fast"], "mode 'fast' is unknown, expected one of eager, compile, graph"),
        (["run", "--tier", "huge"], "tier 'huge' is unknown, expected one of edge, smoke, real, headline, or all"),
        (["run", "--rounds", "0"], "setting 'rounds' is 0, expected more than 0"),
        (["run", "--timer", "sundial"], "timer 'sundial' is unknown"),
        (["list", "--format", "xml"], "--format 'xml' is unknown, expected one of table, markdown, json"),
        (["run", "SUITES/good.py", "--timer", "do_bench", "--device", "cpu"], "--timer do_bench needs a CUDA device"),
        (["show", "--store", "nowhere"], "nowhere"),
        (["run", "--rounds", "many"], "Invalid value for '--rounds'"),
        (["fly"], "fly"),
    ],
    ids=lambda value: " ".join(value).replace("SUITES/", "")[:40] if isinstance(value, list) else "",
)
def test_wrong_arguments_have_a_sentence_and_exit_code_2(
    quick: Pairbench, suites: Path, arguments: list[str], words: str
) -> None:
    done = quick(*[argument.replace("SUITES", str(suites)) for argument in arguments])
    assert done.returncode == 2, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not done.stdout


def test_doctor(quick: Pairbench) -> None:
    done = quick("doctor", "--device", "cpu", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = {row["what"]: row for row in json.loads(done.stdout)["doctor"]}
    assert {"Device", "Versions", "Ceilings", "Host memory", "Triton", "C++ compiler", "CPU clock"} <= set(found)
    assert found["Triton"]["state"] == "limited" and "interpreter" in found["Triton"]["detail"]
    assert "torch " in found["Versions"]["detail"] and "copy_gbps" in found["Ceilings"]["detail"]
    assert {row["state"] for row in found.values()} <= {"ok", "limited", "missing", "unknown"}


def test_list(quick: Pairbench, suites: Path) -> None:
    done = quick("list", f"{suites}/good.py", f"{suites}/interpreted.py", "-f", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["cases"]
    assert {row["tier"] for row in rows if row["case"].startswith("shifts")} == {"edge", "smoke", "real"}
    first = rows[0]
    assert first["implementations"] == ["baseline", "named"] and first["impostors"] == ["twice", "swapped"]
    assert first["source"] == "made up"


def test_a_suite_that_is_named_and_found_is_loaded_once(quick: Pairbench, suites: Path, tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    shutil.copy(suites / "good.py", tmp_path / "ops")
    (tmp_path / "pyproject.toml").write_text('[tool.pairbench]\nsuites = ["ops"]\n')
    key = "shifts[columns=1,dtype=float32,rows=1]"
    cases = [
        [row["case"] for row in json.loads(quick("list", *select, "-f", "json", folder=tmp_path).stdout)["cases"]]
        for select in (["ops/good.py"], ["ops/good.py", "ops/good.py::*"], [key, "shifts"])
    ]
    assert cases[0] == cases[1] and key in cases[2]
    assert all(len(found) == len(set(found)) for found in cases)


def test_list_names_broken_suites_and_shows_the_rest(quick: Pairbench, suites: Path) -> None:
    done = quick("list", f"{suites}/good.py", f"{suites}/import_error.py")
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


def test_verify_tries_automatic_and_declared_impostors(audited: dict[str, Any]) -> None:
    tried = {(row["operator"], row["impostor"], row["declared"]) for row in audited["impostors"]}
    assert {("shifts", "twice", True), ("shifts", "swapped", True), ("shifts", "zeros of output 0", False)} <= tried
    assert {("impostor_passes", "zero", True), ("impostor_passes", "zeros", False)} <= tried


def test_verify_takes_edge_cases_and_triton_through_its_interpreter(audited: dict[str, Any]) -> None:
    found = {(row["case"], row["implementation"]): row for row in audited["verifications"]}
    assert found["shifts[columns=1,dtype=float32,rows=1]", "named"]["status"] == "verified"
    for rows in (1, 5):
        kernel = found[f"interpreted[dtype=float32,rows={rows}]", "kernel"]
        assert kernel["status"] == "verified" and kernel["margin"] == 1
        wrong = found[f"interpreted_wrong[dtype=float32,rows={rows}]", "kernel"]
        assert wrong["status"] == "mismatched"
    assert "linear[columns=16,dtype=float32,rows=4]" in {case for case, _ in found}


def test_verify_of_what_is_right_leaves_nothing_behind(quick: Pairbench, suites: Path, tmp_path: Path) -> None:
    done = quick("verify", f"{suites}/good.py::extremes", "--impostors", "--device", "cpu", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 verified" in done.stdout and "automatic" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_verify_of_what_cannot_be_loaded(quick: Pairbench, suites: Path) -> None:
    done = quick("verify", f"{suites}/no_operator.py", "--device", "cpu", "-f", "json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert [suite["suite"].endswith("no_operator.py") for suite in document["broken_suites"]] == [True]
    assert document["verifications"] == []


def test_a_run_that_is_not_stored(quick: Pairbench, suites: Path, tmp_path: Path) -> None:
    few = ("--device", "cpu", "--rounds", "1", "--no-store")
    done = quick("run", f"{suites}/good.py::shifts", *few, folder=tmp_path)
    assert done.returncode == 0 and ", not stored\n" in done.stdout and "speedup" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []
    for other in ("--confirm", "--skip-existing", "--store=elsewhere"):
        refused = quick("run", f"{suites}/good.py::shifts", *few, other, folder=tmp_path)
        assert refused.returncode == 2 and "--no-store keeps nothing" in refused.stderr


@pytest.mark.parametrize("name", ["syntax_error", "no_operator"])
def test_a_run_that_could_load_no_suite_leaves_nothing_behind(
    quick: Pairbench, suites: Path, tmp_path: Path, name: str
) -> None:
    done = quick("run", f"{suites}/{name}.py", "--device", "cpu", folder=tmp_path)
    assert done.returncode == 2 and f"suite {name}.py" in done.stderr and not done.stdout
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.usefixtures("fine")
class TestShow:
    """`pairbench show` of the fine run."""

    def test_latest(self, quick: Pairbench, fine_folder: Path) -> None:
        done = quick("show", folder=fine_folder)
        assert done.returncode == 0 and "shifts" in done.stdout and "even_rows" in done.stdout

    def test_json(self, quick: Pairbench, fine_folder: Path, fine: dict[str, Any]) -> None:
        document = json.loads(quick("show", "latest", "-f", "json", folder=fine_folder).stdout)
        assert len(document["records"]) == len(fine["records"])

    def test_the_beginning_of_an_id(self, quick: Pairbench, fine_folder: Path, fine: dict[str, Any]) -> None:
        whole = quick("show", fine["run_id"], folder=fine_folder)
        assert whole.returncode == 0
        assert quick("show", fine["run_id"][:11], folder=fine_folder).stdout == whole.stdout
        unknown = quick("show", "1999", folder=fine_folder)
        assert unknown.returncode == 2 and "1999" in unknown.stderr

    def test_runs(self, quick: Pairbench, fine_folder: Path, fine: dict[str, Any]) -> None:
        (found,) = json.loads(quick("show", "--runs", "-f", "json", folder=fine_folder).stdout)["runs"]
        assert found["run_id"] == fine["run_id"] and found["n_records"] == len(fine["records"])
        assert found["statuses"] == fine["summary"]["statuses"]

    def test_select(self, quick: Pairbench, fine_folder: Path) -> None:
        case = "shifts[columns=16,dtype=float32,rows=4]"
        found = quick("show", "-s", case, "-s", "running*", "-f", "json", folder=fine_folder)
        assert {row["case"] for row in json.loads(found.stdout)["records"]} == {
            case,
            "running_total[columns=16,dtype=float32,rows=4]",
        }
        nothing = quick("show", "--select", "no_such", folder=fine_folder)
        assert nothing.returncode == 2 and "selects nothing of run" in nothing.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verify", "empty.py"), "declares no operator"),
        (("run", "empty.py"), "declares no operator"),
        (("try", "empty.py"), "declares no operator"),
        (("run", "good.py", "nowhere*"), ""),
        (("verify", "good.py"), ""),
    ],
)
def test_mistakes_and_verifying_wait_for_no_device(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    environment = settle(tmp_path)
    (tmp_path / "empty.py").write_text("x = 1\n")
    shutil.copy(SUITES / "good.py", tmp_path)
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    with (locks / "cpu.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = call(tmp_path, {**environment, "PAIRBENCH_LOCKS": str(locks)}, *words, "--device", "cpu")
    assert said in done.stderr and "waiting for it" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("run", "broken.py", "--format", "json"), "SyntaxError", 2),
        (("verify", "broken.py", "-f", "json"), "SyntaxError", 2),
        (("list", "nowhere.py", "--format=json"), "does not exist", 2),
        (("show", "-fjson"), "store", 2),
        (("run", "--nonsense", "--format", "json"), "No such option: --nonsense", 2),
        (("trend", "-f", "json"), "Missing argument 'SERIES'", 2),
    ],
)
def test_a_mistake_is_json_where_json_is_asked_for(
    quick: Pairbench, tmp_path: Path, words: tuple[str, ...], said: str, code: int
) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    done = quick(*words, folder=tmp_path)
    assert done.returncode == code
    document = json.loads(done.stdout)
    assert said in document["error"] and document["exit_code"] == code and document["error"] in done.stderr


def test_export_says_which_forms_there_are(quick: Pairbench) -> None:
    done = quick("export")
    assert done.returncode == 2 and "pytest-benchmark or csv" in done.stderr


def test_the_oracle_ratio_of_verify_is_explained(quick: Pairbench) -> None:
    done = quick("verify", f"{SUITES / 'good.py'}::shifts", "--device", "cpu")
    assert done.returncode == 0 and "oracle_ratio: largest error over the baseline's" in done.stdout


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
