"""Upkeep of a store: merges the records of old runs into fewer files, checks every file, and removes the raw samples of old runs."""

import datetime as dt
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pairbench.model.plain import Value, grouped
from pairbench.store.compacted import INDEX, ROW, Files, choose, doubled, open_file, publish_runs, sound_rows
from pairbench.store.documents import FORMS, read_documents
from pairbench.store.location import FOLDERS, RunFile, StoreLocation, run_files
from pairbench.store.opened import BROKEN, ForeignFileError, problem_of
from pairbench.store.reader import named_moment
from pairbench.store.reading import SINCE
from pairbench.store.schema import SCHEMA_VERSION, fields_of

KEEP = 100
"""The number of newest runs of each device model that keep files of their own: `compare` reads them, and they may still be completed."""
AT_LEAST = 16
"""The number of runs that are merged in a month that is not over, so that a nightly job does not write the same rows every night."""
MOST_ROWS, MOST_RUNS, MOST_BYTES = 190_000, 2_000, 2**28
"""The most rows and runs of a merged file, and bytes of the files that it is made of."""
_ANY = 2  # the number of runs that are merged in a month that is over; a single run there joins a file that has room
_TIMES = 4


class Merged(Value):
    """The result of compacting a folder of records, of one device model and one month, named below the store's root."""

    folder: str
    runs: int
    files: int
    size: int
    now: int  # `files` is by how many files there are fewer; `size` the bytes of the merged ones, `now` of the new ones
    problems: tuple[str, ...]


class _Source(Value):
    file: RunFile
    rows: int
    size: int
    form: str  # the schema version and columns; only files of one form are merged
    torn: bool  # whether it is a compacted file some of whose runs are read from others


def compact(place: StoreLocation, *, keep: int = KEEP) -> Iterator[Merged]:
    """Merge old records, and yield the result of each folder that changed; done again, none does."""
    # The newest runs of each device model, runs that were never closed, and files of schema versions before 4 or after this one's stay.
    place.sweep()
    files = place.files("records")
    runs: dict[str, set[str]] = defaultdict(set)
    months: dict[str, str] = defaultdict(str)
    chosen = choose(place, files)
    for file in (*chosen.files, *chosen.left):
        runs[file.device_slug].update(file.run_ids)
        months[file.device_slug] = max(months[file.device_slug], file.folder)
    done = False
    for folder, slug in sorted({(file.folder, file.device_slug) for file in files}):
        newest = frozenset(sorted(runs[slug])[max(len(runs[slug]) - keep, 0) :])
        merged = _compact_folder(place, folder, newest, at_least=_ANY if folder < months[slug] else AT_LEAST)
        if merged is not None:
            done = True
            yield merged
    (choose(place, place.files("records")) if done else chosen).write_index(place)


def _compact_folder(place: StoreLocation, folder: str, recent: frozenset[str], *, at_least: int) -> Merged | None:
    runs, files, size, now = 0, 0, 0, 0
    name = folder[len(place.root) + 1 :]
    problems: dict[str, None] = {}
    for _ in range(_TIMES):  # the new file may fit into one with another that was there
        chosen = choose(place, [file for file in place.files(name) if file.folder == folder])
        problems |= dict.fromkeys(chosen.problems)
        files += _delete_superfluous(place, chosen, chosen.left)
        sources, missed = _sources(place, chosen, recent)
        problems |= dict.fromkeys(missed)
        by_form = grouped((source.form, source) for source in sources)
        batches = [batch for several in by_form.values() for batch in _batches(several, at_least)]
        batch: list[_Source] = []
        try:
            for batch in batches:
                tables = [open_file(place, source.file, "records").raw() for source in batch]
                path, held, written = publish_runs(place, folder, tables)
                chosen = replace(chosen, runs=chosen.runs | {path: held})
                files += _delete_superfluous(place, chosen, [source.file for source in batch]) - 1
                runs += sum(len(source.file.run_ids) for source in batch)
                size += sum(source.size for source in batch)
                now += written
        except BROKEN as error:
            problems[problem_of(batch[0].file.path, error)] = None
            break
        if not batches:
            break
    if not files and not problems:
        return None
    return Merged(folder=name, runs=runs, files=files, size=size, now=now, problems=tuple(problems))


