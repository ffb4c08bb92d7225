import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.store import upkeep
from pairbench.store.compacted import INDEX
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_run, read_samples
from pairbench.store.writer import RunWriter, write_run
from tests.builders import make_run, write_runs
from tests.faults.damaged import make_store
from tests.in_process import Said, call_main
from tests.store.rows import record, samples


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a store with a file of every kind that there is."""
    monkeypatch.setattr(upkeep, "AT_LEAST", 2)
    folder = tmp_path / "store"
    make_store(folder)
    write_runs(folder, *(make_run(24 * 40 + number) for number in range(6)))
    for _ in upkeep.compact(StoreLocation.of(folder), keep=2):
        pass
    return folder


def call(folder: Path, *words: str) -> Said:
    return call_main(folder.parent, "store", *words, "--store", str(folder))


def found(said: Said) -> dict[str, list[str]]:
    by_word = defaultdict(list)
    for row in said.document["found"]:
        by_word[row["what"]].append(row["file"])
    return by_word


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sound_store_and_each_kind_of_file_that_is_damaged(store: Path) -> None:
    sound = contents(store)
    files = [path for path in sound if path.suffix in (".parquet", ".json") and not path.name.startswith("_")]
    assert upkeep.check(StoreLocation.of(store)).files == len(files) and contents(store) == sound
    pq.write_table(pa.table({"a": [1]}), store / "records" / "theirs.parquet")
    said = call(store, "check", "--format", "json")
    assert said.code == 0 and "damaged" not in found(said)
    assert found(said)["foreign"] == [str(store / "records/theirs.parquet")]
    kinds = {(path.relative_to(store).parts[0], "compact-" in path.name): path for path in files}
    assert {"records", "samples", "accepted", "triage", "breakdowns", "calibrations"} == {folder for folder, _ in kinds}
    assert ("records", True) in kinds
    for path in kinds.values():
        content = bytearray(sound[path])
        content[len(content) // 2] ^= 8
        path.write_bytes(content)
    damaged = contents(store)
    said = call(store, "check", "--format", "json")
    assert said.code == 1 and sorted(found(said)["damaged"]) == sorted(map(str, kinds.values()))
    assert contents(store) == damaged


def test_all_that_is_left_or_strange_is_named(store: Path) -> None:
    (store / "records/strange.parquet").write_bytes((store / INDEX).read_bytes())
    folder = store / "samples/device=nvidia-h200/month=2026-03"
    orphan, unfinished = "20260301T000000-ffffff", "20260302T000000-eeeeee"
    where: dict[str, Any] = {"device_slug": "nvidia-h200", "month": "2026-03"}
    write_run(store, run_id=orphan, records=(), samples=[samples(orphan)], **where)
    RunWriter(store, run_id=unfinished, **where).__enter__().append_records([record(unfinished)])
    (folder / ".half.tmp").write_bytes(b"x")
    own = next(path for path in store.rglob("records/**/*.parquet") if "compact-" in path.name)
    write_runs(store.parent / "other", make_run(24 * 40))
    (copy,) = (store.parent / "other").rglob("records/**/*.parquet")
    shutil.copy(copy, own.parent)
    (store / INDEX).write_text("{}")
    said = call(store, "check", "--format", "json")
    words = found(said)
    assert said.code == 1 and words["damaged"] == [str(store / "records/strange.parquet")]
    assert words["orphaned"] == [str(folder / f"{orphan}.parquet")]
    assert any("part-" in name for name in words["unfinished"])
    assert {Path(name).name for name in words["left over"]} >= {".half.tmp", "_compacted.json", copy.name}


@pytest.mark.parametrize("words", [("check",), ("compact",), ("prune", "--samples", "--older", "9d")])
def test_no_store_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = call(tmp_path / "nowhere", *words)
    assert said.code == 2 and "nowhere" in said.err and "--store" in said.err and "Traceback" not in said.err
    assert not (tmp_path / "nowhere").exists()


def test_compact_says_what_it_did(store: Path) -> None:
    said = call(store, "compact", "--keep", "0", "--format", "json")
    assert said.code == 0, said.err
    for row in said.document["compacted"]:
        assert row["runs"] > 1 and row["files_fewer"] > 0 and row["bytes"] > 0 and row["bytes_before"] > 0
    again = call(store, "compact", "--keep", "0")
    assert again.code == 0 and again.out == "Nothing is left to compact\n"


def test_compact_names_what_cannot_be_read(store: Path) -> None:
    path = max(store.rglob("records/**/month=*/*.parquet"), key=lambda path: "compact-" not in path.name)
    path.write_bytes(path.read_bytes()[:-100])
    said = call(store, "compact", "--keep", "0")
    assert said.code == 1 and str(path) in said.err and path.exists()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Make a store with two runs of long ago and one that is not over."""
    for run_id in ("20250101T000000-aaaaaa", "20250102T000000-bbbbbb", "29990101T000000-cccccc"):
        rows: dict[str, Any] = {"records": [record(run_id)], "samples": [samples(run_id)]}
        write_run(tmp_path / "store", run_id=run_id, device_slug="cpu", month=f"{run_id[:4]}-{run_id[4:6]}", **rows)
    return tmp_path / "store"


def test_prune_is_dry_until_it_is_told(old: Path) -> None:
    before = contents(old)
    size = sum(len(content) for path, content in before.items() if "samples" in path.parts and "2025" in str(path))
    words = ("prune", "--samples", "--older", "90d")
    said = call(old, *words, "--format", "json")
    assert said.code == 0 and contents(old) == before
    assert said.document["old samples"] == [{"folder": "samples/device=cpu/month=2025-01", "files": 2, "bytes": size}]
    assert "2 files of samples" in said.err and "nothing was removed, --yes does it" in said.err
    said = call(old, *words, "--yes")
    assert said.code == 0 and "2 files of samples" in said.err and "were removed" in said.err
    gone = before.keys() - contents(old).keys()
    assert len(gone) == 2 and all("samples" in path.parts for path in gone)
    assert read_samples(old, "20250101T000000-aaaaaa").value == ()
    assert len(read_samples(old, "29990101T000000-cccccc").value) == 1
    assert len(read_run(old, "20250101T000000-aaaaaa").value) == 1
    said = call(old, *words, "--yes")
    assert said.code == 0 and "0 files" in said.err


@pytest.mark.parametrize(
    "words", [("--older", "90d"), ("--samples", "--older", "0d"), ("--samples", "--older", "90"), ("--samples",)]
)
def test_prune_takes_no_half_order(old: Path, words: tuple[str, ...]) -> None:
    before = contents(old)
    said = call(old, "prune", "--yes", *words)
    assert said.code == 2 and ("expected" in said.err.lower() or "Missing option" in said.err)
    assert contents(old) == before
