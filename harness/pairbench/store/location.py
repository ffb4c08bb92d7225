"""Where a store lies: a local folder or a URL that pyarrow knows, such as `s3://bucket/prefix`, and the files in it."""

import mimetypes
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from pairbench.errors import StoreError, StoreFailedError
from pairbench.model.plain import Value, redacted, whole_text
from pairbench.store.files import TEMPORARY, Reading, abort_uploads, is_old, list_files, sweep_temporary, write_whole

FOLDERS = ("records", "samples", "accepted", "triage", "breakdowns", "calibrations")
"""The folders of a store: nothing outside of them is ever read or removed."""
_PROBE = ".probe-"
_PART_OR_COMPACTED = re.compile(r"(.+)\.(part-\d+|compact-[0-9a-f]{16})")
_NO_TRAILERS = "this store takes no checksum behind an upload: set AWS_REQUEST_CHECKSUM_CALCULATION=when_required, and AWS_RESPONSE_CHECKSUM_VALIDATION=when_required"
_HELD_BYTES = 2**28
_RUN_ID = re.compile(r"(?!.*\.part-)(?!.*\.parquet$)(?!.*\.compact-[0-9a-f]{16}$)[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")


class RunFile(Value):
    """A parquet file of a dataset."""

    path: str
    run_id: str  # the run whose rows it holds; of a compacted file, which may hold many, the newest of those in `among`
    is_part: bool
    is_compacted: bool = False
    among: tuple[str, ...] = ()  # the runs that are to be read from a compacted file

    @property
    def run_ids(self) -> tuple[str, ...]:
        return self.among if self.is_compacted else (self.run_id,)

    def only(self, run_ids: Container[str]) -> "RunFile | None":
        if not self.is_compacted:
            return self if self.run_id in run_ids else None
        kept = tuple(run_id for run_id in self.among if run_id in run_ids)
        return replace(self, run_id=max(kept), among=kept) if kept else None

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def device_slug(self) -> str:
        return next((name[7:] for name in reversed(self.path.split("/")) if name.startswith("device=")), "")

    @property
    def whole(self) -> str:
        return f"{self.folder}/{self.run_id}.parquet"