def _delete_superfluous(place: StoreLocation, chosen: Files, files: Iterable[RunFile]) -> int:
    """Delete those among some files whose rows are all in others that stay, and return how many; a damaged file stays, to be named."""
    holders: dict[str, set[str]] = defaultdict(set)
    for file in chosen.files:
        if not file.is_compacted and not file.is_part:
            holders[file.run_id].add(file.path)
    for path, run_ids in chosen.runs.items():
        for run_id in run_ids:
            holders[run_id].add(path)
    rows_of = functools.cache(functools.partial(sound_rows, place))
    gone: set[str] = set()
    for file in files:
        own = rows_of(file.path)
        elsewhere = (
            any(rows_of(path).get(run_id, 0) >= rows for path in holders[run_id] - gone - {file.path})
            for run_id, rows in own.items()
        )
        if own and all(elsewhere):
            gone.add(file.path)
    place.delete(sorted(gone))
    return len(gone)


def _sources(place: StoreLocation, chosen: Files, recent: frozenset[str]) -> tuple[list[_Source], list[str]]:
    """Return the files that may be merged, oldest run first, and a sentence for each that cannot be read."""
    parts = {file.run_id for file in chosen.files if file.is_part}
    sources, problems = [], []
    for file in chosen.files:
        if file.is_part or file.run_id in parts or (not file.is_compacted and file.run_id in recent):
            continue
        try:
            opened = open_file(place, file, "records")
        except FileNotFoundError:
            continue
        except BROKEN as error:
            problems.append(problem_of(file.path, error))
            continue
        if SINCE <= opened.version <= SCHEMA_VERSION and opened.num_rows:
            schema = opened.metadata.schema.to_arrow_schema()
            columns = ", ".join(f"{field.name} {field.type}" for field in schema if field.name != ROW)
            form = f"{opened.version} {columns}"
            torn = file.is_compacted and len(chosen.runs[file.path]) > len(file.among)
            sources.append(_Source(file=file, rows=opened.num_rows, size=opened.size, form=form, torn=torn))
    return sources, problems


def _batches(sources: Sequence[_Source], at_least: int) -> list[list[_Source]]:
    """Return lists of files to merge into one; `at_least` runs' own files are needed to begin."""
    own = sum(not source.file.is_compacted for source in sources)
    torn = any(source.torn for source in sources)
    small = [one for one in sources if one.torn or not one.file.is_compacted or one.rows <= MOST_ROWS / 2]
    joins = at_least == _ANY and own and len(small) > 1
    if not (torn or joins or own >= at_least or len(small) - own > 1):
        return []
    found: list[list[_Source]] = [[]]
    for source in small:
        batch = [*found[-1], source]
        too_much = (
            sum(one.rows for one in batch) > MOST_ROWS
            or sum(len(one.file.run_ids) for one in batch) > MOST_RUNS
            or sum(one.size for one in batch) > MOST_BYTES
        )
        if too_much and found[-1]:
            found.append([source])
        else:
            found[-1].append(source)
    return [batch for batch in found if len(batch) > 1 or batch[0].torn]


class OldSamples(Value):
    """The files of old samples in one folder, named below the store's root, and their bytes."""

    folder: str
    files: tuple[str, ...]
    size: int


def old_samples(place: StoreLocation, before: dt.datetime) -> list[OldSamples]:
    """Return the samples of runs that began before a moment, by the runs' ids, or by the age of the files where an id has no time."""
    files = place.files("samples")
    infos = {info.path: info for info in place.filesystem.get_file_info([file.path for file in files])} if files else {}
    old: dict[str, list[str]] = defaultdict(list)
    for file in files:
        began = named_moment(file.run_id) or infos[file.path].mtime
        if began is not None and began < before:
            old[file.folder[len(place.root) + 1 :]].append(file.path)
    return [
        OldSamples(folder=folder, files=tuple(paths), size=sum(infos[path].size or 0 for path in paths))
        for folder, paths in sorted(old.items())
    ]


def remove(place: StoreLocation, several: Iterable[OldSamples]) -> list[str]:
    paths = [path for one in several for path in one.files]
    place.delete(paths)
    infos = place.filesystem.get_file_info(paths) if paths else []
    return [info.path for info in infos if info.is_file]


DAMAGED, FOREIGN, NEWER = "damaged", "foreign", "newer"
LEFT, UNFINISHED, ORPHANED = "left over", "unfinished", "orphaned"
"""The kinds of findings; only in damaged files rows are lost."""
_THREADS, _THREADS_REMOTE = 4, 32


