"""`pairbench dashboard` on stores that fail: a site that is there stays as it is, and the exit code says so."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pairbench.errors import StoreFailedError
from pairbench.store.opened import OpenedFile
from tests.builders import make_run, write_runs
from tests.in_process import call_main


def site_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((folder / "site").rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store of two runs, and its site."""
    folder = tmp_path_factory.mktemp("made")
    write_runs(folder / "results", make_run(0), make_run(1))
    assert call_main(folder, "dashboard", "-o", "site").code == 0
    return folder


@pytest.fixture
def there(made: Path, tmp_path: Path) -> dict[str, bytes]:
    """Copy the store and its site, and return what the site holds."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return site_of(tmp_path)


def test_a_month_that_cannot_be_listed(
    tmp_path: Path, there: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    @contextmanager
    def refused(folder: str = ".") -> Iterator[Iterator[os.DirEntry[str]]]:
        if "records/" in str(folder) and "month=" in str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        with real(folder) as entries:
            yield entries

    monkeypatch.setattr(os, "scandir", refused)
    said = call_main(tmp_path, "dashboard", "-o", "site")
    assert said.code == 4 and "cannot be listed" in said.err and "month=2024-01" in said.err, said.err
    assert "Traceback" not in said.err
    assert site_of(tmp_path) == there


def test_a_store_of_which_nothing_can_be_read(tmp_path: Path, there: dict[str, bytes]) -> None:
    for path in (tmp_path / "results" / "records").rglob("*.parquet"):
        path.write_bytes(b"PAR1")
    said = call_main(tmp_path, "dashboard", "-o", "site")
    assert said.code == 4 and said.err.count("cannot be read, left out") == 2, said.err
    assert site_of(tmp_path) == there


def test_a_store_elsewhere_that_fails_as_it_is_read(
    tmp_path: Path, there: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on this machine and cannot be read is that file's fault; what does not come over a network may be there tomorrow."""
    real = OpenedFile.__init__

    def fails(self: OpenedFile, place: object, path: str, dataset: str) -> None:
        if make_run(1)[0].run_id in path:
            raise StoreFailedError(f"store 's3://b': {path} cannot be read: AWS Error SLOW_DOWN")
        real(self, place, path, dataset)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenedFile, "__init__", fails)
    said = call_main(tmp_path, "dashboard", "-o", "site")
    assert said.code == 4 and "SLOW_DOWN" in said.err, said.err
    assert site_of(tmp_path) == there


def test_an_empty_store_makes_a_site_that_says_what_to_do(tmp_path: Path) -> None:
    said = call_main(tmp_path, "dashboard", "-o", "site")
    assert said.code == 0 and "has no records" in said.err
    assert b"pairbench run" in (tmp_path / "site" / "index.html").read_bytes()
