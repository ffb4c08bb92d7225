"""The answer on one candidate, from made-up records, and the command on problems and on a suite's variants."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.features.judge import Answer, answer_of
from pairbench.model.outcome import NOTHING_RIGHT
from pairbench.model.record import Record
from tests.builders import CASES, described, ended, make_run
from tests.commands import call, environment_of
from tests.docs.pages import blocks_of

NAMES = ("baseline", "compiled", "fused")


def answer(records: Sequence[Record]) -> Answer:
    return answer_of(described("rms_norm"), "fused", records)


def timed(slower: dict[str, float]) -> list[Record]:
    """Return a run of two cases whose speedups are known to 1 %; without factors `fused` is twice as fast."""
    records = make_run(1, implementations=NAMES, slower={"compiled": 1.0, **slower}, cv=0.0001)
    return [
        replace(one, speedup_low=one.speedup * 0.99, speedup_high=one.speedup * 1.01) if one.speedup else one
        for one in records
    ]


def replaced(records: Sequence[Record], name: str, place: int, status: str) -> list[Record]:
    """Return the records with another end of one of them: of that implementation in the first case, or in the second."""
    chosen = [one for one in records if one.implementation == name][place]
    return [ended(one, status) if one is chosen else one for one in records]


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [((0.5, 0.9), "faster"), ((3.0, 4.0), "slower"), ((0.5, 3.0), "mixed"), ((2.0, 0.5), "mixed")],
)
def test_the_verdict_holds_in_every_case(factors: tuple[float, float], verdict: str) -> None:
    found = answer(timed({f"{case}-fused": factor for case, factor in zip(CASES, factors, strict=True)}))
    assert (found.verdict, found.exit_code, len(found.cases)) == (verdict, 0, 2)
    assert all(case.code == "right" and case.p50_ns for case in found.cases)


def test_without_speedups_a_right_candidate_is_right() -> None:
    found = answer([replace(one, speedup=None) for one in timed({})])
    assert (found.verdict, found.exit_code) == ("right", 0) and "the host was busy" in found.lines()[0]


@pytest.mark.parametrize(
    ("name", "place", "status", "verdict", "code", "exit_code"),
    [
        ("fused", 1, "mismatched", "wrong", "mismatched", 1),
        ("fused", 0, "failed", "failed", "failed", 1),
        ("fused", 0, "oom", "failed", "oom", 1),
        ("fused", 0, "skipped", "skipped", "skipped", 3),
        ("baseline", 0, "failed", "refused", "refused", 3),
    ],
)
def test_one_case_decides(name: str, place: int, status: str, verdict: str, code: str, exit_code: int) -> None:
    found = answer(replaced(make_run(1, implementations=NAMES), name, place, status))
    assert (found.verdict, found.exit_code, found.cases[place].code) == (verdict, exit_code, code)
    assert found.cases[place].reason == "made up"
    assert found.cases[place].over_baseline is None or name == "baseline"
    assert found.cases[1 - place].code == "right"


def test_a_wrong_candidate_is_no_fault_of_the_problem_whose_baseline_is_then_not_timed() -> None:
    records = [ended(one, "mismatched") if one.implementation == "fused" else one for one in make_run(1)]
    records = [
        replace(ended(one, "skipped"), reason=NOTHING_RIGHT) if one.role == "baseline" else one for one in records
    ]
    found = answer(records)
    assert (found.verdict, found.exit_code, {case.code for case in found.cases}) == ("wrong", 1, {"mismatched"})


def test_other_implementations_are_told_by_the_ratio_of_the_speedups() -> None:
    records = timed({"compiled": 0.25, "fused": 0.5})
    case = answer(records).cases[0]
    speedups = {one.implementation: one.speedup for one in records[:3]}
    assert case.over_compiled and case.over_best and case.over_baseline
    assert case.over_compiled.estimate == pytest.approx(speedups["fused"] / speedups["compiled"])  # type: ignore[operator]
    assert case.over_compiled.low < case.over_compiled.estimate < case.over_compiled.high
    assert case.best == "compiled" and case.over_best == case.over_compiled


@pytest.mark.parametrize(
    ("roof", "slower", "score"),
    [
        (0.5, {"compiled": 0.5, "fused": 0.5}, 0.5),  # as fast as the faster of the two
        (1.0, {"compiled": 1.0, "fused": 0.5}, 1.0),
        (0.5, {"compiled": 1.0, "fused": 0.5}, 0.75),
        (0.9, {"compiled": 0.25, "fused": 0.5}, 0.0),  # the roof is above the usual time, and below the candidate's
        (None, {}, None),
    ],
)
def test_the_score_is_half_at_the_usual_time_and_one_at_the_roof(
    roof: float | None, slower: dict[str, float], score: float | None
) -> None:
    records = [replace(one, roofline_fraction=roof) for one in timed(slower)]
    found = answer(records).cases[0].sol_score
    assert found == (score if score is None else pytest.approx(score, abs=0.01))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Write a suite, and return the environment for a command beside it."""
    (tmp_path / "pyproject.toml").write_text("[tool.pairbench]\ncase_seconds = 0.02\nmin_samples = 20\nrounds = 1\n")
    (tmp_path / "ops.py").write_text(
        "import torch\nfrom pairbench import Operator, grid\n\n"
        "op = Operator('op', baseline=lambda x: x * 2, variants={'sum': lambda x: x + x, 'wrong': lambda x: x + 2},\n"
        "    inputs=lambda make, n: {'x': make.normal(n)}, cases=grid(n=[64]))\n"
    )
    (tmp_path / "tmp").mkdir()
    return environment_of(tmp_path / "tmp", PAIRBENCH_WORKERS="fork")


