"""Files that are no rows, at a folder or a URL: a site that is published, and whether anything in a store has changed."""

import mimetypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from pairbench.errors import StoreFailedError
from pairbench.store.files.written import write_whole
from pairbench.store.location import StoreLocation

_TYPES = {".css": "text/css", ".js": "text/javascript", ".html": "text/html", ".json": "application/json"}
"""Kinds of files that a browser takes for nothing else, whatever the machine's own table says."""
_WRITTEN = (".parquet", ".json")


def existing(place: StoreLocation, names: Sequence[str]) -> list[str]:
    """Return those of some files, named relative to the root, that are there.

    Raises:
        StoreFailedError: that cannot be found out.
    """
    with _failing(place):
        infos = place.filesystem.get_file_info([f"{place.root}/{name}" for name in names])
    return [name for name, info in zip(names, infos, strict=True) if info.type != fs.FileType.NotFound]


def read_file(place: StoreLocation, name: str) -> bytes | None:
    """Return the content of a file; None where there is none.

    Raises:
        StoreFailedError: it cannot be read.
    """
    if not existing(place, [name]):
        return None
    with _failing(place), place.filesystem.open_input_stream(f"{place.root}/{name}") as stream:
        return bytes(stream.read())


def put_file(place: StoreLocation, name: str, content: bytes) -> None:
    """Write a file, in whatever folder, so that a reader sees the earlier content or all of the new one.

    Raises:
        StoreFailedError: there is no space or permission.
    """
    path = f"{place.root}/{name}"
    with _failing(place):
        if place.is_local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), content, durable=False)
            return
        kind = _TYPES.get(PurePosixPath(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        # A bucket gives a browser what it was told, and it shows a page only by its type; caches ask whether it is still so.
        metadata = {"Content-Type": kind, "Cache-Control": "no-cache"}
        with place.filesystem.open_output_stream(path, metadata=metadata) as stream:
            stream.write(content)


def fingerprint(place: StoreLocation) -> object:
    """Return a value that differs once anything was written to a store: a part of a run is replaced under its own name.

    Raises:
        StoreFailedError: it cannot be listed.
    """
    with _failing(place):
        infos = place.filesystem.get_file_info(fs.FileSelector(place.root, allow_not_found=True, recursive=True))
    return frozenset((info.path, info.size, info.mtime_ns) for info in infos if info.path.endswith(_WRITTEN))


@contextmanager
def _failing(place: StoreLocation) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreFailedError(f"{place.name!r} failed: {error}") from error
