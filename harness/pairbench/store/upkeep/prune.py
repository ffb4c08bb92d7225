"""Removes the raw samples of old runs: the bulk of a store, which nothing needs that shows or compares records."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.run_index import named_moment


@dataclass(frozen=True, kw_only=True)
class OldSamples:
    """Files of samples of a device model and month that are old enough."""

    folder: str
    """Below the store's root."""
    files: tuple[str, ...]
    size: int
    """How many bytes they have."""


def old_samples(place: StoreLocation, before: dt.datetime) -> list[OldSamples]:
    """Return the samples of runs that began before a moment, by the runs' ids, or where these do not say it by the age of the files.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    files = place.files("samples")
    infos = {info.path: info for info in place.filesystem.get_file_info([file.path for file in files])} if files else {}
    found: dict[str, list[RunFile]] = {}
    for file in files:
        began = named_moment(file.run_id) or infos[file.path].mtime
        if began is not None and began < before:
            found.setdefault(file.folder[len(place.root) + 1 :], []).append(file)
    return [
        OldSamples(
            folder=folder,
            files=tuple(file.path for file in several),
            size=sum(infos[file.path].size or 0 for file in several),
        )
        for folder, several in sorted(found.items())
    ]


def remove(place: StoreLocation, several: Iterable[OldSamples]) -> list[str]:
    """Delete files, and return those that are still there: nobody may delete them."""
    paths = [path for one in several for path in one.files]
    place.delete(paths)
    infos = place.filesystem.get_file_info(paths) if paths else []
    return [info.path for info in infos if info.is_file]
