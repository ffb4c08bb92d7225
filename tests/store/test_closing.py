"""Runs that close, are replaced or deleted while others list and read them, here and in an object store: every reader has every run, whole, and nobody is told of it."""

import http.server
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pyarrow as pa
import pytest
from pyarrow import fs

from pairbench.errors import StoreFailedError
from pairbench.store import location
from pairbench.store.files import Reading
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame, read_records, read_series, runs
from pairbench.store.writer import RunWriter
from tests.builders import CASES, make_run, run_id_of, write_runs
from tests.faults.s3 import ENVIRONMENT, url_of
from tests.store.rows import before_opening, by_frame, by_index

RUNS = 6


@pytest.fixture
def open_runs(tmp_path: Path) -> list[RunWriter]:
    """Return the writers of unfinished runs, each of which has written records in several files."""
    return [begun(tmp_path, number) for number in range(RUNS)]


def begun(store: Path, number: int) -> RunWriter:
    records = make_run(number)
    writer = RunWriter(store, run_id=records[0].run_id, device_slug="nvidia-h200", month="2024-01").__enter__()
    for record in records:
        writer.write_case((record.case, record.implementation), [record])
    return writer


@pytest.mark.parametrize("read", [by_frame, by_index, lambda store: read_series(store, where={"case": CASES})])
def test_each_run_closes_just_before_it_is_opened(
    tmp_path: Path, open_runs: list[RunWriter], monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Reading[Any]]
) -> None:
    """As fast as anybody can read: more closes a second than there are listings."""
    closing = {run_id_of(number): writer for number, writer in enumerate(open_runs)}
    lock = threading.RLock()

    def close(path: str) -> None:
        with lock:
            writer = closing.pop(Path(path).name.partition(".")[0], None)
            if writer is not None:
                writer.close()

    before_opening(monkeypatch, close)
    found, problems = read(tmp_path)
    assert Counter(row.run_id for row in found) == {run_id_of(number): 4 for number in range(RUNS)}
    assert problems == () and not closing


