"""Attack pairbench in every way that there is here, and print one table of what came of it; `nox -s faults` runs it.

python -m tests.lab.faults.bench [NAME ...] [--scale 1.0] [--jobs 2] [--seed 1] [--minutes 30] [--write]

Each part of an attack runs in a process of its own, some at a time, with a limit on its time; when the minutes are over none is begun any more, and
the table says so. `--scale 0.1` makes a tenth of all tries; `--write` puts
the table into README.md beside this file.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.lab.faults.attacks import ATTACKS

ROOT = Path(__file__).parents[3]
PAGE = Path(__file__).with_name("README.md")
KINDS = ("lost", "doubled", "wrong values", "tracebacks", "orphans", "files left", "hangs", "other")
"""What may go wrong; the goal is none of it."""
_WORDS = {
    "tracebacks": ("traceback",),
    "orphans": ("processes are left",),
    "hangs": ("hangs", "had not ended", "still at work", " took "),
    "files left": ("left:", "files are left", "still waits"),
    "doubled": ("twice", "doubled"),
    "lost": ("lost", "without rows", "not listed", "not on the site", "not exported", "missing", "nothing waits"),
    "wrong values": ("wrong value", "another value", "other values", "the store has", "were executed"),
}
"""Words of the attacks' sentences that tell what kind each is of; the first that fits counts."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    name: str
    tried: int  # how many times something was done that could have gone wrong
    wrong: tuple[str, ...] = ()  # a sentence for each time that something went wrong
    why_not: str = ""  # why it was not made here; empty if it was, or a part of it was
    unmade: int = 0  # how many of its parts were not made


def kind_of(sentence: str) -> str:
    low = sentence.lower()
    return next((kind for kind, words in _WORDS.items() if any(word in low for word in words)), "other")


def main() -> None:
    """Make the attacks, print the table, and exit with 1 where something went wrong."""
    parser = argparse.ArgumentParser(description="Attack pairbench, and print what came of it.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)}; all where none is given")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each attack is made")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes attack at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0, help="after that no further part of an attack is begun")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - ATTACKS.keys()):
        parser.error(f"{unknown[0]!r} is unknown, expected some of {', '.join(ATTACKS)}")
    if options.part:
        _make_part(json.loads(options.part))
        return
    began = time.monotonic()
    names = options.names or list(ATTACKS)
    seen = attack(names, scale=options.scale, jobs=options.jobs, seed=options.seed, seconds=60 * options.minutes)
    minutes = (time.monotonic() - began) / 60
    text = f"{table(seen)}\n\n{minutes:.0f} minutes, {_machine()}"
    _say(text)
    for one in seen:
        for sentence in one.wrong:
            _say(f"{one.name}: {kind_of(sentence)}: {sentence[:1000]}")
    if options.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    sys.exit(any(one.wrong for one in seen))


def attack(
    names: Sequence[str], *, scale: float = 1.0, jobs: int = 2, seed: int = 1, seconds: float = 1800.0
) -> list[Seen]:
    """Make attacks, and return what came of each, in their order."""
    until = time.monotonic() + seconds
    missing = {name: ATTACKS[name].needs() for name in names}
    parts = [part for name in names if not missing[name] for part in _divided(name, scale, seed)]
    with ThreadPoolExecutor(jobs) as pool:
        begun = [pool.submit(_part, *part, until) for part in parts]
    made = [one.result() for one in begun]
    made += [Seen(name=name, tried=0, why_not=why) for name, why in missing.items() if why]
    return [_joined(name, [one for one in made if one.name == name]) for name in names]


def _divided(name: str, scale: float, seed: int) -> Iterator[tuple[str, int, int]]:
    """Yield for each part of an attack its name, how many tries it makes, and its seed."""
    tries = max(1, round(ATTACKS[name].tries * scale))
    count = min(ATTACKS[name].parts, tries)
    for number in range(count):
        yield name, tries // count + (number < tries % count), seed + number


