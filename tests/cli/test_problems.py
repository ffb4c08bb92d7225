"""Problem files of KernelBench's form, our own ones: taken as suites as they lie there, with candidates beside `Model`."""

import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.isolation import can_be_kept_from
from pairbench.execute.worker.describe.operators import hashes_of
from pairbench.execute.worker.problems import built
from pairbench.report.rows import fast_p
from pairbench.suite.modules import find_suites
from tests.builders import ended, make_run
from tests.cli.conftest import Cli, Pairbench, records_of, settle
from tests.commands import call
from tests.corpora.conftest import only

PROBLEM = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self{init}):
            super().__init__()
            {made}

        def forward(self, {takes}):
            {body}

    ROWS = 24

    def get_inputs():
        return {inputs}

    def get_init_inputs():
        return {arguments}
"""
CANDIDATE = """
    import torch
    from torch import nn

    class ModelNew(nn.Module):
        def __init__(self{init}):
            super().__init__()
            {made}

        def forward(self, {takes}):
            {body}
"""
COMMON = {"init": "", "made": "pass", "takes": "x", "inputs": "[torch.randn(ROWS, 40)]", "arguments": "[]"}
NORM = {
    "init": ", features",
    "arguments": "[40]",
    "made": "self.norm, self.drop = nn.BatchNorm1d(features), nn.Dropout(0.5)",
}
PROBLEMS: dict[str, dict[str, str]] = {
    "1_Double": {"body": "return x * 2"},
    "2_Linear": {
        "init": ", width",
        "made": "self.inner = nn.Linear(40, width)",
        "body": "return self.inner(x)",
        "arguments": "[8]",
    },
    "3_Norm": {**NORM, "body": "return self.drop(self.norm(x))"},
    "4_Loss": {
        "takes": "scores, target",
        "body": "return nn.functional.cross_entropy(scores, target)",
        "inputs": "[torch.randn(ROWS, 40), torch.randint(0, 40, (ROWS,))]",
    },
    "5_Sums": {
        "takes": "several, factor, nothing",
        "body": "return sum(several) * factor, several[0] - 1",
        "inputs": "[[torch.randn(ROWS), torch.randn(ROWS)], 3.0, None]",
    },
    "6_Zero": {"body": "return x.mean(1, keepdim=True) - x.mean(1, keepdim=True)"},
    "7_Random": {"body": "return nn.functional.dropout(x, 0.5)"},
    "8-odd name": {"body": "return -x"},
}
CANDIDATES: dict[str, dict[str, str]] = {
    "1_Double": {"body": "return x + x"},
    # Other draws than those of `Model` before its weights are made; its weights are copied.
    "2_Linear": {
        "init": ", width",
        "made": "torch.rand(3); self.inner = nn.Linear(40, width)",
        "body": "return torch.addmm(self.inner.bias, x, self.inner.weight.T)",
    },
    "3_Norm": {
        **NORM,
        "body": "return (x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-5) * self.norm.weight + self.norm.bias",
    },
    "4_Loss": {
        "takes": "scores, target",
        "body": "return -scores.log_softmax(1).gather(1, target[:, None]).mean() * 1.01",
    },
    "5_Sums": {
        "takes": "several, factor, nothing",
        "body": "several[0] += several[1]; return several[0] * factor, several[0] - several[1] - 1",
    },
    "6_Zero": {"body": "return x[:, :1] * 0"},
    "7_Random": {"body": "return x * 2"},
}


# What runs the samples of a problem's candidates.
SAMPLES = ("--against", "mine", "-i", "sample_*", "--device", "cpu", "--rounds", "1", "--format", "json")


def write(path: Path, template: str, values: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(template).format(**{**COMMON, **values}))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return a folder with problems in `level1` and candidates for them in `mine`."""
    for name, values in PROBLEMS.items():
        write(tmp_path / "level1" / f"{name}.py", PROBLEM, values)
    for name, values in CANDIDATES.items():
        write(tmp_path / "mine" / f"{name}.py", CANDIDATE, values)
    (tmp_path / "mine" / "8-odd name.py").write_text("import no_such_package_of_mine\n")
    return tmp_path


