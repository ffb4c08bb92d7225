"""`pairbench try` on a CPU, as a user starts it: once, and again after every change."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

from pairbench.features.attempt import attempts
from tests.cli.conftest import Cli, Pairbench, eventually, processes_of
from tests.commands import Done, environment_of

SUITE = """
import torch
from helper import factor
from pairbench import Cost, Operator, grid

def double(x):
    return x * 2

def fast(x):
    return x * factor

silu = Operator("silu", baseline=lambda x: x * torch.sigmoid(x), variants={"builtin": lambda x: torch.nn.functional.silu(x)},
    inputs=lambda make, n: {"x": make.normal(n)}, cases={"smoke": grid(n=[64, 128]), "real": grid(n=[256])})
op = Operator("op", baseline=double, variants={"first": lambda x: x + x, "fast": fast, "last": lambda x: x + x},
    inputs=lambda make, n: {"x": make.normal(n)}, cases={"smoke": grid(n=[64, 128])},
    cost=lambda n: Cost(flops=n, bytes=8 * n))
"""
RIGHT, WRONG = "factor = 2\n", "factor = 3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(SUITE)
    (tmp_path / "helper.py").write_text(RIGHT)
    return tmp_path


def rows(done: Done) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["case"], row["implementation"]): row for row in json.loads(done.stdout)["tries"]}


def test_what_is_right_is_timed_beside_the_last_try_and_the_newest_run(pairbench: Pairbench, folder: Path) -> None:
    """What the lines say of it is in `tests/features/attempt`."""
    first = pairbench("try", "ops.py", "--format", "json")
    assert first.returncode == 0, first.stderr
    found = rows(first)
    assert [*dict.fromkeys(case for case, _ in found)] == ["silu[n=64]", "op[n=64]"], "one case of each operator"
    assert {name for case, name in found if case == "op[n=64]"} == {"baseline", "first", "fast", "last"}
    fast = found["op[n=64]", "fast"]
    assert fast["status"] == "measured" and fast["n_rounds"] == 1 and fast["ops_per_call"] == 1 and fast["gbps"] > 0
    assert fast["speedup_low"] < fast["speedup"] < fast["speedup_high"]
    assert fast["last_try"] is None and fast["stored_run"] is None
    assert not (folder / "results").exists(), "nothing of it is stored"

    assert pairbench("run", "ops.py::op[n=64]", "-i", "fast").returncode == 0
    second = rows(pairbench("try", "ops.py::op", "-i", "fast", "--format", "json"))
    assert set(second) == {("op[n=64]", "baseline"), ("op[n=64]", "fast")}
    again = second["op[n=64]", "fast"]
    assert again["last_try"]["p50_ns"] == fast["call_p50_ns"]
    assert again["last_try"]["change"] == pytest.approx(again["call_p50_ns"] / fast["call_p50_ns"] - 1)
    (stored,) = (folder / "results" / "records").rglob("*.parquet")
    assert again["stored_run"]["run_id"] == stored.stem and again["stored_run"]["change"] is not None


def test_it_stops_at_the_first_that_is_wrong_and_shows_where(pairbench: Pairbench, folder: Path) -> None:
    (folder / "helper.py").write_text(WRONG)
    done = pairbench("try", "ops.py::op", "--all-cases")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[1] == "  first  right, not timed"
    assert lines[2].startswith("  fast   WRONG: output differs from the baseline's in 64 of 64 elements")
    assert "the worst, at [" in lines[2]
    assert lines[3:5] == ["  not tried: last", "Not tried, for something before is wrong: op[n=128]"]


def test_what_cannot_be_loaded_is_said_in_a_sentence(surveyed: Cli, folder: Path) -> None:
    (folder / "helper.py").write_text("factor = (\n")
    said = surveyed("try", "ops.py")
    assert said.code == 2 and not said.out
    assert said.err == "pairbench: suite ops.py: helper.py, line 1: SyntaxError: '(' was never closed\n"


def test_the_implementation_that_ends_its_process_is_named(pairbench: Pairbench, suites: Path) -> None:
    done = pairbench("try", f"{suites}/hostile.py::ends", "-i", "segfaults")
    assert done.returncode == 1 and "segfaults  FAILED: crashed its process with signal SIGSEGV" in done.stdout


class Watching:
    """`pairbench try --watch` of one implementation, in the background."""

    def __init__(self, folder: Path) -> None:
        (folder / "tmp").mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairbench", "try", "ops.py", "--watch", "-i", "fast"],
            cwd=folder,
            env=environment_of(folder / "tmp", PYTHONUNBUFFERED="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())

    def until(self, text: str) -> list[str]:
        """Return the lines up to the one that contains a text."""
        found: list[str] = []
        with contextlib.suppress(Empty):
            while not found or text not in found[-1]:
                found.append(self._lines.get(timeout=60))
            return found
        raise AssertionError(f"{text!r} did not come, but {found}")

    def end(self) -> None:
        """Kill it, if it has not ended."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def watching(folder: Path) -> Iterator[Watching]:
    started = Watching(folder)
    yield started
    started.end()


def test_every_change_is_tried_until_ctrl_c(watching: Watching, folder: Path) -> None:
    first = watching.until("op[n=64]")
    assert any("Ctrl-C ends it" in line for line in first)
    before = watching.until("A quick look")

    (folder / "helper.py").write_text("factor = 2.0\n")
    assert watching.until(" changed")[-1].endswith("helper.py changed")
    # Beside the try before, if nobody else was busy during either.
    (line,) = watching.until("fast")[-1:]
    assert "-> " in line or any("withheld" in said for said in (*before, line))

    (folder / "ops.py").write_text(f"{SUITE}(\n")
    assert any("SyntaxError" in line for line in watching.until("SyntaxError"))

    (folder / "helper.py").write_text(WRONG)
    (folder / "ops.py").write_text(SUITE)
    assert "WRONG" in watching.until("WRONG")[-1]

    (folder / "helper.py").write_text(RIGHT)
    assert "right" in watching.until("fast")[-1]
    assert len(processes_of(folder)) >= 2, "the command and its server"

    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(10) == 130
    assert eventually(lambda: not processes_of(folder))


def test_a_document_a_line_where_others_follow(surveyed: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command goes on where watching ends, which it never does by itself, and tries once more.
    monkeypatch.setattr(attempts.Attempts, "watch", attempts.Attempts.once)
    said = surveyed("try", "ops.py", "--watch", "-i", "builtin", "--format", "json")
    documents = [json.loads(line) for line in said.out.splitlines()]
    assert [[row["implementation"] for row in one["tries"]] for one in documents] == [["baseline", "builtin"]] * 2
