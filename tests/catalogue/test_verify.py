"""Every suite of the catalogue, whole: each edge and smoke case of each implementation on the CPU, and every impostor.

That takes thirteen minutes of one core. One suite is always verified. The others are slow, and where PAIRBENCH_SLOW is
`part`, as in CI, they are an eighth of them, another with each commit, and what the last commits changed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pairbench.suite.modules import find_suites, load_suite
from tests import turns

ROOT = Path(__file__).parents[2]
ONLY_ON_A_GPU = {("block_mask_cache", "keyed_without_device")}
"""Impostors that are right on a CPU."""
LIBRARIES = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
"""Keeps a fault of torch out of tests of suites: suites/README.md, "Faults of libraries"."""

ALWAYS = ("suites/linear/qkv.py",)
_LONGEST = ("vae", "dit", "conv", "depthwise", "attention")
"""The families with the longest suites, which go first so that no core waits for them at the end."""
_COMMITS = 8
"""The number of commits that take every suite between them."""


def suites() -> list[str]:
    """Return all suites, those of long families first."""
    names = [path.relative_to(ROOT).as_posix() for path in find_suites((ROOT / "suites",))]
    return sorted(names, key=lambda name: name.split("/")[1] not in _LONGEST)


def part_of(names: list[str]) -> list[str]:
    """Return an eighth of some suites, by the commit, and those that changed lately, themselves or beside them."""
    number = turns.turn(_COMMITS)
    if number is None:
        return names
    changed = turns.changed_lately("suites")
    helpers = {str(Path(file).parent) for file in changed if file.endswith(".py") and file not in names}
    return [
        name
        for index, name in enumerate(names)
        if index % _COMMITS == number or name in changed or str(Path(name).parent) in helpers
    ]


def chosen() -> list[Any]:
    """Return the suites to verify: those that always are, and the slow ones with their mark."""
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in part_of(suites()) if name not in ALWAYS]
    return [*ALWAYS, *slow]


def test_some_commits_take_every_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    names = suites()
    taken = set()
    monkeypatch.setattr(turns, "changed_lately", lambda _: set())
    for commit in range(_COMMITS):
        monkeypatch.setattr(turns, "turn", lambda of, number=commit: number % of)
        taken |= {*part_of(names)}
    assert taken == {*names} and {*ALWAYS} <= taken


def test_what_changed_lately_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["suites/a/one.py", "suites/a/two.py", "suites/b/three.py", "suites/c/four.py", "suites/c/five.py"]
    changed = {"suites/a/two.py", "suites/c/kernels.py", "suites/README.md"}
    monkeypatch.setattr(turns, "changed_lately", lambda _: changed)
    monkeypatch.setattr(turns, "turn", lambda _: 3)
    assert part_of(names) == ["suites/a/two.py", "suites/c/four.py", "suites/c/five.py"]
    monkeypatch.setattr(turns, "turn", lambda _: None)
    assert part_of(names) == names


@pytest.mark.parametrize("suite", chosen())
def test_all_is_right_and_every_impostor_is_rejected(suite: str, tmp_path: Path) -> None:
    # One thread each: two suites are verified side by side, and most of the time goes into Triton's interpreter.
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1", **LIBRARIES}
    command = [sys.executable, "-m", "pairbench", "verify", suite, "--impostors", "--device", "cpu"]
    done = subprocess.run(
        [*command, "--format", "json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert {row["status"] for row in found["verifications"]} <= {"verified", "skipped"}
    assert not [row for row in found["impostors"] if not row["rejected"]]
    tried = {(row["operator"], row["impostor"]) for row in found["impostors"] if row["declared"]}
    operators = load_suite(ROOT / suite).values()
    declared = {(one.name, name) for one in operators for name in one.impostors}
    assert declared and declared - tried <= ONLY_ON_A_GPU
