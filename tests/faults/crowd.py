"""Many writers, readers and dashboards on one store at the same time: nobody misses a row that was there before it looked, or sees one twice."""

import json
import os
import random
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.model.record import Record, Samples
from pairbench.site.build import SiteOptions, build_site
from pairbench.store.location import StoreLocation
from pairbench.store.reader import WholeStore, read_frame, read_samples, read_series, runs
from pairbench.store.writer import RunWriter
from tests.builders import by_run, make_run
from tests.faults.forked import each_forked
from tests.faults.seen import Seen
from tests.site.stores import _samples

CASES = ("rms_norm[dtype=bfloat16,tokens=64]", "rms_norm[dtype=bfloat16,tokens=128]")
ROUNDS = 2
_ROWS = 2 * len(CASES)
_UNFINISHED = 0.1  # the part of the runs whose writer goes away without a word, as a kill has it


def crowd(
    store: str, seconds: float, *, writers: int = 8, readers: int = 3, dashboards: int = 1, pause_s: float = 0.2
) -> Seen:
    """Let them all loose for some time; on a busy machine each goes on until it has come to its end once."""
    found = Seen()
    with tempfile.TemporaryDirectory() as folder:
        place = _Place(store=store, ledgers=Path(folder), until=time.time() + seconds, pause_s=pause_s)
        work = [
            *((_write, number) for number in range(writers)),
            *((_read, number) for number in range(readers)),
            *((_build, number) for number in range(dashboards)),
        ]
        for one, seen, wrong in each_forked(
            lambda one: one[0](place, one[1]), work, at_once=len(work), limit_s=seconds + 120
        ):
            if wrong:
                found.wrong.append(f"{one[0].__name__} {one[1]}: {wrong.strip()}")
            if seen is not None:
                found.add(seen)
        _check_end(place, found)
    return found


@dataclass(frozen=True, kw_only=True)
class _Place:
    store: str
    ledgers: Path  # the folder in which each writer writes down what is surely in the store
    until: float
    pause_s: float

    def sure(self) -> dict[str, tuple[int, int]]:
        """Return by run how many of its records are surely in the store, and how many of its samples."""
        found = {}
        for ledger in self.ledgers.iterdir():
            for line in ledger.read_text().splitlines():
                run_id, records, samples = line.split()
                found[run_id] = (int(records), int(samples))
        return found


def _value(run_id: str, record: Record) -> float:
    return 1.0 + zlib.crc32(f"{run_id} {record.case} {record.implementation}".encode())


