"""Every block of Python in the documentation runs, and every command runs or is at least a command.

A command is run in a folder with the README's first pair and a run of it, unless it needs what `beyond` names: then the real command
line reads it, so that each verb, option and number of arguments is right. Commands that sentences name are read in the same way.
"""

import importlib.util
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Done, call, environment_of
from tests.docs.command_line import commands
from tests.docs.pages import PAGES, ROOT, blocks_of, named_in
from tests.in_process import call_main

Run = Callable[..., Done]

SETTINGS = '[tool.pairbench]\nrounds = 1\ncase_seconds = 0.05\nmin_samples = 20\nstore = "results"\n'
MADE = ["pairbench", "run", "my_ops.py"]
"""The command that all pages share: it is run twice for all of them together."""
STORED = {"accept", "compare", "dashboard", "plot", "recipe", "show", "store", "trend", "triage"}
"""Verbs that start no worker, and need no process of their own."""


def small(suite: str) -> str:
    """Return a suite with cases that take microseconds."""
    return suite.replace("1048576", "4096")


def beyond(words: list[str]) -> str | None:
    """Return what a command needs that this test has not; None for a command that is run."""
    verb = words[1] if len(words) > 1 else ""
    if words[0] not in ("pairbench", "pytest"):
        return "another program"
    if any("cuda" in word for word in words):
        return "a GPU"
    if verb in ("ab", "bisect", "backfill") or {"--changed-since", "--pairbench-changed-since"} & {*words}:
        return "a history in git"
    if verb == "fleet" or {"--serve", "--live", "--watch", "--publish"} & {*words}:
        return "a server, or somebody who ends it"
    if any(word.startswith(("KernelBench/", "flashinfer-trace")) for word in words):
        return "a corpus that nobody commits"
    if any(word.startswith(("suites/", "results/reference")) for word in words) or "--catalogue" in words:
        return "minutes, for the catalogue or its results"
    if verb == "calibrate":
        return "five runs, which take as long as all else"
    if verb == "triage" and len(words) > 2:
        return "an event"
    return "files of another tool" if verb == "import" else None


def misread(words: list[str], *, whole: bool) -> str | None:
    """Return why the command line does not take a command; None where it does.

    Args:
        words: `pairbench` and what follows.
        whole: Whether arguments must be there; a sentence may name a verb alone.
    """
    rest = words[1:]
    name = next((name for name in (" ".join(rest[:2]), rest[0]) if name in commands()), None)
    if name is None:
        return None if rest[0] in ("store", "fleet", "--version") and len(rest) == 1 else f"{rest[0]} is no verb"
    try:
        commands()[name].make_context(name, rest[len(name.split()) :])
    except Exception as error:  # noqa: BLE001 - typer's own classes of errors are not for others to import
        if not whole and type(error).__name__ == "MissingParameter":
            return None
        return str(error)
    return None


def surroundings(folder: Path) -> dict[str, str]:
    found = environment_of(folder / "tmp", PAIRBENCH_WORKERS="fork")
    return {name: value for name, value in found.items() if not name.startswith("PYTEST_")}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the README's first pair and a run of it."""
    folder = tmp_path_factory.mktemp("made")
    (pair,) = (block for block in blocks_of("README.md") if block.title == "my_ops.py")
    (folder / "my_ops.py").write_text(small(pair.text))
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "tmp").mkdir()
    for _ in range(2):
        done = call(folder, surroundings(folder), *MADE[1:])
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


PAGES_THAT_RUN = [
    page
    for page in PAGES
    if any(
        block.language == "python" or any(not beyond(words) for words in block.commands) for block in blocks_of(page)
    )
]


def test_the_pages_that_run_are_those_that_one_expects() -> None:
    assert {"README.md", "docs/get-started.md", "docs/declare.md", "docs/python.md"} <= {*PAGES_THAT_RUN}
    assert len(PAGES) > 75


COMPILES = "docs/problems.md"
"""The page whose commands compile: each waits ten seconds for the first C++ kernel."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page == COMPILES)) for page in PAGES_THAT_RUN]
)
def test_the_blocks_of_a_page_run(page: str, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(made, folder)
    environment = surroundings(folder)
    for number, block in enumerate(blocks_of(page)):
        if block.language == "python" and block.title:
            (folder / block.title).write_text(small(block.text))
        elif block.language == "python" and is_installed(block.text):
            (folder / f"script{number}.py").write_text(block.text)
            done = call(folder, environment, module=f"script{number}")
            assert (done.returncode, done.stdout != "") == (0, True), done.stderr
        for words in block.commands:
            if words == MADE or beyond(words):
                continue
            # On a busy machine one of two equal runs may be slower.
            allowed = (0, 1, 3) if words[1] == "compare" else (0,)
            if words[0] == "pairbench" and words[1] in STORED:
                said = call_main(folder, *words[1:])
                code, text = said.code, said.out + said.err
            else:
                done = call(folder, environment, *words[1:], module=words[0])
                code, text = done.returncode, done.stdout + done.stderr
            assert code in allowed and "Traceback" not in text, f"{words}: {text}"


def is_installed(script: str) -> bool:
    """Return whether what a script imports is here; polars, which reads a store as well, need not be."""
    compile(script, "a block", "exec")
    names = re.findall(r"^(?:import|from) (\w+)", script, re.MULTILINE)
    return all(importlib.util.find_spec(name) or name == "my_ops" for name in names)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_are_commands(page: str, pytestconfig: pytest.Config) -> None:
    sessions = re.findall(r"@nox\.session.*\ndef (\w+)\(", (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wrong = [(words, why) for words in named_in(page) if (why := misread(words, whole=False))]
    for words in (words for block in blocks_of(page) for words in block.commands):
        match words:
            case ["pairbench", *_]:
                wrong += [(words, why)] if (why := misread(words, whole=True)) else []
            case ["nox", "-s", session, *_]:
                wrong += [] if session in sessions else [(words, "no such session")]
            case ["pytest", *rest]:
                wrong += [(words, option) for option in unknown_to_pytest(rest, pytestconfig)]
    wrong += [
        (["pip"], extra)
        for extra in re.findall(r"pip install \"?[\w.]+\[(\w+)\]", (ROOT / page).read_text(encoding="utf-8"))
        if extra not in extras
    ]
    assert wrong == []


def unknown_to_pytest(words: list[str], config: Any) -> list[str]:
    """Return the options among some words that neither pytest nor its plugins have; those of pairbench's plugin are read from it."""
    from pairbench.integrations.plugin import options

    source = Path(str(options.__file__)).read_text(encoding="utf-8")
    unknown = config._parser.parse_known_and_unknown_args(words)[1]
    return [option for option in unknown if f'"{option.partition("=")[0]}"' not in source]
