"""How many requests an object store gets, before and after `pairbench store compact`, which goes on there as in a folder."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from pairbench.errors import StoreFailedError
from pairbench.store import upkeep
from pairbench.store.compacted import INDEX
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame
from pairbench.store.upkeep import check
from tests.faults import s3
from tests.in_process import call_main
from tests.lab.scale.big_store import first_variant, write_store

pytestmark = pytest.mark.skipif(s3.server_command() is None, reason="no S3 server; see tests/faults/s3.py")

RUNS, KEEP = 56, 20
OTHERS = 8
"""Documents, the index and their like: what is read beside runs."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3.object_store(tmp_path_factory.mktemp("s3") / "log") as found:
        yield found


@pytest.fixture
def way(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Way]:
    for name, value in s3.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    found = s3.Way(port)
    yield found
    found.close()


def fill(tmp_path: Path, way: s3.Way, name: str, runs: int = RUNS) -> StoreLocation:
    for _ in write_store(tmp_path / "store", runs=runs, series=8, slower={runs // 4: 1.03}):
        pass
    place = StoreLocation.of(s3.url_of(way.port, name))
    fs.copy_files(str(tmp_path / "store"), place.root, destination_filesystem=place.filesystem)
    return StoreLocation.of(s3.url_of(way.port, name))


def count(tmp_path: Path, way: s3.Way, name: str) -> dict[str, Counter[str]]:
    found = {}
    for words in (("compare",), ("trend", first_variant())):
        way.requests.clear()
        said = call_main(tmp_path, *words, "--store", s3.url_of(way.port, name), "--format", "json")
        assert said.code in (0, 1) and said.out, said.err
        found[words[0]] = Counter(way.requests)
        found[words[0]]["all"] = way.requests.total()
    return found


def test_what_compare_trend_and_compacting_again_ask_for(tmp_path: Path, way: s3.Way) -> None:
    place = fill(tmp_path, way, "counted")
    before = count(tmp_path, way, "counted")
    # Each file once, for which pyarrow asks twice: how long it is, and what is in it. Only the newest fifty are a reference.
    assert before["compare"]["GET"] <= 51 + OTHERS and before["compare"]["all"] <= 2 * (51 + OTHERS) + 8
    assert RUNS <= before["trend"]["GET"] <= RUNS + OTHERS
    (merged,) = upkeep.compact(place, keep=KEEP)
    assert merged.runs == RUNS - KEEP
    after = count(tmp_path, way, "counted")
    # The runs that keep their files, and of the compacted one its end and one piece, twice: to find the series, and to read it.
    assert after["trend"]["GET"] <= KEEP + 4 + OTHERS < before["trend"]["GET"] - 20
    assert after["trend"]["all"] < 0.6 * before["trend"]["all"]
    assert after["compare"]["all"] <= before["compare"]["all"]
    way.requests.clear()
    assert list(upkeep.compact(StoreLocation.of(s3.url_of(way.port, "counted")), keep=KEEP)) == []
    assert way.requests.total() < 30 and not way.requests["PUT"] and not way.requests["DELETE"]


@pytest.mark.parametrize("mode", ["errors", "refuses"])
@pytest.mark.slow
def test_a_store_that_fails_on_the_way_loses_nothing(tmp_path: Path, way: s3.Way, mode: str) -> None:
    columns = ["run_id", "case", "implementation", "call_p50_ns"]
    place = fill(tmp_path, way, mode, runs=24)
    expected = read_frame(place, columns=columns).value
    for after, keep in ((0, 4), (1, 0)):
        way.turn_after = (after, mode)
        if after:
            way.turn_after, way.mode, way.only = None, mode, INDEX  # all but the index is done
        with pytest.raises(StoreFailedError):
            list(upkeep.compact(StoreLocation.of(s3.url_of(way.port, mode)), keep=keep))
        way.mode, way.turn_after, way.only = "fine", None, ""
        found = read_frame(StoreLocation.of(s3.url_of(way.port, mode)), columns=columns)
        assert found.problems == () and found.value.equals(expected)
    list(upkeep.compact(place, keep=0))
    assert check(place).findings == ()
    assert read_frame(place, columns=columns).value.equals(expected)
    assert all(file.is_compacted for file in place.files("records"))
