"""Builds the site of a store and publishes it: into a folder, and from there to a folder or bucket where others see it.

In a folder only what changed is written, and what is gone from the site is removed. A target gets data before the pages that read them.
"""

import datetime as dt
import functools
import hashlib
import json
import multiprocessing
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from pairbench.config import Config
from pairbench.errors import EmptyStoreError, StoreError, StoreFailedError, UsageError
from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.plain import Value
from pairbench.model.site import RunVerdicts, SiteFacts
from pairbench.own_folders import held_folder, sweep_folders
from pairbench.site import paths
from pairbench.site.event_pages import feed, regressions
from pairbench.site.events import RunKey
from pairbench.site.gather import Jobs, SiteReading, about_of, one_by_one, shown_store
from pairbench.site.operator import operator
from pairbench.site.overview import breakdowns, compare, overview, run, runs
from pairbench.site.paths import File, SiteCache, digest, head_of
from pairbench.site.payload import packed
from pairbench.site.programs import badges, index_json
from pairbench.site.templates import render
from pairbench.store.documents import read_breakdowns
from pairbench.store.files import sweep_temporary, write_whole
from pairbench.store.location import StoreLocation, existing, fingerprint, put_file, read_file
from pairbench.workflow.git import Repository, repository_address
from pairbench.workflow.setup import catalogue_folder, store_of

MANIFEST = ".pairbench-site.json"  # names what an earlier build wrote: no other file is ever changed or removed

_STAGE = ".pairbench-new-"  # how the folder's name begins in which files wait for the last of them to be made


class Written(Value):
    files: int  # number of files of the site
    written: tuple[str, ...]  # files that were new or had changed, in the order in which they were written
    removed: tuple[str, ...]  # files of an earlier build that the site has no more
    name: str = ""  # of the place that it was copied to, without credentials
    problems: tuple[str, ...] = ()  # a sentence for each thing of the store that could not be read


def publish(folder: Path, files: Iterable[File]) -> Written:
    """Write a site into a folder; raise UsageError where that holds something else, StoreFailedError where the store cannot be read."""
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


