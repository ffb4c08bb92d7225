"""A store in Google's object store: what is written there is read there, compacted there, and not waited for when it is away."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbench.store import upkeep
from pairbench.store.location import StoreLocation
from tests.faults import gcs
from tests.faults.ports import free_port
from tests.in_process import call_main
from tests.store.test_compact import answers, merge, same, write

pytestmark = pytest.mark.skipif(gcs.server_command() is None, reason="no server; see tests/faults/gcs.py")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with gcs.object_store(tmp_path_factory.mktemp("gcs") / "log") as found:
        yield found


def test_every_reader_finds_there_what_it_finds_in_a_folder(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "AT_LEAST", 2)
    url = gcs.url_of(port, "same")
    here, there = write(tmp_path / "store"), StoreLocation.of(url)
    for file in here.files("records"):
        target = f"{there.root}{file.path.removeprefix(here.root)}"
        with there.filesystem.open_output_stream(target) as stream:
            stream.write(Path(file.path).read_bytes())
    expected = answers(here)
    for compacted in (False, True):
        assert not compacted or merge(there) == 8
        found = answers(StoreLocation.of(url))
        assert [name for name, value in expected.items() if not same(found[name], value)] == []


def test_one_that_is_away_is_given_up_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    said = call_main(tmp_path, "show", "--runs", "--store", gcs.url_of(free_port()))
    assert said.code == 4 and "cannot be listed" in said.err
    assert time.monotonic() - began < 60