def _part(name: str, tries: int, seed: int, until: float) -> Seen:
    began = time.monotonic()
    if began > until:
        return Seen(name=name, tried=0, why_not="no time was left")
    with tempfile.TemporaryDirectory() as folder:
        answer, output = Path(folder) / "answer.json", Path(folder) / "output"
        part = json.dumps({"name": name, "tries": tries, "seed": seed, "answer": str(answer)})
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.lab.faults.bench", "--part", part],
                cwd=ROOT,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            code = process.wait(ATTACKS[name].limit_s)
            told = f"the attack itself ended with {code}: {output.read_text(errors='replace')[-1500:]}"
            counts, wrong = json.loads(answer.read_text()) if code == 0 else ({}, [told])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            counts, wrong = {}, [f"it hangs: had not ended after {ATTACKS[name].limit_s:.0f} s"]
    tried = sum(count for what, count in counts.items() if what.startswith(ATTACKS[name].tried))
    took = f"{time.monotonic() - began:.0f} s"
    _say("\n".join([f"{name}: {tried} tries, {len(wrong)} went wrong, {took}", *wrong]), error=True)
    return Seen(name=name, tried=tried, wrong=tuple(wrong))


def _make_part(part: dict[str, Any]) -> None:
    one = ATTACKS[part["name"]]
    found = one.make(part["tries"], part["seed"])
    Path(part["answer"]).write_text(json.dumps([found.counts, found.wrong]))


def _joined(name: str, parts: Sequence[Seen]) -> Seen:
    return Seen(
        name=name,
        tried=sum(part.tried for part in parts),
        wrong=tuple(sentence for part in parts for sentence in part.wrong),
        why_not=parts[0].why_not if all(part.why_not for part in parts) else "",
        unmade=sum(bool(part.why_not) for part in parts),
    )


def table(seen: Sequence[Seen]) -> str:
    """Return what came of attacks as a table in Markdown."""
    lines = [f"| attack | tries | {' | '.join(KINDS)} |", f"| --- | ---: |{' ---: |' * len(KINDS)}"]
    for one in seen:
        by_kind = Counter(map(kind_of, one.wrong))
        numbers = [one.why_not, *([""] * (len(KINDS) - 1))] if one.why_not else [by_kind[kind] for kind in KINDS]
        lines.append(f"| {one.name}: {ATTACKS[one.name].what} | {one.tried:,} | {' | '.join(map(str, numbers))} |")
    short = [
        f"{one.name} ({one.unmade} of {ATTACKS[one.name].parts} parts)" for one in seen if one.unmade and one.tried
    ]
    return "\n".join([*lines, *(["", f"For want of time not all was made of {', '.join(short)}."] if short else [])])


def filled(page: str, text: str) -> str:
    """Return a page with a table in its place; of a table that was there already, the rows of other attacks stay, and what is said of them."""

    def joined(found: re.Match[str]) -> str:
        rows = {**_rows(found[2]), **_rows(text)}
        head = text.splitlines()[:2]
        ordered = [rows[name] for name in ATTACKS if name in rows]
        earlier = _said(found[2]) if rows.keys() - _rows(text).keys() else []
        said = "\n\n".join([*earlier, *_said(text)])
        return f"{found[1]}{chr(10).join([*head, *ordered])}\n\n{said}\n{found[3]}"

    return re.sub(r"(<!-- measured -->\n)(.*?)(<!-- /measured -->)", joined, page, flags=re.DOTALL)


def _rows(text: str) -> dict[str, str]:
    """Return the rows of a table by the names of the attacks."""
    named = ((line[2:].partition(":")[0], line) for line in text.splitlines() if line.startswith("| "))
    return {name: line for name, line in named if name in ATTACKS}


def _said(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("|")]


def _machine() -> str:
    from pairbench.execute.worker.calls import cpu_name

    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "pyarrow", "hypothesis"))
    date = time.strftime("%d %B %Y").lstrip("0")
    return (
        f"{date}: {os.cpu_count()} cores of {cpu_name()}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {versions}; `{' '.join(['python -m tests.lab.faults.bench', *sys.argv[1:]])}`"
    )


def _say(text: str, *, error: bool = False) -> None:
    (sys.stderr if error else sys.stdout).write(f"{text}\n")


if __name__ == "__main__":
    main()
