"""Which files there are below a folder of a store, also while others add and remove some.

Uploads to an object store that nobody is going to finish: their parts take space that is paid for, and no listing shows them.
"""

import contextlib
import datetime as dt
import errno
import importlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

ABANDONED_S = 24 * 3600
"""Age in seconds from which an upload, or a file that was to show whether the store takes any, was left behind. Both live for seconds."""


def abort_uploads(filesystem: Any, root: str, folders: Iterable[str]) -> int:
    """Abort the unfinished uploads below some folders of a store on S3 that began more than a day ago, and return how many.

    A process that is killed leaves one where a file has more than five megabytes, or where pyarrow is older than 18 and begins one for each.
    Whether the process that began an upload still lives is not known; its age is. pyarrow can neither list nor abort uploads, so this
    takes botocore, and the right to list them: without these nothing happens, and a rule of the bucket
    (AbortIncompleteMultipartUpload) does the same.

    Args:
        filesystem: pyarrow's.
        root: Bucket and prefix.
        folders: Below the root.
    """
    if getattr(filesystem, "type_name", "") != "s3":
        return 0
    try:
        session, config = importlib.import_module("botocore.session"), importlib.import_module("botocore.config")
        errors = importlib.import_module("botocore.exceptions")
    except ImportError:
        return 0
    bucket, _, prefix = root.partition("/")
    aborted = 0
    with contextlib.suppress(errors.BotoCoreError, errors.ClientError, LookupError, TypeError, ValueError):
        client = _client(session, config, filesystem)
        for folder in folders:
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix=f"{prefix}/{folder}/".lstrip("/")
            )
            for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
                if is_abandoned(upload["Initiated"]):
                    client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    aborted += 1
    return aborted


def is_abandoned(when: dt.datetime | None) -> bool:
    """Return whether something is so old that whoever made it is gone."""
    return when is not None and (dt.datetime.now(dt.UTC) - when).total_seconds() > ABANDONED_S


def _client(session: Any, config: Any, filesystem: Any) -> Any:
    _, (options,) = filesystem.__reduce__()  # the only way to the address that it was made with
    address = options["endpoint_override"]
    return session.get_session().create_client(
        "s3",
        region_name=filesystem.region,
        endpoint_url=f"{options['scheme'] or 'https'}://{address}" if address else None,
        aws_access_key_id=options["access_key"],
        aws_secret_access_key=options["secret_key"],
        aws_session_token=options["session_token"],
        config=config.Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"max_attempts": 1},
            s3={"addressing_style": "virtual" if options["force_virtual_addressing"] else "path"} if address else None,
        ),
    )


_SCANS = 5
_UNSETTLED_NS = 50_000_000
"""Age in ns from which a folder's time of change tells it from one that changes right now; clocks of file systems are coarse."""
_PAGE = 1000
"""The number of names that an object store lists at once; more than that are no single moment's."""


class Listing(NamedTuple):
    """What lies below a folder."""

    paths: tuple[str, ...]
    """The files, sorted; hidden ones and those in hidden folders are no part of a store."""
    problems: tuple[str, ...] = ()
    """A sentence for each thing that has the name of such a file and is none."""


def list_files(filesystem: Any, folder: str, ending: str) -> Listing:
    """Return the files below a folder whose names end so; none where there is no such folder.

    Raises:
        OSError, pa.ArrowException: a folder cannot be read; which files there are is then not known.
    """
    if isinstance(filesystem, fs.LocalFileSystem):
        return _list_local(folder, ending)
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    infos = filesystem.get_file_info(selector)
    if len(infos) >= _PAGE:
        # A run may close between two pages: its parts are gone before they are listed, and its one file came too late.
        infos += filesystem.get_file_info(selector)
    paths = {info.path for info in infos if info.is_file and info.path.endswith(ending)}
    hidden = {path for path in paths if any(_is_hidden(name) for name in path[len(folder) :].split("/"))}
    return Listing(tuple(sorted(paths - hidden)))


def _list_local(folder: str, ending: str) -> Listing:
    paths: list[str] = []
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()  # a link may lead back up
    folders = [folder]
    while folders:
        here = folders.pop()
        for entry in _entries(here, seen):
            if _is_hidden(entry.name):
                continue
            if not _is_text(entry.name):
                if entry.name.endswith(ending) or _is_folder(entry):
                    problems.append(f"{entry.path}: its name is no UTF-8, left out; rename it")
            elif _is_folder(entry):
                folders.append(entry.path)
            elif entry.name.endswith(ending):
                kept, told = (paths, entry.path) if _is_regular(entry) else (problems, _no_file(entry.path))
                kept.append(told)
    return Listing(tuple(sorted(paths)), tuple(sorted(problems)))


def _entries(folder: str, seen: set[tuple[int, int]]) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder; where it changes meanwhile, all that was in it at some moment.

    A folder is read in pieces. A run that closes between two of them could be missed altogether: its one file is made where
    the reading has been already, and its parts are removed where it comes to later.
    """
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
        if after.st_mtime_ns == before.st_mtime_ns < time.time_ns() - _UNSETTLED_NS:
            break
    yield from found.values()


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_text(name: str) -> bool:
    with suppress(UnicodeEncodeError):
        return bool(name.encode())
    return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return False
        raise


def _is_regular(entry: os.DirEntry[str]) -> bool:
    """Tell a file from what would hold its reader up, such as a pipe; a file that is gone by now is found to be gone as it is read."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return not Path(entry.path).is_symlink()


def _no_file(path: str) -> str:
    return f"{path}: is no regular file, left out; move it out of the store"