def test_a_variant_of_a_suite_is_judged_and_what_is_no_variant_is_named(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    right = call(tmp_path, environment, "judge", "ops.py", "sum", "--device", "cpu", "--format", "json")
    document = json.loads(right.stdout)
    assert right.returncode == 0 and document["schema"] == "pairbench-judge/1", right.stderr
    assert document["verdict"] in ("faster", "slower", "mixed", "right") and document["cases"][0]["code"] == "right"
    wrong = call(tmp_path, environment, "judge", "ops.py::op", "wrong", "--device", "cpu")
    assert wrong.returncode == 1 and "wrong of op: wrong (another result than the baseline's" in wrong.stdout
    assert "differs from the baseline's" in wrong.stdout
    unknown = call(tmp_path, environment, "judge", "ops.py", "sums", "--device", "cpu")
    assert (
        unknown.returncode == 2
        and "'sums' is no file and no variant of 'op', expected a candidate's file, or one of sum, wrong"
        in unknown.stderr
    )
    (tmp_path / "new.py").write_text("class ModelNew: pass\n")
    file = call(tmp_path, environment, "judge", "ops.py", "new.py", "--device", "cpu")
    assert file.returncode == 2 and "CANDIDATE is a file, and 'op' is an operator of a suite" in file.stderr
    (tmp_path / "broken.py").write_text("from pairbench import Operator\n1 / 0\n")
    broken = call(tmp_path, environment, "judge", "broken.py", "sum", "--device", "cpu", "--format", "json")
    assert broken.returncode == 2 and "broken.py, line 2: ZeroDivisionError" in json.loads(broken.stdout)["error"]
    assert not (tmp_path / "results").exists(), "nothing is stored"


def test_a_server_judges_one_request_after_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    path, command = tmp_path / "judge.sock", [sys.executable, "-m", "pairbench", "judge", "--device", "cpu"]
    (client,) = (block.text for block in blocks_of("docs/problems.md") if block.title == "ask.py")

    def asked(*words: str) -> dict[str, Any]:
        client_of = [sys.executable, "-c", client, *words]
        answer: dict[str, Any] = json.loads(subprocess.check_output(client_of, cwd=tmp_path))
        return answer

    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(path))
    left_over.close()
    with subprocess.Popen(
        [*command, "--serve", f"unix:{path}"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None and "judging at unix:" in server.stderr.readline()
        try:
            assert path.stat().st_mode & 0o077 == 0, "nobody else may connect"
            assert asked("ops.py", "sum")["cases"][0]["code"] == "right"
            assert asked("ops.py", "wrong")["verdict"] == "wrong"
            none = asked("none.py", "sum")
            assert none["exit_code"] == 2 and "none.py" in none["error"]
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(path))
                line.sendall(b'{"problem": "ops.py"}\n')
                assert "expected {" in json.loads(line.makefile().read())["error"]
            for bad in (
                b'{"problem": "a", "candidate": "b", "device": "cpu"}\n',
                b'{"problem": "\\ud800", "candidate": "\\u0000"}\n',
                b"[" * 60_000 + b"\n",
                b"\xff\n",
            ):
                with socket.socket(socket.AF_UNIX) as line:
                    line.connect(str(path))
                    line.sendall(bad)
                    assert "is unknown, expected {" in json.loads(line.makefile().read())["error"], bad[:40]
            second = call(tmp_path, environment, "judge", "--serve", f"unix:{path}", "--device", "cpu")
            assert second.returncode == 2 and "another process listens there" in second.stderr
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 130
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ops.py"], "judge takes a PROBLEM and a CANDIDATE, or --serve unix:PATH"),
        (["ops.py", "sum", "--serve", "unix:s"], "judge takes a PROBLEM and a CANDIDATE, or --serve unix:PATH"),
        (["--serve", "8080"], "--serve '8080' is unknown, expected unix:PATH"),
        (["--serve", "unix:nowhere/s"], "--serve 'unix:nowhere/s' cannot be had: No such file or directory"),
        (["--serve", "unix:ops.py"], "--serve 'unix:ops.py' cannot be had: Address already in use"),
    ],
)
def test_where_a_server_cannot_listen(
    tmp_path: Path, environment: dict[str, str], arguments: list[str], words: str
) -> None:
    done = call(tmp_path, environment, "judge", *arguments)
    assert done.returncode == 2 and words in done.stderr
