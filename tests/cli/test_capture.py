"""`pairbench capture`: programs that end well, fail, are killed, start others, or are interrupted."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.in_process import Said, call_main
from tests.suites.programs import net

PROGRAM = net.__file__ or ""


def captured(folder: Path, *arguments: str, program: tuple[str, ...] = (sys.executable, PROGRAM, "infer")) -> Said:
    return call_main(folder, "capture", "--output", "seen.py", *arguments, "--", *program)


def test_a_program_becomes_a_suite(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plain = subprocess.run([sys.executable, PROGRAM, "infer"], capture_output=True, text=True, check=True).stdout
    assert captured(tmp_path, "--steps", "4").code == 0
    assert capfd.readouterr().out == plain  # the program's own, with the same result
    said = captured(tmp_path, "--steps", "4", "--force", "--format", "json")
    assert {one["operator"] for one in said.document["operators"]} >= {"linear", "scaled_dot_product_attention"}
    listed = call_main(tmp_path, "list", "seen.py", "--format", "json")
    assert "linear[dtype=float32,input_shape=2x8x32]" in listed.out


@pytest.mark.parametrize(("way", "code"), [("raises", 1), ("killed", -9)])
def test_a_program_that_dies_leaves_what_it_had_called(tmp_path: Path, way: str, code: int) -> None:
    said = captured(tmp_path, program=(sys.executable, PROGRAM, way))
    assert (said.code, f"exit code {code}" in said.err) == (1, True)
    assert "linear = Operator(" in (tmp_path / "seen.py").read_text()


def test_counts_of_several_processes_are_added_up(tmp_path: Path) -> None:
    said = captured(tmp_path, program=(sys.executable, PROGRAM, "several"))
    assert said.code == 0
    text = (tmp_path / "seen.py").read_text()
    assert "2 processes are added up" in text
    assert "weight=24" in text


def test_an_interrupted_program_leaves_what_it_had_called(tmp_path: Path) -> None:
    arguments = ["capture", "-o", "seen.py", "--", sys.executable, PROGRAM, "forever"]
    command = [sys.executable, "-m", "pairbench", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"result")
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 130
    assert "linear = Operator(" in (tmp_path / "seen.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "program", "sentence"),
    [
        ((), ("no-such-program",), "cannot be started"),
        ((), (sys.executable, "-c", "pass"), "nothing was captured"),
        (("--output", "seen.txt"), (sys.executable, PROGRAM, "infer"), "expected the name of the suite"),
    ],
)
def test_what_cannot_be_captured_is_said(
    tmp_path: Path, arguments: tuple[str, ...], program: tuple[str, ...], sentence: str
) -> None:
    said = captured(tmp_path, *arguments, program=program)
    assert (said.code, sentence in said.err) == (2, True)
    assert not [*tmp_path.glob("seen*")]


def test_a_process_that_cannot_be_recorded_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '0'\n")  # of a release that lacks what the recorder needs
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = captured(tmp_path, program=(sys.executable, "-c", "import torch; print('result', torch.__version__)"))
    told = capfd.readouterr()
    assert (said.code, told.out) == (2, "result 0\n")
    assert "this process is not recorded: " in told.err


def test_a_suite_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text("mine\n")
    said = captured(tmp_path)
    assert (said.code, "--force replaces it" in said.err) == (2, True)
    assert (tmp_path / "seen.py").read_text() == "mine\n"


@pytest.mark.slow
def test_a_run_of_the_suite_ends_with_the_gain_by_weight(tmp_path: Path) -> None:
    assert captured(tmp_path, "--check", "--rounds", "1").code in (0, 1)  # whether near enough is the machine's doing
    run = [sys.executable, "-m", "pairbench", "run", "seen.py", "--no-store", "--rounds", "1"]
    said = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "By weight, on " in said
    assert "ms with the best variant of each case: a gain of" in said
