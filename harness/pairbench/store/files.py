"""Files that appear whole or not at all, and which of them lie below a folder, also while others add and remove some."""

import contextlib
import datetime as dt
import errno
import fcntl
import importlib
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import fs

TEMPORARY = ".tmp"
ABANDONED_S = 24 * 3600
"""Age in seconds from which an upload, a probe or a temporary file, which live for seconds, was left behind by a killed process."""
_TRIES = _SCANS = 5
_PAGE = 1000  # the number of names that an object store lists at once; more than that are no single moment's


def write_whole(path: Path, content: bytes | pa.Buffer, *, durable: bool = True) -> None:
    # Durable files have reached the disk when this returns, so that they outlive a power failure. An OSError has changed nothing.
    for left in reversed(range(_TRIES)):
        try:
            _write(path, content, durable=durable)
            break
        except FileNotFoundError:
            # Another process may have swept the temporary file in the moment before it was held.
            if not left or not path.parent.is_dir():
                raise
    if durable:  # the rename itself has to reach the disk too, or a power failure may take the file back
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write(path: Path, content: bytes | pa.Buffer, *, durable: bool) -> None:
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            with contextlib.suppress(OSError):  # the file system knows no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sweep_temporary(folders: Iterable[Path]) -> None:
    """Remove temporary files in some folders that no process holds: their writers were killed."""
    # Links are never followed, and files of other users never touched. Where the file system knows no locks, files older than a day go.
    for folder in folders:
        for path in folder.glob(f".*{TEMPORARY}"):
            with contextlib.suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    _sweep(path)


def _sweep(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid():
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            if time.time() - status.st_mtime < ABANDONED_S:
                return
        path.unlink()
    finally:
        os.close(descriptor)


Value = TypeVar("Value")


class Reading(NamedTuple, Generic[Value]):
    """A value, and a sentence for each file that could not be read."""

    value: Value
    problems: tuple[str, ...]


def list_files(filesystem: Any, folder: str, ending: str) -> Reading[tuple[str, ...]]:
    """Return the files below a folder, sorted, without hidden ones; a problem is an entry that has the name of such a file and is none."""
    if isinstance(filesystem, fs.LocalFileSystem):
        return _list_local(folder, ending)
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    infos = filesystem.get_file_info(selector)
    if len(infos) >= _PAGE:
        # A run may close between two pages: its parts are gone before they are listed, and its one file came too late.
        infos += filesystem.get_file_info(selector)
    paths = {info.path for info in infos if info.is_file and info.path.endswith(ending)}
    hidden = {path for path in paths if any(_is_hidden(name) for name in path[len(folder) :].split("/"))}
    return Reading(tuple(sorted(paths - hidden)), ())


def _list_local(folder: str, ending: str) -> Reading[tuple[str, ...]]:
    paths: list[str] = []
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()  # a link may lead back up
    folders = [folder]
    while folders:
        for entry in _entries(folders.pop(), seen):
            if _is_hidden(entry.name):
                continue
            try:
                entry.name.encode()
            except UnicodeEncodeError:
                if entry.name.endswith(ending) or _is_folder(entry):
                    problems.append(f"{entry.path}: its name is no UTF-8, left out; rename it")
                continue
            if _is_folder(entry):
                folders.append(entry.path)
            elif entry.name.endswith(ending):
                try:  # a pipe would hold its reader up
                    is_regular = stat.S_ISREG(entry.stat().st_mode)
                except OSError:  # a file that is gone by now is found to be gone as it is read
                    is_regular = not Path(entry.path).is_symlink()
                if is_regular:
                    paths.append(entry.path)
                else:
                    problems.append(f"{entry.path}: is no regular file, left out; move it out of the store")
    return Reading(tuple(sorted(paths)), tuple(sorted(problems)))


def _entries(folder: str, seen: set[tuple[int, int]]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; where it changes meanwhile, all that were in it at some moment."""
    # A folder is read in pieces. A run that closes between two of them could be missed altogether: its one file is made where
    # the reading has been already, and its parts are removed where it comes to later.
    found: dict[str, os.DirEntry[str]] = {}
    for scan in range(_SCANS):
        try:
            before = Path(folder).stat()
            if scan == 0 and (before.st_dev, before.st_ino) in seen:
                return
            seen.add((before.st_dev, before.st_ino))
            with os.scandir(folder) as entries:
                found |= {entry.name: entry for entry in entries}
            after = Path(folder).stat()
        except FileNotFoundError:  # there is none, or no more
            break
        # Clocks of file systems are coarse: a folder that changed just now may change again at the same time.
        if after.st_mtime_ns == before.st_mtime_ns < time.time_ns() - 50_000_000:
            break
    yield from found.values()


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return False
        raise


def abort_uploads(filesystem: Any, root: str, folders: Iterable[str]) -> None:
    """Abort the unfinished uploads below some folders of a store on S3 that began more than a day ago."""
    # A process that is killed leaves one where a file has more than five megabytes, or where pyarrow is older than 18 and begins one for each.
    # Its parts take space that is paid for, and no listing shows them. pyarrow can neither list nor abort uploads, so this takes botocore, and
    # the right to list them: without these nothing happens, and a rule of the bucket (AbortIncompleteMultipartUpload) does the same.
    if getattr(filesystem, "type_name", "") != "s3":
        return
    try:
        session, config = importlib.import_module("botocore.session"), importlib.import_module("botocore.config")
        errors = importlib.import_module("botocore.exceptions")
    except ImportError:
        return
    bucket, _, prefix = root.partition("/")
    with contextlib.suppress(errors.BotoCoreError, errors.ClientError, LookupError, TypeError, ValueError):
        client = _client(session, config, filesystem)
        paginator = client.get_paginator("list_multipart_uploads")
        for folder in folders:
            pages = paginator.paginate(Bucket=bucket, Prefix=f"{prefix}/{folder}/".lstrip("/"))
            for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
                if is_old(upload["Initiated"]):
                    client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def is_old(made: dt.datetime | None) -> bool:
    return made is not None and (dt.datetime.now(dt.UTC) - made).total_seconds() > ABANDONED_S


def _client(session: Any, config: Any, filesystem: Any) -> Any:
    _, (options,) = filesystem.__reduce__()  # the only way to the address that it was made with
    address = options["endpoint_override"]
    style = {"addressing_style": "virtual" if options["force_virtual_addressing"] else "path"} if address else None
    timeouts = config.Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 1}, s3=style)
    endpoint = f"{options['scheme'] or 'https'}://{address}" if address else None
    keys = {"aws_access_key_id": options["access_key"], "aws_secret_access_key": options["secret_key"]}
    keys |= {"aws_session_token": options["session_token"]}
    make = session.get_session().create_client
    return make("s3", region_name=filesystem.region, endpoint_url=endpoint, config=timeouts, **keys)
