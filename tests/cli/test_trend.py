"""`pairbench trend` on stores of made-up runs."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.errors import SelectionError
from pairbench.model.record import Record
from pairbench.plan import Wanted
from pairbench.workflow.lookup import find_series, read_history
from tests.builders import CASES, SUITE, ended, make_run, only, write_runs

Done = subprocess.CompletedProcess[str]
Pairbench = Callable[..., Done]

NAME = f"{SUITE}::{CASES[0]}-fused-eager"


def days(number: int, slower_from: int = 1000) -> list[tuple[Record, ...]]:
    return [make_run(24 * day, slower={"fused": 1.05} if day >= slower_from else {}) for day in range(number)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of 24 runs; the variant is slower in the last five."""
    folder = tmp_path_factory.mktemp("store")
    write_runs(folder, *days(24, 19))
    return folder


def test_a_regression_is_exit_code_1(quick: Pairbench, store: Path, tmp_path: Path) -> None:
    picture = tmp_path / "trend.svg"
    done = quick("trend", NAME, "--store", str(store), "--output", str(picture))
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[1].count("regression +5") == 1
    assert "Moved (1)" in done.stdout and "code" in done.stdout
    assert NAME in picture.read_text() and "drew" in done.stderr


def test_an_unmoved_series_is_exit_code_0(quick: Pairbench, store: Path, tmp_path: Path) -> None:
    picture = tmp_path / "trend.PNG"
    done = quick("trend", NAME.replace("fused", "baseline"), "--store", str(store), "-f", "json", "-o", str(picture))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["points"]) == 24 and document["control"] == "fused"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_newest_runs_only(quick: Pairbench, store: Path) -> None:
    done = quick("trend", NAME, "--store", str(store), "--last", "3", "-f", "json")
    assert len(json.loads(done.stdout)["points"]) == 3
    assert done.returncode == 0
    strict = quick("trend", NAME, "--store", str(store), "--last", "3", "--strict")
    assert strict.returncode == 3 and "undecided" in strict.stdout


@pytest.mark.parametrize("text", [NAME, f"*{CASES[0]}-fused-*", f"{CASES[0]}-fused", "1024*fused"])
def test_a_glob_or_a_part_that_fits_one_will_do(store: Path, text: str) -> None:
    assert find_series(str(store), text).value.name == NAME


@pytest.mark.parametrize(
    ("text", "device", "words"),
    [
        ("rms_norm", None, "series 'rms_norm' fits 4, expected one; name one of\n  suites/norm.py::rms_norm["),
        (NAME.replace("fused", "fussed"), None, f"did you mean {NAME}"),
        ("q", "h200", "series 'q' is not in store 'STORE'; one of its 4 is suites/norm.py::"),
        (NAME, "A100", "--device 'A100' has no series in store 'STORE'; device models are: NVIDIA H200"),
    ],
)
def test_a_name_that_fits_none_or_several_is_answered(store: Path, text: str, device: str | None, words: str) -> None:
    with pytest.raises(SelectionError) as caught:
        find_series(str(store), text, Wanted(device=device))
    assert words.replace("STORE", str(store)) in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rms_norm"], "series 'rms_norm' fits 4, expected one; name one of\n  suites/norm.py::rms_norm["),
        ([NAME, "--timer", "sundial"], "--timer 'sundial' timed no run of this series, expected one of cuda_event"),
        ([NAME, "--output", "trend.pdf"], "--output 'trend.pdf' ends in '.pdf', expected .svg or .png"),
        ([NAME, "--output", "no/such/trend.svg"], "there is no folder 'no/such'"),
        ([], "Missing argument 'SERIES'"),
    ],
)
def test_wrong_arguments_have_a_sentence_and_exit_code_2(
    quick: Pairbench, store: Path, arguments: list[str], words: str
) -> None:
    done = quick("trend", *arguments, "--store", str(store))
    assert done.returncode == 2, done.stdout
    assert words.replace("STORE", str(store)) in done.stderr and "Traceback" not in done.stderr
    assert not done.stdout


def test_a_picture_that_cannot_be_written(quick: Pairbench, store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "taken.svg"
    folder.mkdir()
    done = quick("trend", NAME, "--store", str(store), "--output", str(folder))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"--output {str(folder)!r} cannot be written: Is a directory" in done.stderr


def test_an_empty_store_is_exit_code_2(quick: Pairbench, tmp_path: Path) -> None:
    done = quick("trend", NAME, "--store", str(tmp_path))
    assert done.returncode == 2 and "has no records" in done.stderr


def test_devices_timers_and_damage(quick: Pairbench, tmp_path: Path) -> None:
    runs = days(12)
    runs += [make_run(24 * 12, device_name="NVIDIA H100"), make_run(24 * 13, timer="do_bench")]
    failed = make_run(24 * 14)
    runs += [tuple(ended(record, "timeout", "took more than 300 s") for record in failed)]
    write_runs(tmp_path, *runs)
    (some, *_) = (tmp_path / "records").rglob("*.parquet")
    (some.parent / "20200101T000000-bad.parquet").write_bytes(b"PAR1 and no more")
    several = quick("trend", NAME, "--store", str(tmp_path))
    assert several.returncode == 2
    assert "on several device models; choose one with --device: NVIDIA H100, NVIDIA H200" in several.stderr
    done = quick("trend", NAME, "--store", str(tmp_path), "--device-name", "h200", "--timer", "cuda_event")
    assert done.returncode == 1, done.stderr
    assert "failed: timeout: took more than 300 s" in done.stdout
    assert "1 run timed by do_bench left out: another timer is another series" in done.stdout
    assert "20200101T000000-bad.parquet: cannot be read, left out" in done.stderr


def test_a_changed_environment_is_named(quick: Pairbench, tmp_path: Path) -> None:
    old, new = (
        json.dumps({"flags": {"matmul.allow_tf32": allowed}, "observed": {"a": number}})
        for number, allowed in enumerate((False, True))
    )
    runs = [
        tuple(
            replace(record, environment=old if day < 8 else new, environment_hash="f" if day < 8 else "g")
            for record in make_run(24 * day, slower={CASES[0]: 1.2} if day >= 8 else {})
        )
        for day in range(16)
    ]
    write_runs(tmp_path, *runs)
    done = quick("trend", NAME, "--store", str(tmp_path), "-f", "json")
    document = json.loads(done.stdout)
    (era,), (move,) = document["eras"], document["moves"]
    assert era["changes"] == [{"field": "flags.matmul.allow_tf32", "reference": "false", "current": "true"}]
    assert era["index"] == move["index"] == 8 and move["attribution"] == "environment"
    assert done.returncode == 0


def test_a_series_that_is_only_in_old_runs_is_found(tmp_path: Path) -> None:
    runs = [only(run, case=CASES[0]) if day < 2 else only(run, case=CASES[1]) for day, run in enumerate(days(55))]
    write_runs(tmp_path, *runs)
    found = find_series(str(tmp_path), f"{CASES[0]}-fused")
    assert found.value.name == NAME
    assert len(read_history(str(tmp_path), found.value)[0].value) == 4
