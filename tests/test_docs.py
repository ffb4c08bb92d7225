"""What a user can name is documented: every verb, option and column; and nothing names one machine or one person."""

import functools
import importlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.record import Record, Samples, columns

ROOT = Path(__file__).parents[1]


@functools.cache
def verbs() -> dict[str, Any]:
    import typer

    command: Any = typer.main.get_command(importlib.import_module("pairbench.cli.app").app)
    return dict(command.commands)


def test_verbs_come_in_the_order_of_use() -> None:
    contract = ["doctor", "list", "verify", "run", "show", "compare", "ab", "trend", "accept", "dashboard"]
    contract += ["results", "calibrate", "breakdown", "diverge"]
    contract += ["import", "export", "recipe"]
    assert list(verbs()) == [verb for verb in contract if verb in verbs()]


def test_every_verb_has_help_with_an_example() -> None:
    without = [
        name for name, verb in verbs().items() if f"pairbench {name}" not in (verb.help or "") + (verb.epilog or "")
    ]
    assert verbs()
    assert not without, "say in one sentence what it does, and show a command line that does it"


def test_every_option_has_help() -> None:
    without = [
        f"{name} {parameter.name}"
        for name, verb in verbs().items()
        for parameter in verb.params
        if not parameter.help and parameter.name != "help"
    ]
    assert not without


def test_every_verb_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in verbs() if f"pairbench {name}" not in text] == []


def test_every_session_is_described() -> None:
    """`nox -l` is the menu; CONTRIBUTING.md shows it."""
    sessions = re.findall(r"@nox\.session\ndef (\w+)\(", (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert sessions
    assert [name for name in sessions if f"nox -s {name}" not in text] == []


@pytest.mark.parametrize("row", [Record, Samples])
def test_every_column_is_documented(row: type[Record] | type[Samples]) -> None:
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert [name for name in columns(row) if f"`{name}`" not in text] == []
    assert all(columns(row).values())


def test_the_folders_of_the_store_are_documented() -> None:
    schema: Any = importlib.import_module("pairbench.store.schema")
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert [name for name in schema.PARTITIONS.names if f"{name}=" not in text] == []


def test_every_schema_version_has_its_history() -> None:
    schema: Any = importlib.import_module("pairbench.store.schema")
    told = re.findall(r"^#   (\d+)  \w", Path(schema.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert told == [str(version + 1) for version in range(schema.SCHEMA_VERSION)]


def test_changelog_knows_the_version() -> None:
    from pairbench import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# Paths of one machine; a note to oneself. Spelt so that this file does not match itself.
PRIVATE = re.compile(
    rb"(?<![\w.])/(?:work|opt/pb|root|home/[a-z]+|Users)/|work" rb"place|shared/(?:DESIGN|research|seeds)"
)


def test_nothing_names_one_machine() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no telling what belongs to it")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    files = [ROOT / name for name in listed.decode().split("\0") if name]
    found = [
        f"{file.relative_to(ROOT)}: {match[0].decode()}"
        for file in files
        if file.is_file() and file.suffix != ".parquet"
        for match in [PRIVATE.search(file.read_bytes())]
        if match
    ]
    assert found == []


def test_no_reference_run_names_one_machine() -> None:
    import pyarrow.parquet

    for file in (ROOT / "results" / "reference").rglob("*.parquet"):
        text = str(pyarrow.parquet.read_table(file).to_pylist())
        assert PRIVATE.search(text.encode()) is None, file
