"""Time the commands that people wait for, as whole processes, beside what they may take.

python -m tests.lab.speed.bench [NAME ...] [--device auto] [--times 5]

Each command begins in a folder of its own with README's first pair, or what is wrong with it. The median of several is shown, and beside it
the time of one before them that begins without what pairbench keeps in the user's cache folder.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.builders import git

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, and how many seconds it may take."""

    arguments: tuple[str, ...]  # behind `python -m`; DEVICE stands for the device
    cpu: float | None = None  # limit on two cores; None where there is none
    gpu: float | None = None  # limit on the host of a GPU
    prepare: Callable[[Path], None] = lambda folder: None  # what else the folder needs
    code: int = 0  # the expected exit code
    edited: bool = False
    """Whether it watches the suite: the time is then that from a change to the line of the variant, and not the whole command's."""


def first_pair() -> str:
    found = re.search(
        r"```python[^\n]*\n(import torch\n.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    if found is None:
        raise ValueError("README.md has no suite that begins with `import torch`")
    return found[1]


def _break(folder: Path) -> None:
    (folder / "my_ops.py").write_text("import torch\nsilu = (\n", encoding="utf-8")


def _change(folder: Path) -> None:
    for number in range(2):
        with (folder / "my_ops.py").open("a", encoding="utf-8") as file:
            file.write(f"# state {number}\n")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "a change")):
            git(folder, *words)


_PAUSE_S = 1.0  # seconds between a result and the next change: nobody edits faster
_ONE = "silu[dtype=float32,n=1024]"
COMMANDS = {
    "README's first pair": Command(arguments=("pairbench", "run", "my_ops.py", "--device", "DEVICE"), cpu=9, gpu=12),
    "verify": Command(arguments=("pairbench", "verify", "my_ops.py", "--device", "DEVICE"), gpu=7),
    "one case, one round, not stored": Command(
        arguments=("pairbench", "run", f"my_ops.py::{_ONE}", "--rounds", "1", "--no-store", "--device", "DEVICE")
    ),
    "try, one case": Command(arguments=("pairbench", "try", f"my_ops.py::{_ONE}", "--device", "DEVICE"), cpu=5, gpu=8),
    "try --watch, after an edit": Command(
        arguments=("pairbench", "try", f"my_ops.py::{_ONE}", "--watch", "--device", "DEVICE"),
        cpu=1.5,
        gpu=2,
        code=130,
        edited=True,
    ),
    "syntax error": Command(arguments=("pairbench", "run", "my_ops.py"), cpu=1.5, gpu=1.5, prepare=_break, code=2),
    "one pytest item": Command(
        arguments=("pytest", "-q", "my_ops.py", "-k", "1024 and float32 and builtin", "--pairbench-device=DEVICE"),
        cpu=6,
        gpu=6,
    ),
    "ab, one case": Command(
        arguments=("pairbench", "ab", "HEAD~1", "HEAD", f"my_ops.py::{_ONE}", "--device", "DEVICE"),
        cpu=20,
        gpu=20,
        prepare=_change,
    ),
}


def main() -> int:
    options = _options()
    sys.stdout.write(
        "| command | median | fastest | slowest | without a cache | at most, two cores / a GPU's host |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
    )
    for name in options.names or COMMANDS:
        command = COMMANDS[name]
        with tempfile.TemporaryDirectory() as cache:
            first, *taken = [seconds(command, options.device, Path(cache)) for _ in range(1 + options.times)]
        limits = " / ".join("-" if limit is None else f"{limit:g} s" for limit in (command.cpu, command.gpu))
        middle, least, most = statistics.median(taken), min(taken), max(taken)
        sys.stdout.write(f"| {name} | {middle:.1f} s | {least:.1f} s | {most:.1f} s | {first:.1f} s | {limits} |\n")
        sys.stdout.flush()
    return 0


def seconds(command: Command, device: str, cache: Path) -> float:
    words = [word.replace("DEVICE", device) for word in command.arguments]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "my_ops.py").write_text(first_pair(), encoding="utf-8")
        command.prepare(folder)
        begun = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            taken = _after_edit(process, folder / "my_ops.py") if command.edited else 0.0
            output, _ = process.communicate()
        taken = taken or time.monotonic() - begun
    if process.returncode != command.code:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}, expected {command.code}:\n{output}")
    return taken


def _after_edit(process: subprocess.Popen[str], suite: Path) -> float:
    """Return the seconds from a change of a suite to the line of its variant, and interrupt the command that watches it."""
    assert process.stdout is not None

    def wait_for_variant() -> None:
        for line in process.stdout or ():
            if line.startswith("  builtin "):
                return
        raise RuntimeError("the command that watches ended before it had printed the line of the variant")

    wait_for_variant()
    time.sleep(_PAUSE_S)
    changed = suite.read_text(encoding="utf-8") + "# changed\n"
    begun = time.monotonic()
    suite.write_text(changed, encoding="utf-8")
    wait_for_variant()
    taken = time.monotonic() - begun
    process.send_signal(signal.SIGINT)
    return taken


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(COMMANDS)}")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if unknown := set(options.names) - set(COMMANDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of: {', '.join(COMMANDS)}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