def _write(place: _Place, number: int) -> Seen:
    seen, rng = Seen(), random.Random(number)
    ledger = os.open(place.ledgers / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = 0
    while time.time() < place.until or not seen.counts["runs closed"]:
        run_id = f"20240101T{count:06d}-{number:02d}{rng.randrange(16**6):06x}"
        count += 1
        records = [replace(one, run_id=run_id) for one in make_run(0, cases=CASES)]
        records = [replace(one, call_p50_ns=_value(run_id, one)) for one in records]
        writer = RunWriter(place.store, run_id=run_id, device_slug="nvidia-h200", month="2024-01").__enter__()
        sure = [0, 0]
        for rounds in range(1, ROUNDS + 1):
            for case in CASES:
                own = [one for one in records if one.case == case]
                samples = [one for record in own for one in _samples(record)][rounds - 1 :: 5]
                writer.append_samples(samples)
                sure[1] += len(samples)
                writer.write_case(case, own)
                sure[0] = min(_ROWS, sure[0] + len(own))
                os.write(ledger, f"{run_id} {sure[0]} {sure[1]}\n".encode())
        if rng.random() < _UNFINISHED:
            seen.counts["runs left open"] += 1
        else:
            writer.close()
            seen.counts["runs closed"] += 1
        seen.counts["rows written"] += sum(sure)
        time.sleep(place.pause_s * rng.random())
    return seen


def _by_frame(store: str) -> tuple[Iterator[Any], tuple[str, ...]]:
    frame, problems = read_frame(store, columns=["run_id", "case", "implementation", "call_p50_ns"])
    return (Record(**row) for row in frame.to_dict("records")), problems


def _by_series(store: str) -> tuple[Iterator[Any], tuple[str, ...]]:
    found = read_series(store, where={"case": CASES}, columns=["run_id", "case", "implementation", "call_p50_ns"])
    return iter(found.value), found.problems


def _by_whole(store: str) -> tuple[Iterator[Any], tuple[str, ...]]:
    names = ["case", "implementation", "call_p50_ns"]
    whole = WholeStore(store, names)
    return (replace(one, run_id=key[0]) for key, several in by_run(whole, names) for one in several), whole.problems


def _read(place: _Place, number: int) -> Seen:
    seen, rng = Seen(), random.Random(100 + number)
    while not place.sure():
        time.sleep(0.05)
    while time.time() < place.until or not seen.counts["times read"]:
        name, read = rng.choice(_READERS)
        sure = place.sure()
        rows, problems = read(place.store)
        seen.counts["times read"] += 1
        _check(seen, name, list(rows), problems, sure)
        seen.counts["times listed"] += 1
        listed = runs(place.store)
        _compare(seen, "show --runs", {run.run_id: run.n_records for run in listed.value}, sure, listed.problems)
        run_id = rng.choice(list(sure))
        samples: tuple[Samples, ...]
        samples, problems = read_samples(place.store, run_id)
        keys = {(row.case, row.implementation, row.round) for row in samples}
        if len(keys) < len(samples):
            seen.wrong.append(f"samples: {len(samples) - len(keys)} rows twice, of run {run_id}")
        _compare(seen, "samples", {run_id: len(keys)}, {run_id: (sure[run_id][1], 0)}, problems, ROUNDS * _ROWS)
    return seen


def _check(
    seen: Seen, name: str, rows: list[Record], problems: tuple[str, ...], sure: dict[str, tuple[int, int]]
) -> None:
    keys = Counter((row.run_id, row.case, row.implementation) for row in rows)
    twice = [key for key, count in keys.items() if count > 1]
    if twice:
        seen.wrong.append(f"{name}: {len(twice)} rows twice, {twice[0]} the first")
    changed = [row for row in rows if row.call_p50_ns != _value(row.run_id, row)]
    if changed:
        seen.wrong.append(f"{name}: {len(changed)} rows with another value, of run {changed[0].run_id} the first")
    seen.counts["rows read"] += len(rows)
    _compare(seen, name, Counter(row.run_id for row in rows), sure, problems)


def _compare(
    seen: Seen,
    name: str,
    found: dict[str, int],
    sure: dict[str, tuple[int, int]],
    problems: tuple[str, ...],
    most: int = _ROWS,
) -> None:
    missing = [run_id for run_id, (count, _) in sure.items() if found.get(run_id, 0) < count]
    if missing:
        seen.wrong.append(
            f"{name}: {len(missing)} runs without rows that were there, {missing[0]} the first: "
            f"{found.get(missing[0], 0)} of {sure[missing[0]][0]}"
        )
    doubled = [run_id for run_id, count in found.items() if count > most]
    if doubled:
        seen.wrong.append(f"{name}: {len(doubled)} runs with rows doubled, {doubled[0]} the first: {found[doubled[0]]}")
    if problems:
        seen.wrong.append(f"{name}: {len(problems)} problems, {problems[0]} the first")


def _build(place: _Place, number: int) -> Seen:
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        while not place.sure():
            time.sleep(0.05)
        while time.time() < place.until or not seen.counts["sites built"]:
            sure = place.sure()
            config = Config(root=Path(folder), store=place.store)
            site = build_site(config, SiteOptions(folder=Path(folder) / "site"))
            index = json.loads((Path(folder) / "site" / "index.json").read_text())
            there = {run["run_id"]: sum(run["statuses"].values()) for run in index["runs"]}
            _compare(seen, "dashboard", there, sure, site.problems)
            seen.counts["sites built"] += 1
    return seen


def _check_end(place: _Place, found: Seen) -> None:
    """Look once more when all is quiet: everything is there once, and nothing is left lying about."""
    rows, problems = _by_frame(place.store)
    _check(found, "at the end", list(rows), problems, place.sure())
    location = StoreLocation.of(place.store)
    files = [file for dataset in ("samples", "records") for file in location.files(dataset)]
    whole = {file.path for file in files if not file.is_part}
    left = [file.path for file in files if file.is_part and file.whole in whole]
    if location.is_local:
        left += [str(path) for path in Path(location.root).rglob("*") if path.name.startswith(".")]
    found.wrong += [f"left: {path}" for path in left]
    found.counts["files left"] += len(left)


_READERS: list[tuple[str, Callable[[str], tuple[Iterator[Any], tuple[str, ...]]]]] = [
    ("a frame", _by_frame),
    ("trend", _by_series),
    ("a whole store", _by_whole),
]
