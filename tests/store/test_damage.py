"""Broken and foreign files, missing stores, full disks: each costs only itself and is said.

The checksum of a file: every single bit is under it, other tools do not see it, and files without it are read as before.
"""

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.errors import StoreError, StoreFailedError
from pairbench.model.record import Record
from pairbench.store.documents import read_acceptances, write_document
from pairbench.store.files import Reading
from pairbench.store.location import StoreLocation
from pairbench.store.opened import check_seal, sealed
from pairbench.store.reader import RunIndex, read_frame, read_run, read_series, runs
from pairbench.store.schema import VERSION_KEY, UnsoundError
from pairbench.store.writer import RunWriter
from tests.builders import make_run, write_runs
from tests.faults.damaged import ACCEPTANCE, SERIES
from tests.store.rows import by_frame, by_index, open_run, record

FOLDER = "records/device=cpu/month=2026-01"


def write(store: Path, *records: Record) -> Path:
    with open_run(store, records[0].run_id) as writer:
        writer.append_records(records)
    return store / FOLDER / f"{records[0].run_id}.parquet"


@pytest.mark.parametrize(
    "read", [by_frame, by_index, runs, lambda store: read_series(store, where={"implementation": "fused"})]
)
def test_broken_and_foreign_files_cost_only_themselves(tmp_path: Path, read: Callable[[Path], Reading[Any]]) -> None:
    write(tmp_path, record("run-2"))
    folder = tmp_path / FOLDER
    (folder / "run-3.parquet").write_bytes(b"PAR1 and then nothing")
    (folder / "run-4.parquet").write_bytes(b"")
    pq.write_table(pa.table({"run_id": ["run-5"]}), folder / "run-5.parquet")
    damaged = write(tmp_path, record("run-1", reason="x" * 500))
    content = bytearray(damaged.read_bytes())
    content[4:200] = b"\0" * 196
    damaged.write_bytes(content)
    found = read(tmp_path)
    names = sorted(Path(problem.split(":")[0]).name for problem in found.problems)
    assert names == [f"run-{number}.parquet" for number in (1, 3, 4, 5)]
    assert {row.run_id for row in found.value} == {"run-2"}
    assert any("not written by pairbench" in problem for problem in found.problems)


def test_the_latest_run_is_the_latest_that_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, record("run-2"))
    (tmp_path / FOLDER / "run-3.parquet").write_bytes(b"")
    found = read_run(tmp_path)
    assert found.value[0].run_id == "run-2"
    assert len(found.problems) == 1
    with pytest.raises(StoreError, match=r"nothing of run 'run-3' can be read.*run-3\.parquet"):
        read_run(tmp_path, "run-3")


def test_another_version_is_read(tmp_path: Path) -> None:
    """An older file lacks columns, a newer one has some that we do not know."""
    path = write(tmp_path, record("run-1"))
    table = pq.read_table(path, partitioning=None).drop_columns(["branch", "confirms", "kernels", "margin"])
    table = table.append_column("added_later", pa.array([1]))
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: b"99"}), path.with_name("run-2.parquet"))
    write(tmp_path, record("run-3"))
    frame, problems = read_frame(tmp_path)
    assert len(problems) == 1 and "schema version 99, which a newer pairbench wrote" in problems[0]
    assert frame["branch"].isna().tolist() == [False, True, False]
    assert "added_later" not in frame.columns
    (other,) = read_run(tmp_path, "run-2").value
    assert (other.branch, other.kernels, other.operator) == (None, None, "rms_norm")
    series = read_series(tmp_path, where={"implementation": "fused"}, columns=["run_id", "branch", "kernels"])
    assert [one.branch is None and one.kernels is None for one in series.value] == [False, True, False]
    assert read_series(tmp_path, where={"branch": "x"}).value == ()
    assert {head.confirms for head in RunIndex.of_store(tmp_path)} == {None}


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.mkdir(), lambda path: (path / "records").mkdir(parents=True)]
)
def test_an_empty_store_says_what_to_do(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "store")
    for read in (read_frame, read_run, runs):
        with pytest.raises(StoreError, match=r"has no records.*pairbench run.*--store"):
            read(tmp_path / "store")