def test_problems_and_candidates_are_judged_as_they_lie_there(corpus: Path, pairbench: Pairbench) -> None:
    done = pairbench("verify", "level1", "--against", "mine", "-i", "mine", "--device", "cpu", "--format", "json")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["verifications"]
    found = {
        (row["case"].partition("[")[0], row["implementation"]): (row["status"], row["reason"] or "") for row in rows
    }
    right = {
        name
        for (name, implementation), (status, _) in found.items()
        if status == "verified" and implementation == "mine"
    }
    assert right == {"Double_1", "Linear_2", "Norm_3"}
    status, reason = found["Loss_4", "mine"]
    assert status == "mismatched" and "differs from the baseline's in 1 of 1 elements" in reason
    status, reason = found["Sums_5", "mine"]
    assert status == "mismatched" and "changes its input 'args[0][0]'" in reason
    status, reason = found["Zero_6", "baseline"]
    assert status == "failed" and "the output is the same for all inputs" in reason
    status, reason = found["Random_7", "baseline"]
    assert status == "failed" and "random" in reason, reason
    status, skipped = found["Random_7", "mine"]
    assert status == "skipped" and reason in skipped, "a reason that the judge outside gave"
    status, reason = found["problem_8-odd_name", "mine"]
    assert status == "failed" and "8-odd name.py, line 1: ModuleNotFoundError" in reason
    assert found["problem_8-odd_name", "baseline"][0] == "verified", "the problem is not charged with its candidate"


def test_a_run_says_how_many_problems_are_right_and_faster(corpus: Path, pairbench: Pairbench) -> None:
    problems = [str(corpus / "level1" / f"{name}.py") for name in ("1_Double", "4_Loss", "8-odd name")]
    done = pairbench("run", *problems, "--against", "mine", "-i", "mine", "--device", "cpu", "--format", "json")
    document = json.loads(done.stdout)
    (shares,) = document["fast_p"]
    known = (shares["implementation"], shares["over"], shares["dtype"], shares["cases"])
    assert known == ("mine", "baseline", "float32", 3)
    assert shares["fast_0"] == pytest.approx(1 / 3), "one is right, one is wrong and one cannot be loaded"
    speedup = next(
        one["speedup"] for one in document["records"] if one["implementation"] == "mine" and one["status"] == "measured"
    )
    assert shares["fast_1"] == (None if speedup is None else pytest.approx((speedup > 1) / 3)), (
        "withheld on a busy host"
    )


def test_an_implementation_that_is_never_right_has_its_shares_too(corpus: Path) -> None:
    records = [replace(one, suite="p.py") for one in make_run(1)]
    wrong = [one if one.role == "baseline" else ended(one, "mismatched") for one in records]
    (row,) = fast_p(wrong, {"p.py"})
    assert (row["implementation"], row["cases"], row["fast_0"], row["fast_1"]) == ("fused", 2, 0, 0)
    assert fast_p(wrong, {"other.py"}) == []
    (row,) = fast_p([ended(one, "skipped") for one in wrong], {"p.py"})
    assert (row["cases"], row["fast_0"], row["fast_2"]) == (2, 0, 0), "a baseline of wrong variants is not timed"


def test_a_candidate_for_a_problem_that_cannot_be_judged_is_refused(corpus: Path, pairbench: Pairbench) -> None:
    problem, candidate = str(corpus / "level1" / "6_Zero.py"), str(corpus / "mine" / "6_Zero.py")
    zero = pairbench("judge", problem, candidate, "--device", "cpu")
    assert zero.returncode == 3 and "refused" in zero.stdout and "the same for all inputs" in zero.stdout


@pytest.fixture
def isolates() -> None:
    if len(can_be_kept_from()) < 2:
        pytest.skip("this kernel cannot keep a process from both")