class Held:
    """A cache of file contents or tables, each kept for some `seconds`: a command reads files several times, and each read costs an object store two requests."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._contents: dict[Hashable, tuple[float, Any, int]] = {}
        self._seconds = seconds
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        with self._lock:
            at, content, _ = self._contents.get(key, (0.0, None, 0))
            if content is None or time.monotonic() - at >= self._seconds:
                return None
            self._contents[key] = self._contents.pop(key)  # used last, evicted last
            return content

    def put(self, key: Hashable, content: Any, size: int | None = None) -> None:
        """Keep a value of `size` bytes (default: its own `size`) and evict the least recently used ones beyond the limit; None removes the key."""
        with self._lock:
            self._size -= self._contents.pop(key, (0.0, None, 0))[2]
            if content is not None:
                self._contents[key] = (time.monotonic(), content, content.size if size is None else size)
                self._size += self._contents[key][2]
            while self._size > _HELD_BYTES:
                self._size -= self._contents.pop(next(iter(self._contents)))[2]


class StoreLocation(Value):
    """A file system and the store's root in it."""

    filesystem: Any
    root: str
    name: str  # the folder or URL as the user gave it, for messages: without credentials
    moved: Mapping[str, str] = field(default_factory=dict, hash=False)
    """New name of each suite that was moved, by its old name as records have it; rows are read under the new one."""
    held: Held = field(default_factory=Held, hash=False, compare=False, repr=False)
    tables: Held | None = field(default=None, hash=False, compare=False, repr=False)
    """Cache of columns that were read from files, for a command that compares many runs; None for commands that read each file once or need its newest state."""

    @classmethod
    def of(cls, store: "Store", *, moved: Mapping[str, str] | None = None) -> "StoreLocation":
        """Return the location of a folder or a URL; StoreError where a URL cannot be resolved."""
        if moved is not None:
            return replace(cls.of(store), moved=moved)
        if isinstance(store, StoreLocation):
            return store
        name = str(store)
        if "://" not in name:
            root = str(Path(name).absolute())
            if whole_text(root) != root:
                raise StoreError(f"store {whole_text(root)!r}: the path is no UTF-8, expected a folder whose path is")
            return cls(filesystem=fs.LocalFileSystem(), root=root, name=name)
        shown = redacted(name)
        try:
            filesystem, root = _opened(name)
        except (OSError, pa.ArrowException) as error:
            problem = redacted(str(error).replace(name, shown))
            raise StoreError(
                f"store {shown!r} cannot be opened: {problem}; expected a folder, or a URL like s3://bucket/prefix"
            ) from None  # whose message has all of it
        return cls(filesystem=filesystem, root=root.rstrip("/"), name=shown)

    @property
    def is_local(self) -> bool:
        """Whether files appear by renaming; an object store has no rename, and shows no file before it is complete."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def address(self) -> str:
        return self.root if self.is_local else self.name

    def files(self, dataset: str) -> list[RunFile]:
        """Return the parquet files of a dataset, or of a folder in it, by run ids; where some are compacted, `compacted.choose` says which to read."""
        return run_files(self.listing(dataset, ".parquet").value)

    def listing(self, folder: str, ending: str) -> Reading[tuple[str, ...]]:
        """Return the files in a folder of the store and below whose names end so; raise StoreFailedError where it cannot be listed."""
        try:
            return list_files(self.filesystem, f"{self.root}/{folder}", ending)
        except (OSError, pa.ArrowException) as error:
            raise StoreFailedError(f"store {self.name!r} cannot be listed: {error}") from error

    def publish(self, path: str, content: pa.Buffer) -> None:
        self.held.put(path, None)
        try:
            if self.is_local:
                write_whole(Path(path), content)
            else:
                with self.filesystem.open_output_stream(path) as stream:
                    stream.write(content)
        except (OSError, pa.ArrowException) as error:
            hint = f"; {_NO_TRAILERS}" if "aws-chunked" in str(error) else ""
            raise StoreFailedError(f"store {self.name!r}: {path} cannot be written: {error}{hint}") from error

    def probe(self, folder: str) -> None:
        """Write a file to a folder and delete it; raise StoreError, or StoreFailedError elsewhere, where the folder takes none."""
        path = f"{folder}/{_PROBE}{secrets.token_hex(4)}{TEMPORARY}"
        try:
            self.publish(path, pa.py_buffer(b"pairbench"))
        except StoreFailedError as error:
            if self.is_local:
                raise StoreError(f"{error}; name another with --store") from error
            raise
        self.delete([path])

    def make_folder(self, path: str) -> None:
        try:
            self.filesystem.create_dir(path, recursive=True)
            if self.is_local:
                sweep_temporary([Path(path)])
        except (OSError, pa.ArrowException) as error:
            kind = StoreError if self.is_local else StoreFailedError
            raise kind(f"store {self.name!r}: {path} cannot be made: {error}; name another with --store") from error

    def sweep(self) -> None:
        """Remove temporary files that no process holds; on an object store, uploads and probes older than a day. Errors are ignored."""
        if self.is_local:
            for name in FOLDERS:
                sweep_temporary(Path(folder) for folder, _, _ in os.walk(f"{self.root}/{name}"))
            return
        with suppress(OSError, pa.ArrowException):
            selector = fs.FileSelector(f"{self.root}/records", recursive=True, allow_not_found=True)
            probes = [info for info in self.filesystem.get_file_info(selector) if info.base_name.startswith(_PROBE)]
            self.delete(info.path for info in probes if is_old(info.mtime))
        abort_uploads(self.filesystem, self.root, FOLDERS)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.held.put(path, None)
            with suppress(OSError):
                self.filesystem.delete_file(path)


Store = str | Path | StoreLocation
Publish = Callable[[str, pa.Buffer], None]  # writes a file under its path


def _opened(url: str) -> tuple[Any, str]:
    # Small files go to S3 in one piece, where pyarrow can do that: begun in parts, they would leave an upload behind when this process is killed.
    # Google's store is given up after some 20 s of silence, as S3 is; it would be asked for 15 minutes.
    if url.startswith(("gs://", "gcs://")):
        url = _with(url, "retry_limit_seconds", 10)  # the last one takes as long again
    if not url.startswith("s3://"):
        return fs.FileSystem.from_uri(url)  # type: ignore[no-any-return]
    try:
        filesystem, path = fs.FileSystem.from_uri(_with(url, "allow_delayed_open", "true"))
    except pa.ArrowInvalid:
        filesystem, path = fs.FileSystem.from_uri(url)
    if filesystem.type_name == "s3":
        _, (options,) = filesystem.__reduce__()  # the only way to the options of the URL
        # The one of a URL gives up after 100 s of silence, each time that something is asked. A request without an answer takes three
        # seconds, and waits between them double.
        filesystem = fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=4))
    return filesystem, path


def _with(url: str, name: str, value: object) -> str:
    return url if name in url else f"{url}{'&' if '?' in url else '?'}{name}={value}"


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def run_files(paths: Iterable[str]) -> list[RunFile]:
    files = []
    for path in paths:
        stem = Path(path).stem
        run_id, kind = found.groups() if (found := _PART_OR_COMPACTED.fullmatch(stem)) else (stem, "")
        is_part, is_compacted = kind.startswith("part"), kind.startswith("compact")
        files.append(RunFile(path=path, run_id=run_id, is_part=is_part, is_compacted=is_compacted))
    return sorted(files, key=lambda file: (file.run_id, file.path))


_TYPES = {".css": "text/css", ".js": "text/javascript", ".html": "text/html", ".json": "application/json"}


@contextmanager
def _failing(place: StoreLocation) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreFailedError(f"{place.name!r} failed: {error}") from error


def existing(place: StoreLocation, names: Sequence[str]) -> list[str]:
    with _failing(place):
        infos = place.filesystem.get_file_info([f"{place.root}/{name}" for name in names])
    return [name for name, info in zip(names, infos, strict=True) if info.type != fs.FileType.NotFound]


def read_file(place: StoreLocation, name: str) -> bytes | None:
    path = f"{place.root}/{name}"
    with _failing(place), suppress(FileNotFoundError), place.filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())
    return None


def put_file(place: StoreLocation, name: str, content: bytes) -> None:
    """Write a file, its folder too, so that a reader sees the earlier content or all of the new one."""
    path = f"{place.root}/{name}"
    with _failing(place):
        if place.is_local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), content, durable=False)
            return
        kind = _TYPES.get(PurePosixPath(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        # A browser shows a page only by the content type that the bucket was given; caches ask whether it is still so.
        metadata = {"Content-Type": kind, "Cache-Control": "no-cache"}
        with place.filesystem.open_output_stream(path, metadata=metadata) as stream:
            stream.write(content)


def fingerprint(place: StoreLocation) -> frozenset[tuple[str, int, int]]:
    """Return a value that differs once anything was written to a store; parts of runs are replaced under their own names."""
    with _failing(place):
        infos = place.filesystem.get_file_info(fs.FileSelector(place.root, allow_not_found=True, recursive=True))
    return frozenset((one.path, one.size, one.mtime_ns) for one in infos if one.path.endswith((".parquet", ".json")))
