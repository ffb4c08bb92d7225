"""A repository of real commits of a small suite, one of which makes its variant slower, or has it call one operator more."""

import argparse
import json
import sys
from collections.abc import Collection
from pathlib import Path

from tests.builders import git

__all__ = ["git", "plant"]

SUITE = """
import time
import torch
from helpers import step
from pairbench import Operator, grid

def inputs(make, n):
    return {{"x": make.normal(n, dtype="float32")}}

def plain(x):
    time.sleep(2e-3)
    return x + 1

def variant(x):
    # {note}
    time.sleep({amount} / 1e3)
    return {work}

def other(x):
    return x * {factor}

planted = Operator("planted", baseline=plain, variants={{"v": variant}}, inputs=inputs, cases=grid(n=[64]))
aside = Operator("aside", baseline=other, variants={{"v": other}}, inputs=inputs, cases=grid(n=[64]))
"""

GPU_SUITE = """
import torch
import triton
import triton.language as tl
from helpers import step
from pairbench import EXACT, Operator, Variant, grid

@triton.jit
def doubled_kernel(source, target, n, tiles, BLOCK: tl.constexpr):
    place = (tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + place, 2 * tl.load(source + place, mask=place < n), mask=place < n)

def doubled(x):
    # {note}
    target, tiles = torch.empty_like(x), triton.cdiv(x.numel(), 4096)
    doubled_kernel[(int({amount} * tiles),)](x, target, x.numel(), tiles, BLOCK=4096)
    return {work}

def other(x):
    return x * {factor}

def operator(name, plain, variant):
    return Operator(name, baseline=plain, variants={{"v": Variant(variant, needs="triton")}},
                    inputs=lambda make, n: {{"x": make.normal(n)}}, cases=grid(n=[2**24]), tolerance=EXACT)

planted = operator("planted", lambda x: x + x, doubled)
aside = operator("aside", other, other)
"""
"""A kernel that works on some of its tiles twice, so that the device needs longer: `amount` is how often it does its work, 1 or more."""


def plant(
    folder: Path,
    commits: int,
    *,
    slower: int,
    more: int,
    broken: Collection[int],
    amounts: tuple[float, float] = (2.0, 4.0),
    suite: str = SUITE,
    work: tuple[str, str] = ("x + 1", "(x + 2) - 1"),
) -> list[str]:
    """Make a history, and return the hash of each commit, that of the good end first."""
    (folder / "suites").mkdir(parents=True)
    git(folder, "init", "-q")
    shas = []
    for number in range(commits + 1):
        text = suite.format(
            note="rewritten" if number >= slower - 3 else "as it was",
            amount=amounts[number >= slower],
            work=work[number >= more],
            factor=2 + number // 7,
        )
        if number in broken:
            text += "\nimport a_module_that_is_not_there\n"
        (folder / "suites" / "ops.py").write_text(text)
        (folder / "suites" / "helpers.py").write_text("def step(x):\n    return x\n")
        (folder / "notes.txt").write_text(f"{number}\n")
        git(folder, "add", "-A", ".")
        git(folder, "commit", "-q", "-m", f"change {number}")
        shas.append(git(folder, "rev-parse", "HEAD"))
    return shas


def main() -> int:
    """Make one of the histories of the page beside this file in a folder, and print the commands that search it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="an empty folder, or one that is not there")
    parser.add_argument("--device", default="cpu", help="cpu: 64 commits, +9.6 percent; cuda:N: 16 commits, +3 percent")
    options = parser.parse_args()
    folder: Path = options.folder
    if options.device == "cpu":
        plant(folder, 64, slower=37, more=50, broken={5, 20, 33, 41, 42}, amounts=(2.0, 2.2))
        settings, good = {"case_seconds": 0.2, "min_samples": 40}, "HEAD~64"
    else:
        viewed = ("target", "target.view_as(target)")
        plant(folder, 16, slower=11, more=14, broken={6}, amounts=(1.0, 1.03), suite=GPU_SUITE, work=viewed)
        settings, good = {}, "HEAD~16"
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**settings, "suites": ["suites"]}.items()]
    (folder / "pyproject.toml").write_text("\n".join(["[tool.pairbench]", *lines, ""]))
    for metric in ("", " --metric ops"):
        search = f"pairbench bisect suites/ops.py::planted --good {good} --bad main --device {options.device}{metric}"
        sys.stdout.write(f"cd {folder} && {search}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
