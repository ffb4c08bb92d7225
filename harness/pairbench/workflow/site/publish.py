"""Puts the files of a site into a folder: only what changed is written, and what is gone from the site is removed."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pairbench.errors import StoreFailedError, UsageError
from pairbench.own_folders import held_folder, sweep_folders
from pairbench.report.site.values import File
from pairbench.store.files.written import sweep_temporary, write_whole

MANIFEST = ".pairbench-site.json"
"""The file that names what an earlier build wrote: no other file is ever changed or removed."""

_STAGE = ".pairbench-new-"
"""How the folder's name begins in which files wait for the last of them to be made."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a build did to the folder."""

    files: int
    """How many files the site has."""
    written: tuple[str, ...]
    """The files that were new or had changed."""
    removed: tuple[str, ...]
    """The files of an earlier build that the site has no more."""


def publish(folder: Path, files: Iterable[File]) -> Published:
    """Write a site.

    Raises:
        UsageError: the folder holds something else, or cannot be written.
        StoreFailedError: the store could not be read while the files were made of it.
    """
    try:
        return _publish(folder, _made(files))
    except OSError as error:
        raise UsageError(f"--output {str(folder)!r} cannot be written: {error.strerror or error}") from error


def _made(files: Iterable[File]) -> Iterator[File]:
    """Yield the files; what goes wrong while they are made is no fault of the folder."""
    try:
        yield from files
    except OSError as error:
        raise StoreFailedError(f"the store cannot be read to its end: {error.strerror or error}") from error


def _publish(folder: Path, files: Iterable[File]) -> Published:
    before = _earlier(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sweep_folders(folder, _STAGE)
    sweep_temporary([folder])
    if before is None:
        # From here on the folder is a site, also if this build is interrupted.
        write_whole(folder / MANIFEST, _manifest(()), durable=False)
    names: list[str] = []
    written: list[str] = []
    # The store is read while the files are made. Where it fails half way, a site that is there stays as it is.
    with held_folder(folder, _STAGE) as stage:
        for file in files:
            target = _inside(folder, file.path)
            names.append(file.path)
            if _differs(target, file.content):
                (stage / str(len(written))).write_bytes(file.content)
                written.append(file.path)
        for number, name in enumerate(written):
            target = _inside(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            (stage / str(number)).replace(target)
    removed = sorted(set(before or ()) - set(names))
    for name in removed:
        _inside(folder, name).unlink(missing_ok=True)
    if _differs(folder / MANIFEST, content := _manifest(names)):
        write_whole(folder / MANIFEST, content, durable=False)
    return Published(files=len(names), written=tuple(written), removed=tuple(removed))


def _earlier(folder: Path) -> tuple[str, ...] | None:
    """Return the files of an earlier build; None where there is nothing yet."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise UsageError(f"--output {str(folder)!r} is a file, expected a folder")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return tuple(str(name) for name in manifest["files"])
    except FileNotFoundError:
        there = sorted(path.name for path in folder.iterdir() if not path.name.startswith(_STAGE))
        if there:
            raise UsageError(
                f"--output {str(folder)!r} holds {there[0]!r} and no site of pairbench, expected an empty or a new folder"
            ) from None
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{folder / MANIFEST} is damaged ({error}); remove the folder and build again") from error


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise UsageError(f"{name!r} is no file inside of --output {str(folder)!r}")
    return folder / path


def _differs(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size != len(content) or path.read_bytes() != content
    except OSError:
        return True


def _manifest(names: Iterable[str]) -> bytes:
    return (json.dumps({"files": sorted(names)}, indent=0) + "\n").encode()