def test_a_run_is_found_by_the_beginning_of_its_id_and_an_unknown_one_refused_with_what_there_is(
    tmp_path: Path,
) -> None:
    for run_id in ("run-10", "run-11", "run-20"):
        write(tmp_path, record(run_id))
    found = {name: read_run(tmp_path, name).value[0].run_id for name in ("latest", "run-11", "run-2")}
    assert found == {"latest": "run-20", "run-11": "run-11", "run-2": "run-20"}
    with pytest.raises(
        StoreError, match="'other' is no run there; expected 'latest' or one run, such as run-20, run-11"
    ):
        read_run(tmp_path, "other")
    with pytest.raises(StoreError, match="'run-1' begins 2 runs"):
        read_run(tmp_path, "run-1")


def test_a_store_that_cannot_be_made_is_said_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"file.*cannot be made.*--store"), open_run(tmp_path / "file"):
        pass


def test_a_url_that_pyarrow_does_not_know_is_refused() -> None:
    with pytest.raises(StoreError, match=r"'gopher://x' cannot be opened.*s3://bucket"):
        StoreLocation.of("gopher://x")


def test_a_full_disk_keeps_what_was_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = open_run(tmp_path).__enter__()
    writer.append_records([record("run-1")])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFailedError, match="No space left"):
        writer.append_records([record("run-1")])
    with pytest.raises(StoreFailedError, match="No space left"):
        writer.close()
    assert len(read_run(tmp_path).value) == 1
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["run-1.part-000001.parquet"]


def test_a_run_is_written_once(tmp_path: Path) -> None:
    write(tmp_path, record("run-1"))
    with pytest.raises(StoreError, match=r"run-1 is in the store already.*run-1\.parquet"):
        write(tmp_path, record("run-1"))
    write(tmp_path, record("run-11"))


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": "a/b"},
        {"run_id": ".a"},
        {"run_id": "a.part-1"},
        {"run_id": "a.compact-0123456789abcdef"},
        {"device_slug": "a b"},
        {"month": "May"},
    ],
)
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    names = {"run_id": "run-1", "device_slug": "cpu", "month": "2026-01", **changes}
    with pytest.raises(ValueError, match="expected"):
        RunWriter(tmp_path, run_id=names["run_id"], device_slug=names["device_slug"], month=names["month"])


def test_every_bit_is_under_it() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2, 3]}), sink)
    content = sealed(sink.getvalue()).to_pybytes()
    assert check_seal(pa.py_buffer(content))
    for place, bit in itertools.product(range(len(content)), range(8)):
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        try:
            known = check_seal(pa.py_buffer(bytes(changed)))
        except UnsoundError:
            continue
        # Of the mark itself, or of the length that leads to it: then nothing else has changed, or there is no footer.
        assert not known
        try:
            table = pq.read_table(pa.BufferReader(bytes(changed)))
        except (OSError, pa.ArrowException):
            continue
        assert table.column("a").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 7, b"\xff" * 100, b"PAR1" + b"\xff\xff\xff\xff" + b"PAR1"])
def test_what_is_no_parquet_has_none(content: bytes) -> None:
    assert not check_seal(pa.py_buffer(content))


def test_other_tools_read_the_file_and_theirs_is_read_without_one(tmp_path: Path) -> None:
    """Where theirs has changed, parquet's own checksum of the page finds it."""
    write_runs(tmp_path, make_run(0))
    (path,) = (tmp_path / "records").rglob("*.parquet")
    assert check_seal(pa.py_buffer(path.read_bytes()))
    table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
    pq.write_table(table, path, write_page_checksum=True, compression="none")
    assert not check_seal(pa.py_buffer(path.read_bytes()))
    assert read_run(tmp_path).value == make_run(0)
    content = bytearray(path.read_bytes())
    place = content.index(b"rms_norm[dtype=bfloat16,tokens=1024]")
    content[place + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"parquet: cannot be read, left out: .*"):
        read_run(tmp_path)


def test_a_document_that_was_changed_is_named(tmp_path: Path) -> None:
    path = Path(write_document(tmp_path, ACCEPTANCE))
    text = path.read_text()
    path.write_text(text.replace("120000.0", "130000.0"))
    value, (problem,) = read_acceptances(tmp_path)
    assert value == {} and "does not fit its checksum; where it was changed on purpose, remove 'checksum'" in problem
    lines = [line for line in path.read_text().splitlines() if '"checksum"' not in line]
    path.write_text("\n".join(lines))
    assert read_acceptances(tmp_path).value[SERIES].p50_ns == 130_000.0
    path.write_text(text.replace("  ", "\t"))
    assert read_acceptances(tmp_path) == ({SERIES: ACCEPTANCE}, ()), "how it is indented is no matter"
