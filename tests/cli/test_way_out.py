"""What commands print and write: nothing of a store commands a terminal or GitHub's runner, and no URL shows its credentials."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.builders import make_run, write_runs
from tests.faults.damaged import DAMAGES, make_store
from tests.faults.reading import COMMANDS
from tests.in_process import Said, call_main

COMMANDING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]|^\\s*::|##\\[", re.MULTILINE
)
URL = "s3://AKIDEXAMPLE:TOPSECRET@bucket/results"


def commanding(said: Said) -> list[str]:
    return [found[0] for found in COMMANDING.finditer(said.out + said.err)]


@pytest.fixture(scope="module")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with commands in its texts and in the name of a file."""
    store = tmp_path_factory.mktemp("hostile") / "results"
    make_store(store)
    for name in ("texts with commands in them", "a file name with commands in it"):
        DAMAGES[name](store)
    return store


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_commands_is_printed(
    tmp_path: Path, hostile_store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    shutil.copytree(hostile_store, tmp_path / "results")
    (tmp_path / "saved.json").write_text("\x1b]0;x\x07\n::error::x")
    said = call_main(tmp_path, *COMMANDS[command])
    assert said.out or said.err
    assert commanding(said) == []


def test_in_an_error(tmp_path: Path) -> None:
    said = call_main(tmp_path, "show", "--store", "x\n::error::\x1b[2J")
    assert said.code == 2 and commanding(said) == [] and "\\::error::" in said.err


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the URL lead to a folder, so that everything works that works with an object store."""
    store = tmp_path / "bucket"
    write_runs(store, make_run(0), make_run(1, slower={"fused": 1.3}))

    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            return fs.LocalFileSystem(), str(store)

    monkeypatch.setattr("pairbench.store.location.fs.FileSystem", FileSystem)
    return store


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("show", "nothing"),
        ("compare", "--format", "json"),
        ("compare", URL),
        ("trend", "nothing"),
        ("accept", "*fused*", "--reason", "x"),
        ("triage", "0123456789ab", "--state", "new"),
        ("export", "csv"),
        ("dashboard", "-o", "site"),
    ],
    ids=" ".join,
)
def test_credentials_of_a_store_are_shown_nowhere(tmp_path: Path, elsewhere: Path, command: tuple[str, ...]) -> None:
    said = call_main(tmp_path, *command, "--store", URL)
    assert "Traceback" not in said.err
    assert "TOPSECRET" not in said.out + said.err and "AKIDEXAMPLE" not in said.out + said.err
    assert "holds credentials" in said.err and "AWS_SECRET_ACCESS_KEY" in said.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"TOPSECRET" in path.read_bytes() or b"AKIDEXAMPLE" in path.read_bytes()] == []
    if command[0] == "dashboard":
        assert any(b"s3://***@bucket/results" in path.read_bytes() for path in files)


def test_credentials_of_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    for url in ("s3://AKIDEXAMPLE:TOPSECRET@bucket/results?nonsense=1", "s3://AKIDEXAMPLE:TOP/SECRET@b ucket/x"):
        said = call_main(tmp_path, "show", "--store", url)
        assert said.code in (2, 4) and "SECRET" not in said.err.replace("AWS_SECRET_ACCESS_KEY", ""), said.err


def test_a_store_without_credentials_is_no_reason_to_warn(tmp_path: Path) -> None:
    write_runs(tmp_path / "results", make_run(0))
    assert "credentials" not in call_main(tmp_path, "show").err