def test_a_run_that_closes_while_its_folder_is_listed(
    tmp_path: Path, open_runs: list[RunWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large folder is read in pieces; the one file is made where the reading has been, and the parts vanish before it."""
    real = os.scandir
    waiting = [open_runs[3]]

    @contextmanager
    def in_pieces(folder: str = ".") -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(folder) as entries:
            # The order of the names, as a sorted folder has them: the one file comes before its parts.
            there = sorted(entries, key=lambda entry: entry.name)
        if not any("part-" in entry.name for entry in there):
            yield iter(there)
            return

        def each() -> Iterator[os.DirEntry[str]]:
            for entry in there:
                if waiting and entry.name.startswith(f"{run_id_of(3)}.part-"):
                    waiting.pop().close()
                if Path(entry.path).exists():
                    yield entry

        yield each()

    monkeypatch.setattr(os, "scandir", in_pieces)
    found = StoreLocation.of(tmp_path).files("records")
    assert {file.run_id for file in found} == {run_id_of(number) for number in range(RUNS)}
    assert not waiting


def test_a_run_that_was_deleted_meanwhile_is_gone(
    tmp_path: Path, open_runs: list[RunWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(_: str) -> None:
        for part in tmp_path.rglob(f"{run_id_of(3)}.*"):
            part.unlink(missing_ok=True)

    before_opening(monkeypatch, delete)
    found = read_records(tmp_path, [run_id_of(2), run_id_of(3)])
    assert {record.run_id for record in found.value} == {run_id_of(2)} and found.problems == ()


def test_what_vanishes_again_and_again_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(path: str) -> None:
        raise FileNotFoundError(path)

    write_runs(tmp_path, make_run(0))
    before_opening(monkeypatch, vanish)
    value, (problem,) = read_series(tmp_path, where={"case": CASES})
    assert value == () and problem.endswith(f"{run_id_of(0)}.parquet: was gone as it was read, left out")


class _Files:
    """A file system that does something between the moment in which it says how large a file is and the one in which it gives it."""

    def __init__(self, between: Callable[[str], None]) -> None:
        self._files, self._between, self._one = fs.LocalFileSystem(), between, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_input_file(self, path: str) -> Any:
        size = Path(path).stat().st_size
        stream = mock.MagicMock(size=lambda: size)
        stream.__enter__.return_value = stream

        def read() -> bytes:
            with self._one:
                self._between(path)
            try:
                return Path(path).read_bytes()[:size]
            except FileNotFoundError:
                raise OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation") from None

        stream.read_buffer = lambda: pa.py_buffer(read())
        stream.read_at = lambda count, begin: read()[begin : begin + count]
        return stream


def elsewhere(folder: Path, between: Callable[[str], None], files: type[_Files] = _Files) -> StoreLocation:
    return StoreLocation(filesystem=files(between), root=str(folder), name="s3://bucket")


@pytest.mark.parametrize("read", [runs, read_frame, lambda store: read_series(store, where={"case": CASES})])
def test_a_run_that_closes_between_the_two(tmp_path: Path, read: Callable[[Any], Any]) -> None:
    writer = begun(tmp_path, 0)
    found = read(elsewhere(tmp_path, lambda _: writer.close()))
    assert found.problems == ()
    assert len(found.value) == (1 if read is runs else len(make_run(0)))


def test_a_part_that_another_round_replaces_between_the_two(tmp_path: Path) -> None:
    writer, replaced = begun(tmp_path, 0), list[str]()

    def another_round(path: str) -> None:
        for record in make_run(0) if not replaced else ():
            longer = replace(record, reason="for a reason that makes the file longer than it was")
            writer.write_case((record.case, record.implementation), [longer])
        replaced.append(path)

    found = read_series(elsewhere(tmp_path, another_round), where={"case": CASES})
    assert replaced and found.problems == () and len(found.value) == len(make_run(0))


def test_a_store_that_does_not_give_what_is_there(tmp_path: Path) -> None:
    begun(tmp_path, 0)
    fail = mock.Mock(side_effect=OSError("AWS Error INTERNAL_FAILURE during GetObject operation"))
    with pytest.raises(StoreFailedError, match="INTERNAL_FAILURE"):
        runs(elsewhere(tmp_path, fail))


class _Broken(http.server.BaseHTTPRequestHandler):
    """An object store that answers nothing but that it is broken."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def _answer(self) -> None:
        self.asked.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response_only(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = _answer  # noqa: N815 (so named by the base)


def test_a_broken_object_store_is_asked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that it hangs costs three seconds, and a run has several questions."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = StoreLocation.of(url_of(server.server_address[1]))
        with pytest.raises(OSError, match="500"):
            place.filesystem.get_file_info(f"{place.root}/records")
        server.shutdown()
    assert 1 < len(_Broken.asked) <= 4


def test_a_file_is_asked_for_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path, make_run(0))
    asked: list[str] = []
    place = elsewhere(tmp_path, asked.append)
    for _ in range(3):
        assert len(read_frame(place).value) == len(make_run(0))
    assert len(asked) == 1
    monkeypatch.setattr(place.held, "_seconds", 0.0)
    read_frame(place)
    assert len(asked) == 2


def test_what_is_held_is_bounded_and_forgotten_as_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_HELD_BYTES", 10)
    held = location.Held()
    for name in ("a", "b", "c"):
        held.put(name, pa.py_buffer(b"12345"))
    assert held.get("a") is None and held.get("b") is not None and held.get("c") is not None
    held.put("c", None)
    assert held.get("c") is None


def test_a_store_that_takes_no_checksum_behind_an_upload_is_told_what_helps(tmp_path: Path) -> None:
    class Old(_Files):
        def open_output_stream(self, path: str) -> Any:
            raise OSError(f"{path}: aws-chunked is not supported")

    with pytest.raises(StoreFailedError, match="AWS_REQUEST_CHECKSUM_CALCULATION=when_required"):
        elsewhere(tmp_path, lambda _: None, Old).publish(f"{tmp_path}/a", pa.py_buffer(b"x"))