@pytest.mark.slow
@pytest.mark.usefixtures("isolates")
def test_one_candidate_gets_one_answer(tmp_path: Path, pairbench: Pairbench) -> None:
    problem = write(tmp_path / "2_Linear.py", PROBLEM, PROBLEMS["2_Linear"])
    wrong = write(tmp_path / "wrong.py", CANDIDATE, {"init": ", width", "body": "return x[:, :8]"})
    options = ("--isolated", "--rounds", "1", "--device", "cpu", "--format", "json")
    done = pairbench("judge", str(problem), str(wrong), *options)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["candidate"]) == (1, "wrong", "wrong"), done.stderr
    assert document["kept_from"] == ["network", "files"]
    (case,) = document["cases"]
    assert case["code"] == "mismatched" and "the worst, at [" in case["reason"]
    assert case["best"] is None, "a wrong candidate is answered before anything is timed"


REACHES = "import socket; socket.create_connection(('127.0.0.1', 9), timeout=5)"
IN_ISOLATION = [
    ("import tempfile; tempfile.TemporaryFile().close()", "measured", ""),
    (REACHES, "failed", "Network is unreachable"),
    ("open(__file__, 'a').close()", "failed", "Permission denied"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("isolates")
def test_candidates_in_isolation_reach_nothing_and_write_to_their_own_folder_alone(corpus: Path) -> None:
    """By the setting, which `judge --isolated` sets: `judge` compiles the baseline as well, which takes long."""
    for place, (does, *_) in enumerate(IN_ISOLATION):
        name = f"level_1_problem_1_sample_{place}_kernel.py"
        write(corpus / "mine" / name, CANDIDATE, {"body": f"{does}; return x + x"})
    problem, environment = str(corpus / "level1" / "1_Double.py"), settle(corpus, isolated=True)
    rows = records_of(call(corpus, environment, "run", problem, *SAMPLES))
    found = {row["implementation"]: row for row in rows}
    for place, (_, status, words) in enumerate(IN_ISOLATION):
        row = found[f"sample_{place}"]
        assert row["status"] == status and words in (row["reason"] or ""), row["reason"]


SLOWED = """
    import sys
    import time
    import torch

    (problem,) = (one for name, one in sys.modules.items() if name.startswith("pairbench_suites.") and hasattr(one, "Model"))

    def slow(self, x):
        time.sleep(0.01)
        return x * 2

    class ModelNew(torch.nn.Module):
        def forward(self, x):
            {when_called}
            return x + x

    {when_loaded}
"""


SHARED = "which every implementation in the process shares"
TAMPERED = [
    ("problem.Model.forward = slow", "pass", SHARED),
    ("problem.Model.forward.__code__ = slow.__code__", "pass", "replaces the code of"),
    ("torch.relu = slow", "pass", f"replaces torch.relu, {SHARED}"),
    ("del ModelNew", "pass", "sample_3_kernel.py defines no class ModelNew"),
    ("import os; os._exit(3)", "pass", "ended its process with exit status 3"),
    ("pass", "problem.Model.forward = slow", SHARED),
    ("pass", "problem.get_inputs = lambda: [torch.zeros(24, 40)]", SHARED),
]
"""What a candidate does when it is loaded, what it does when it is called, and a part of the reason with which it fails."""


def test_candidates_that_change_their_problem_fail_and_harm_no_other(corpus: Path, pairbench: Pairbench) -> None:
    for place, (when_loaded, when_called, _) in enumerate([*TAMPERED, ("pass", "pass", "")]):
        text = textwrap.dedent(SLOWED).format(when_loaded=when_loaded, when_called=when_called)
        (corpus / "mine" / f"level_1_problem_1_sample_{place}_kernel.py").write_text(text)
    rows = records_of(pairbench("run", str(corpus / "level1" / "1_Double.py"), *SAMPLES))
    found = {row["implementation"]: (row["status"], row["reason"] or "") for row in rows}
    for place, (*_, words) in enumerate(TAMPERED):
        status, reason = found[f"sample_{place}"]
        assert status == "failed" and words in reason, (place, reason)
    assert found["baseline"][0] == found[f"sample_{len(TAMPERED)}"][0] == "measured", found


def test_a_folder_of_problems_is_a_folder_of_suites(corpus: Path) -> None:
    assert [file.stem for file in find_suites((corpus,))] == sorted(PROBLEMS), "candidates are none"


def test_cases_are_precisions_and_the_number_comes_last(corpus: Path) -> None:
    operator = only(corpus / "level1" / "2_Linear.py")
    assert operator.name == "Linear_2" and list(operator.variants) == ["compiled"]
    assert [(case.key, case.tier) for case in operator.cases] == [
        ("Linear_2[dtype=float32]", "smoke"),
        ("Linear_2[dtype=bfloat16]", "real"),
        ("Linear_2[dtype=float16]", "real"),
    ]


def test_candidates_are_found_by_the_problems_name_and_as_samples(corpus: Path) -> None:
    problem = corpus / "level1" / "1_Double.py"
    for name in (
        "level_1_problem_1_sample_0_kernel",
        "level_1_problem_1_sample_7_kernel",
        "level_2_problem_1_sample_1_kernel",
    ):
        write(corpus / "runs of today" / f"{name}.py", CANDIDATE, {"body": "return x + x"})
    assert list(only(problem, corpus / "runs of today").variants) == ["compiled", "sample_0", "sample_7"]
    assert list(only(problem, corpus / "mine").variants) == ["compiled", "mine"]
    alone = write(corpus / "baseline.py", CANDIDATE, {"body": "return x + x"})
    assert list(only(problem, alone).variants) == ["compiled", "candidate_baseline"]


def test_a_problem_may_have_its_candidate_in_its_own_file(corpus: Path) -> None:
    both = write(corpus / "9_Both.py", PROBLEM + CANDIDATE, {"body": "return x + x"})
    assert list(only(both).variants) == ["compiled", "ModelNew"]


def test_hashes_follow_the_code_of_both_files_and_not_their_formatting(tmp_path: Path) -> None:
    def hashes(folder: str, *, problem: str = "", candidate: str = "") -> tuple[str, ...]:
        body = "y = self.halved(x); return y"
        one = write(tmp_path / folder / "1_Half.py", PROBLEM, {"body": body})
        other = write(tmp_path / folder / "new" / "1_Half.py", CANDIDATE, {"body": body})
        one.write_text(one.read_text() + problem)
        other.write_text(other.read_text() + candidate)
        return hashes_of(one, only(one, other.parent))

    definition, baseline, compiled, candidate = hashes("first")
    assert hashes("second", problem="# a remark\n", candidate="\n\n") == (definition, baseline, compiled, candidate)
    another = hashes("third", candidate="def helper_of_a_method(): ...\n")
    assert another[:3] == (definition, baseline, compiled) and another[3] != candidate
    assert hashes("fourth", problem="SIZE = 3\n")[0] != definition


def test_a_candidate_that_is_not_there_is_said(cli: Cli, corpus: Path) -> None:
    said = cli("list", "level1", "--against", "no_such_folder")
    assert (
        said.code == 2
        and "'no_such_folder', which does not exist; expected a file or a folder of candidates" in said.err
    )
    (corpus / "empty").mkdir()
    said = cli("list", "level1", "--against", "empty")
    assert said.code == 0 and "was taken: it has none for the selected problems" in said.err


@pytest.mark.parametrize(
    ("made", "arguments", "words"),
    [
        (torch.nn.Identity, None, "returned None, expected a list of arguments"),
        (dict, [], r"dict\(\.\.\.\) made an object of type dict, expected a torch\.nn\.Module"),
    ],
)
def test_what_makes_no_module_is_said(made: Any, arguments: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        built(made, lambda: arguments, torch.device("cpu"), torch.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_one_and_arguments_may_have_names() -> None:
    named = {"in_features": 2, "out_features": 3}
    module = built(
        lambda **given: torch.jit.script(torch.nn.Linear(**given)), lambda: named, torch.device("cpu"), torch.float64
    )
    assert module.weight.dtype == torch.float64 and not module.weight.requires_grad