class Finding(NamedTuple):
    """A file of a store that its owner may want to know of: its kind, and a sentence about it."""

    what: str
    path: str
    reason: str


class Checked(NamedTuple):
    """The number of files of a store, their bytes, and the findings."""

    files: int
    size: int
    findings: tuple[Finding, ...]


def check(place: StoreLocation) -> Checked:
    findings: list[Finding] = []
    count = size = 0
    of_dataset: dict[str, list[RunFile]] = {}
    for dataset in ("records", "samples"):
        listing = place.listing(dataset, ".parquet")
        findings += [_of_sentence(FOREIGN, problem) for problem in listing.problems]
        of_dataset[dataset] = files = run_files(listing.value)
        with ThreadPoolExecutor(_THREADS if place.is_local else _THREADS_REMOTE) as pool:
            for finding, read in pool.map(lambda file, of=dataset: _look(place, of, file), files):
                count, size = count + 1, size + read
                findings += [] if finding is None else [finding]
    damaged = {finding.path for finding in findings if finding.what == DAMAGED}
    for kind, (folder, *_) in FORMS.items():
        findings += [_of_sentence(DAMAGED, problem) for problem in read_documents(place, kind).problems]
        infos = place.filesystem.get_file_info(list(place.listing(folder, ".json").value))
        count, size = count + len(infos), size + sum(info.size or 0 for info in infos)
    chosen = choose(place, of_dataset["records"])
    findings += _superfluous(place, of_dataset, chosen, damaged)
    # A run goes on, an import was killed between the two datasets, or records were deleted.
    known = {(file.folder, run_id) for file in chosen.files for run_id in file.run_ids}
    for file in of_dataset["samples"]:
        partition = file.folder.removeprefix(f"{place.root}/samples")
        if (f"{place.root}/records{partition}", file.run_id) not in known:
            reason = "the store has no records of its run; delete it where nobody has"
            findings.append(Finding(ORPHANED, file.path, reason))
    if place.is_local:
        half = "half-written: its writer is at work, or was killed and the next run removes it"
        hidden = (path for folder in FOLDERS for path in sorted(Path(place.root, folder).rglob(".*.tmp")))
        findings += [Finding(LEFT, str(path), half) for path in hidden]
    return Checked(count, size, tuple(findings))


def _look(place: StoreLocation, dataset: str, file: RunFile) -> tuple[Finding | None, int]:
    problem = ""
    for _ in range(_TIMES if file.is_part else 1):  # another round may have replaced a part meanwhile
        try:
            opened = open_file(place, file, dataset)
            opened.read(list(fields_of(dataset)))
            opened.raw()
        except FileNotFoundError:  # a run has closed, or was compacted
            return None, 0
        except ForeignFileError as error:
            return _of_sentence(FOREIGN, problem_of(file.path, error)), 0
        except BROKEN as error:
            problem = problem_of(file.path, error)
            continue
        if opened.version > SCHEMA_VERSION:
            reason = f"is of schema version {opened.version}, of which this pairbench reads what it knows; update it"
            return Finding(NEWER, file.path, reason), opened.size
        return None, opened.size
    return _of_sentence(DAMAGED, problem), 0


def _superfluous(
    place: StoreLocation, of_dataset: dict[str, list[RunFile]], chosen: Files, damaged: set[str]
) -> Iterator[Finding]:
    """Yield parts of runs without their one file, and files whose rows are in another, too."""
    left = {file.path for file in chosen.left}
    for files in of_dataset.values():
        beside = {part for whole, parts in doubled(files).items() if whole not in damaged for part in parts}
        for file in files:
            if file.path in beside:
                yield Finding(LEFT, file.path, "its rows are in the run's one file; the next run removes it")
            elif file.path in left - damaged:
                yield Finding(LEFT, file.path, "its rows are in a compacted file; `pairbench store compact` removes it")
            elif file.is_part and file.path not in damaged:
                yield Finding(UNFINISHED, file.path, "its run goes on, or was killed; it is as good as one file")
    if not chosen.is_indexed(place):
        held = "is not what the compacted files hold, which are asked themselves"
        yield Finding(LEFT, f"{place.root}/{INDEX}", f"{held}; `pairbench store compact` makes it again")


def _of_sentence(what: str, problem: str) -> Finding:
    path, separator, reason = problem.partition(": ")
    return Finding(what, path if separator else "", reason or problem)
