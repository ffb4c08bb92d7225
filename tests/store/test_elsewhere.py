"""What an object store does between two requests for one file: the file is gone, or another, by the second one."""

import http.server
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa
import pytest
from pyarrow import fs

from pairbench.errors import StoreFailedError
from pairbench.store import location
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame, read_series, runs
from pairbench.store.upkeep import compact
from pairbench.store.writer import RunWriter
from tests.builders import CASES, make_run, write_runs
from tests.faults.s3 import ENVIRONMENT, url_of


class _Files:
    """A file system that does something between the moment in which it says how large a file is and the one in which it gives it."""

    def __init__(self, between: Callable[[str], None]) -> None:
        self._files, self._between, self._one = fs.LocalFileSystem(), between, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_input_file(self, path: str) -> Any:
        return _Stream(self, path)

    def read(self, path: str, size: int) -> pa.Buffer:
        with self._one:
            self._between(path)
        try:
            return pa.py_buffer(Path(path).read_bytes()[:size])
        except FileNotFoundError:
            raise OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation") from None


class _Stream:
    def __init__(self, files: _Files, path: str) -> None:
        self._files, self._path, self._size = files, path, Path(path).stat().st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def size(self) -> int:
        return self._size

    def read_buffer(self) -> pa.Buffer:
        return self._files.read(self._path, self._size)

    def read_at(self, size: int, begin: int) -> bytes:
        content: bytes = self._files.read(self._path, self._size).to_pybytes()
        return content[begin : begin + size]


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    """Return the writer of a run that is under way, with a part for each record."""
    records = make_run(0)
    writer = RunWriter(tmp_path, run_id=records[0].run_id, device_slug="nvidia-h200", month="2024-01").__enter__()
    for record in records:
        writer.write_case((record.case, record.implementation), [record])
    return writer


def _elsewhere(folder: Path, between: Callable[[str], None]) -> StoreLocation:
    return StoreLocation(filesystem=_Files(between), root=str(folder), name="s3://bucket")


@pytest.mark.parametrize("read", [runs, read_frame, lambda store: read_series(store, where={"case": CASES})])
def test_a_run_that_closes_between_the_two(tmp_path: Path, writer: RunWriter, read: Callable[[Any], Any]) -> None:
    found = read(_elsewhere(tmp_path, lambda _: writer.close()))
    assert found.problems == ()
    assert len(found.value) == (1 if read is runs else len(make_run(0)))


def test_a_part_that_another_round_replaces_between_the_two(tmp_path: Path, writer: RunWriter) -> None:
    replaced: list[str] = []

    def another_round(_: str) -> None:
        for record in make_run(0) if not replaced else ():
            longer = replace(record, reason="for a reason that makes the file longer than it was")
            writer.write_case((record.case, record.implementation), [longer])
        replaced.append("")

    found = read_series(_elsewhere(tmp_path, another_round), where={"case": CASES})
    assert replaced and found.problems == () and len(found.value) == len(make_run(0))


def test_a_store_that_does_not_give_what_is_there(tmp_path: Path, writer: RunWriter) -> None:
    def fail(_: str) -> None:
        raise OSError("AWS Error INTERNAL_FAILURE during GetObject operation")

    with pytest.raises(StoreFailedError, match="INTERNAL_FAILURE"):
        runs(_elsewhere(tmp_path, fail))


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


def test_runs_that_are_compacted_between_the_two(tmp_path: Path) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(20)))
    columns = ["run_id", "case", "implementation"]
    expected = read_frame(tmp_path, columns=columns).value
    merged: list[int] = []

    def compact_once(_: str) -> None:
        if not merged:
            merged.extend(one.runs for one in compact(StoreLocation.of(tmp_path), keep=2))

    place = replace(StoreLocation.of(tmp_path), filesystem=_Files(compact_once))
    assert not place.is_local
    found = read_frame(place, columns=columns)
    assert merged == [18] and found.problems == ()
    assert found.value.equals(expected)
    assert read_frame(place, columns=columns).value.equals(expected)


def test_a_file_is_asked_for_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path, make_run(0))
    asked: list[str] = []
    place = replace(StoreLocation.of(tmp_path), filesystem=_Files(asked.append))
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

    place = replace(StoreLocation.of(tmp_path), filesystem=Old(lambda _: None))
    with pytest.raises(StoreFailedError, match="AWS_REQUEST_CHECKSUM_CALCULATION=when_required"):
        place.publish(f"{place.root}/a", pa.py_buffer(b"x"))
