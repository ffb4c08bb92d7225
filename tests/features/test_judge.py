"""The answer on one candidate, from made-up records, and the command on problems and on a suite's variants."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.features.judge import Answer, answer_of
from pairbench.model.record import Record
from tests.builders import CASES, described, ended, make_run
from tests.commands import call, environment_of

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


def test_a_variant_of_a_suite_is_judged_and_what_is_no_variant_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pairbench]\ncase_seconds = 0.02\nmin_samples = 20\nrounds = 1\n")
    (tmp_path / "ops.py").write_text(
        "import torch\nfrom pairbench import Operator, grid\n\n"
        "op = Operator('op', baseline=lambda x: x * 2, variants={'sum': lambda x: x + x, 'wrong': lambda x: x + 2},\n"
        "    inputs=lambda make, n: {'x': make.normal(n)}, cases=grid(n=[64]))\n"
    )
    environment = environment_of(tmp_path / "tmp", PAIRBENCH_WORKERS="fork")
    (tmp_path / "tmp").mkdir()
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
