"""Copies a site that was built to where others see it: a folder or a bucket, in an order in which no page lacks its data."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pairbench.errors import StoreError, StoreFailedError, UsageError
from pairbench.site.build import MANIFEST
from pairbench.site.pages import paths
from pairbench.store.location import StoreLocation, existing, put_file, read_file

_THREADS = 8
"""Number of files that travel at once: each waits for an answer most of the time."""
_LAST = (paths.OVERVIEW, "index.json", "feed.xml")
"""What readers and programs open first comes when all else is there."""


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """What publishing did to the target."""

    name: str
    """The target as it was named, without credentials."""
    files: int
    written: tuple[str, ...]
    """Files that were new there or had changed, in the order in which they were written."""
    removed: tuple[str, ...]
    """Files of an earlier site of ours that this one has no more."""


def upload(folder: Path, target: str | StoreLocation) -> Uploaded:
    """Copy a site to a folder or a URL; what else lies there stays as it is.

    Data, styles and scripts go first, then pages, the overview and the index behind them, then what is gone from the site is
    deleted; the list of its files comes last, so that what was interrupted is done again.

    Args:
        folder: Where `publish` has written the site.
        target: A folder, or a URL such as `s3://bucket/prefix`.

    Raises:
        UsageError: the target cannot be opened, is the folder itself, or holds a file of somebody else under the name of one of the site.
        StoreFailedError: it cannot be read or written to.
    """
    try:
        place = StoreLocation.of(target)
    except StoreError as error:
        raise UsageError(f"--publish: {str(error).removeprefix('store ')}") from error
    if place.is_local and Path(place.root).resolve() == folder.resolve():
        raise UsageError(f"--publish {place.name!r} is the folder that the site is written to; expected another place")
    try:
        return _upload(folder, place)
    except StoreFailedError as error:
        raise StoreFailedError(
            f"--publish {error}; the site in {folder} is whole, and publishing again goes on"
        ) from error


def _upload(folder: Path, place: StoreLocation) -> Uploaded:
    names = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    earlier = _earlier(place)
    _refuse_others(place, sorted(digests.keys() - earlier.keys()))
    changed = [name for name in names if earlier.get(name) != digests[name]]
    written = [name for stage in _stages(changed) for name in _written(folder, place, stage)]
    removed = sorted(earlier.keys() - digests.keys())
    place.delete(f"{place.root}/{name}" for name in removed if _is_inside(name))
    content = json.dumps({"files": sorted(names), "digests": digests}, indent=0).encode() + b"\n"
    put_file(place, MANIFEST, content)
    return Uploaded(name=place.name, files=len(names), written=tuple(written), removed=tuple(removed))


def _stages(names: Iterable[str]) -> list[list[str]]:
    """Return the files in the order in which they may appear: each stage needs those before it."""

    def stage(name: str) -> int:
        return 2 if name in _LAST else 1 if name.endswith(".html") else 0

    ordered = sorted(names, key=lambda name: (stage(name), name))
    return [[name for name in ordered if stage(name) == number] for number in range(3)]


def _written(folder: Path, place: StoreLocation, names: Sequence[str]) -> Sequence[str]:
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda name: put_file(place, name, (folder / name).read_bytes()), names))
    return names


def _earlier(place: StoreLocation) -> Mapping[str, str]:
    """Return the files of an earlier site there, each with its digest; empty for one that is not known."""
    content = read_file(place, MANIFEST)
    if content is None:
        return {}
    try:
        manifest = json.loads(content)
        digests = manifest.get("digests", {})
        return {str(name): str(digests.get(name, "")) for name in manifest["files"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"--publish {place.name!r}: {MANIFEST} there is damaged ({error}); remove it with the site that it belongs to"
        ) from error


def _refuse_others(place: StoreLocation, names: Sequence[str]) -> None:
    """Refuse to write over files that no earlier site of ours has left there.

    Raises:
        UsageError: there is one.
    """
    if there := existing(place, names):
        raise UsageError(
            f"--publish {place.name!r} holds {there[0]!r}, which no earlier site of pairbench has left there; "
            "name an empty place, or a folder inside of it"
        )


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and bool(path.parts) and ".." not in path.parts