def _publish(folder: Path, files: Iterable[File]) -> Written:
    before = _earlier(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sweep_folders(folder, _STAGE)
    sweep_temporary([folder])
    if before is None:
        # From here on the folder is a site, also if this build is interrupted.
        write_whole(folder / MANIFEST, _manifest(files=[]), durable=False)
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
    if _differs(folder / MANIFEST, content := _manifest(files=sorted(names))):
        write_whole(folder / MANIFEST, content, durable=False)
    return Written(files=len(names), written=tuple(written), removed=tuple(removed))


def _earlier(folder: Path) -> Mapping[str, str] | None:
    """Return the files of an earlier build; None where there is nothing yet."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise UsageError(f"--output {str(folder)!r} is a file, expected a folder")
    try:
        content = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        if other := sorted(path.name for path in folder.iterdir() if not path.name.startswith(_STAGE)):
            raise UsageError(
                f"--output {str(folder)!r} holds {other[0]!r} and no site of pairbench, expected an empty or a new folder"
            ) from None
        return None
    return _files_of(content, f"{folder / MANIFEST} is damaged", "remove the folder and build again")


def _inside(folder: Path, name: str) -> Path:
    if not _is_inside(name) or "\0" in name:
        raise UsageError(f"{name!r} is no file inside of --output {str(folder)!r}")
    return folder / PurePosixPath(name)


def _differs(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size != len(content) or path.read_bytes() != content
    except OSError:
        return True


def _manifest(**entries: object) -> bytes:
    return (json.dumps(entries, indent=0) + "\n").encode()


def _files_of(manifest: bytes, damaged: str, remedy: str) -> Mapping[str, str]:
    """Return the files that a manifest names, each with its digest; empty for a digest that is not known."""
    try:
        entries = json.loads(manifest)
        digests = entries.get("digests", {})
        return {str(name): str(digests.get(name, "")) for name in entries["files"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{damaged} ({error}); {remedy}") from error


PLOTLY = "assets/plotly.packed.js"


def assets(folder: Path) -> Iterator[File]:
    """Yield our files of a folder, and Plotly's script out of the installed package, the same for every site."""
    for file in sorted(folder.iterdir()):
        if file.suffix in (".css", ".js", ".svg"):
            yield File(path=f"assets/{file.name}", content=file.read_bytes())
    yield _plotly()


@functools.cache  # a live site is built many times
def _plotly() -> File:
    from plotly.offline import get_plotlyjs

    # Packed: as it is, it is a third of a site.
    return File(path=PLOTLY, content=b'pairbench.packed("plotly", "%s");\n' % packed(get_plotlyjs().encode()))


class SiteOptions(Value):
    folder: Path  # where the site goes: a new folder, or that of an earlier build
    repository: str | None = None  # its address on the web; that of the checkout's origin where not given
    address: str | None = None  # where the site will be on the web, for the links in its feed
    last: int | None = None  # how many of the newest runs are shown; all where not given
    store_options: tuple[str, ...] = ()  # what the commands on the pages have to be told to find the store


_WHOLE = "site"  # the name of the whole site as a part


def build_site(config: Config, options: SiteOptions) -> Written:
    """Read a store and write its site: of an empty one a site that says what to do; of one that cannot be read, none."""
    store, cache = store_of(config), SiteCache(options.folder)
    address = options.repository or repository_address(config.root)
    # Without the folders of the checkout and of the site, for the pages are the same wherever these lie.
    asked = replace(config, root=Path()), replace(options, folder=Path()), shown_store(config), address
    repository, today = Repository(config.root), dt.datetime.now(dt.UTC).date()
    branch = (repository.default_branch, sorted(repository.default_commits)) if repository.is_one else None
    files = sorted(fingerprint(store))
    inputs = digest(files, sorted(store.moved.items()), asked, branch, today)
    suites, problems = cache.values(_WHOLE) or ((), ())
    if cache.find(_WHOLE, digest(inputs, [about_of(config, suite) for suite in suites])) is not None:
        return replace(publish(options.folder, cache.unchanged()), problems=problems)
    try:
        stamps, shown = {path: stamp for path, *stamp in files}, options.store_options
        reading = SiteReading(config, repository=address, last=options.last, options=shown, stamps=stamps, begin=_begin)
    except EmptyStoreError as error:
        kept, missed = read_breakdowns(store)
        known: dict[str, Any] = {"problems": missed, "breakdowns": tuple(map(head_of, kept))}
        facts = SiteFacts(store=shown_store(config), repository=None, runs=(), **known)
        written = publish(options.folder, _files(facts, {}, kept, options.address))
        return replace(written, problems=(str(error), *missed))
    problems = reading.facts.problems
    if problems and not reading.facts.runs:
        raise StoreFailedError("; ".join([f"store {reading.facts.store!r}: no run of it can be read", *problems]))
    inputs = digest(inputs, list(map(reading.about, reading.suites)))
    made = cache.put(_WHOLE, inputs, (reading.suites, problems), _parts(reading, cache, options))
    written = publish(options.folder, made)
    cache.save()
    return replace(written, problems=problems)


def _parts(reading: SiteReading, cache: SiteCache, options: SiteOptions) -> Iterator[File]:
    """Yield every file of the site; the sums over all operators are known, and so written, after them."""
    for made in reading.operators(cache.find, lambda *facts: tuple(map(_short, operator(*facts))), _in_processes):
        yield from cache.put(*made)
    for made in reading.runs(cache.find, lambda *facts: tuple(map(_short, run(*facts))), _in_processes):
        yield from cache.put(*made)
    yield from cache.unchanged()
    yield from map(_short, _files(reading.facts, reading.verdicts, reading.breakdowns, options.address))


_MOST = 8  # the most processes that make pages: each makes objects of its own of the store's columns
_inherited: list[Callable[[], Any]] = []  # the jobs of a process that was forked to do some of them


def _in_processes(jobs: Jobs) -> Iterator[Any]:
    """Yield what each job returns, in order; they are done in as many forked processes as there are cores."""
    # A fork inherits the store's columns.
    if (number := min(_cores(), len(jobs), _MOST)) < 2:
        yield from one_by_one(jobs)
        return
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(number, fork, initializer=_inherited.extend, initargs=(jobs,))
    done = 0
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of the threads of pyarrow
            made = pool.map(_call, range(len(jobs)))
        for one in made:
            yield one
            done += 1
    except BrokenProcessPool:  # a process was killed
        yield from one_by_one(jobs[done:])
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    """Return how many processes may be forked: one where other threads run, which may hold a lock that a fork would inherit."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" and threading.active_count() == 1 else 1


def _begin(work: Callable[[], Any]) -> Callable[[], Any]:
    """Begin work in a forked process, and return the function that waits for what it returns."""
    if _cores() < 2:
        return work
    fork = multiprocessing.get_context("fork")
    found, to = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: to.send(work()), daemon=True)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of the threads of pyarrow
        process.start()
    to.close()

    def wait() -> Any:
        try:
            return found.recv()
        except EOFError:  # it was ended
            return work()
        finally:
            process.join()

    return wait


def _call(place: int) -> Any:
    return _inherited[place]()


# End tags, those of paragraphs only in a cell; empty values; quotes around one word. In text a quote is escaped.
_OPTIONAL = re.compile(
    rb'\n?</(?:td|th|tr|thead|tbody|li|dt|dd|option)>\n?|</p>(?=<p>|</td>)|=""(?=[ >])|(?<==)"([\w.+-]+)"(?=[ >])'
)


def _short(file: File) -> File:
    """Return a page without the end tags and quotes that HTML does not need: they are an eighth of a page."""
    return replace(file, content=_OPTIONAL.sub(rb"\1", file.content)) if file.path.endswith(".html") else file


def _files(
    facts: SiteFacts, verdicts: Mapping[RunKey, RunVerdicts], kept: tuple[KeptBreakdown, ...], address: str | None
) -> Iterator[File]:
    """Yield the files that are of no single operator or run."""
    yield from assets(catalogue_folder("dashboards") / "assets")
    yield overview(facts)
    yield regressions(facts)
    yield compare(facts)
    yield runs(facts, verdicts)
    if facts.several_gpus:
        yield render(paths.GPUS, facts)
    yield from breakdowns(facts, kept)
    yield index_json(facts)
    yield feed(facts, address=address)
    yield from badges(facts)


_THREADS = 8  # number of files that travel at once: each waits for an answer most of the time
_LAST = (paths.OVERVIEW, "index.json", "feed.xml")  # what readers and programs open first comes when all else is there


def upload(folder: Path, target: str | StoreLocation) -> Written:
    """Copy a site from its folder to a folder or URL; what else lies there stays as it is."""
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


def _upload(folder: Path, place: StoreLocation) -> Written:
    names = sorted(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    manifest, damaged = read_file(place, MANIFEST), f"--publish {place.name!r}: {MANIFEST} there is damaged"
    earlier = _files_of(manifest, damaged, "remove it with the site that it belongs to") if manifest is not None else {}
    if others := existing(place, sorted(digests.keys() - earlier.keys())):
        raise UsageError(
            f"--publish {place.name!r} holds {others[0]!r}, which no earlier site of pairbench has left there; "
            "name an empty place, or a folder inside of it"
        )
    written: list[str] = []
    # Data, styles and scripts, then pages, then what is opened first; the list of files last, for an interrupted copy is done again.
    stages = {name: 2 if name in _LAST else 1 if name.endswith(".html") else 0 for name in names}
    with ThreadPoolExecutor(_THREADS) as pool:
        for stage in range(3):  # each needs those before it
            changed = [name for name in names if stages[name] == stage and earlier.get(name) != digests[name]]
            list(pool.map(lambda name: put_file(place, name, (folder / name).read_bytes()), changed))
            written += changed
    removed = sorted(earlier.keys() - digests.keys())
    place.delete(f"{place.root}/{name}" for name in removed if _is_inside(name))
    put_file(place, MANIFEST, _manifest(files=names, digests=digests))
    return Written(name=place.name, files=len(names), written=tuple(written), removed=tuple(removed))


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and bool(path.parts) and ".." not in path.parts
