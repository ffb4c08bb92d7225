"""Reads every file of a store whole, and names what is damaged, not ours, left over or without a run. Changes nothing.

Removes the raw samples of old runs: the bulk of a store, which nothing needs that shows or compares records.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pairbench.store.documents import read_acceptances, read_breakdowns, read_calibrations
from pairbench.store.files.compacted import INDEX, choose, index_problem, open_file
from pairbench.store.files.conform import UnsoundError, fields_of
from pairbench.store.files.opened import BROKEN, ForeignFileError, doubled
from pairbench.store.location import FOLDERS, RunFile, StoreLocation
from pairbench.store.reading import foreign, problem_of
from pairbench.store.run_index import named_moment
from pairbench.store.schema import SCHEMA_VERSION


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


DAMAGED, FOREIGN, NEWER, LEFT, UNFINISHED, ORPHANED = (
    "damaged",
    "foreign",
    "newer",
    "left over",
    "unfinished",
    "orphaned",
)
"""What a finding says: only damage has cost something."""
_THREADS, _THREADS_REMOTE = 4, 32
_TIMES = 4
"""How often a part is read that seems damaged: another round may have replaced it meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something in a store that its owner may want to know of."""

    what: str
    """One of the words above."""
    path: str
    """The file, as its store names it."""
    told: str
    """What is to be said of it, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a store holds, and what is to be said of it."""

    files: int
    """How many files were read."""
    size: int
    """How many bytes they have."""
    findings: tuple[Finding, ...]


def check(place: StoreLocation) -> Checked:
    """Read every file of a store.

    Raises:
        StoreFailedError: it cannot be listed, or is elsewhere and does not give a file.
    """
    findings: list[Finding] = []
    count = size = 0
    of_dataset: dict[str, list[RunFile]] = {}
    for dataset in ("records", "samples"):
        listing = place.listing(dataset, ".parquet")
        findings += [_of_sentence(FOREIGN, problem) for problem in listing.problems]
        of_dataset[dataset] = files = place.files(dataset)
        with ThreadPoolExecutor(_THREADS if place.is_local else _THREADS_REMOTE) as pool:
            for finding, read in pool.map(lambda file, of=dataset: _look(place, of, file), files):
                count, size = count + 1, size + read
                findings += [] if finding is None else [finding]
    damaged = {finding.path for finding in findings if finding.what == DAMAGED}
    for folder, problems in (
        ("accepted", read_acceptances(place).problems),
        ("breakdowns", read_breakdowns(place).problems),
        ("calibrations", read_calibrations(place).problems),
    ):
        findings += [_of_sentence(DAMAGED, problem) for problem in problems]
        infos = place.filesystem.get_file_info(list(place.listing(folder, ".json").paths))
        count, size = count + len(infos), size + sum(info.size or 0 for info in infos)
    findings += _superfluous(place, of_dataset, damaged)
    findings += _orphaned(place, of_dataset)
    findings += _hidden(place)
    return Checked(files=count, size=size, findings=tuple(findings))


def _look(place: StoreLocation, dataset: str, file: RunFile) -> tuple[Finding | None, int]:
    """Return what is to be said of a file, and its bytes."""
    problem = ""
    for _ in range(_TIMES if file.is_part else 1):
        try:
            opened = open_file(place, file, dataset)
            opened.read(list(fields_of(dataset)))
            opened.raw()
        except FileNotFoundError:  # a run has closed, or was compacted
            return None, 0
        except ForeignFileError:
            return _of_sentence(FOREIGN, foreign(file.path)), 0
        except (UnsoundError, *BROKEN) as error:
            problem = problem_of(file.path, error)
            continue
        if opened.version > SCHEMA_VERSION:
            told = f"is of schema version {opened.version}, of which this pairbench reads what it knows; update it"
            return Finding(what=NEWER, path=file.path, told=told), opened.size
        return None, opened.size
    return _of_sentence(DAMAGED, problem), 0


def _superfluous(place: StoreLocation, of_dataset: dict[str, list[RunFile]], damaged: set[str]) -> Iterator[Finding]:
    """Yield parts without their one file, and files whose rows are in another, too."""
    for dataset, files in of_dataset.items():
        beside = {part for whole, parts in doubled(files).items() if whole not in damaged for part in parts}
        for file in files:
            if file.path in beside:
                yield Finding(
                    what=LEFT, path=file.path, told="its rows are in the run's one file; the next run removes it"
                )
            elif file.is_part and file.path not in damaged:
                yield Finding(
                    what=UNFINISHED, path=file.path, told="its run goes on, or was killed; it is as good as one file"
                )
        if dataset == "records":
            for file in choose(place, files).left:
                if file.path not in beside and file.path not in damaged:
                    told = "its rows are in a compacted file; `pairbench store compact` removes it"
                    yield Finding(what=LEFT, path=file.path, told=told)
    if told := index_problem(place, of_dataset["records"]):
        yield Finding(what=LEFT, path=f"{place.root}/{INDEX}", told=told)


def _orphaned(place: StoreLocation, of_dataset: dict[str, list[RunFile]]) -> Iterator[Finding]:
    """Yield samples of which no record knows: a run goes on, or an import was killed between the two, or records were deleted."""
    known = {
        (_partition(place, file), run_id)
        for file in choose(place, of_dataset["records"]).files
        for run_id in file.run_ids
    }
    for file in of_dataset["samples"]:
        if (_partition(place, file), file.run_id) not in known:
            yield Finding(
                what=ORPHANED, path=file.path, told="the store has no records of its run; delete it where nobody has"
            )


def _partition(place: StoreLocation, file: RunFile) -> str:
    return file.folder[len(place.root) + 1 :].partition("/")[2]


def _hidden(place: StoreLocation) -> Iterator[Finding]:
    """Yield what a killed process left half-written on this machine's file systems."""
    if not place.is_local:
        return
    for folder in FOLDERS:
        for path in sorted(Path(place.root, folder).rglob(".*.tmp")):
            told = "half-written: its writer is at work, or was killed and the next run removes it"
            yield Finding(what=LEFT, path=str(path), told=told)


def _of_sentence(what: str, problem: str) -> Finding:
    """Return the finding for a sentence that begins with its file."""
    path, separator, told = problem.partition(": ")
    return Finding(what=what, path=path if separator else "", told=told or problem)
