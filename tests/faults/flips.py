"""Single bits of a store flipped, one at a time, and the store read by every reader: what comes out is right, or its file is named."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairbench.model.record import COLUMNS
from pairbench.store.documents import read_acceptances, read_breakdowns, read_calibrations, read_triages
from pairbench.store.reader import (
    RunIndex,
    WholeStore,
    latency_samples,
    read_frame,
    read_run,
    read_samples,
    read_series,
    runs,
)
from tests.builders import CASES, by_run
from tests.faults.damaged import LAST, make_store
from tests.faults.seen import Seen

_TREND = ("run_id", "case", "implementation", "driver", "call_p50_ns", "commit")


def flip_bits(count: int, *, seed: int = 1) -> Seen:
    """Flip so many bits, each in a store that is sound but for it."""
    rng = random.Random(seed)
    found = Seen()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        make_store(store)
        sound = {path: path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}
        # One run's files and the documents: what is read of the other runs is the same all over again.
        wanted = [path for path in sound if path.suffix == ".json" or path.stem == LAST]
        for path in sound.keys() - set(wanted):
            path.unlink()
        before = dict(_read(store))
        for _ in range(count):
            path = rng.choice(wanted)
            content = bytearray(sound[path])
            place = _place(rng, len(content))
            content[place] ^= 1 << rng.randrange(8)
            path.write_bytes(content)
            _compare(found, store, before, f"{path.relative_to(store)}, byte {place:,} of {len(content):,}", path.name)
            path.write_bytes(sound[path])
        shutil.rmtree(store)
    return found


def _place(rng: random.Random, size: int) -> int:
    """Return a byte: anywhere, or in the last 30 KB, where the footer and its statistics are."""
    return rng.randrange(size) if rng.random() < 0.5 else rng.randrange(max(0, size - 30_000), size)


def _read(store: Path) -> Iterator[tuple[str, tuple[Any, tuple[str, ...]]]]:
    """Yield what each reader says of the store, and the problems that it names."""
    for name, read in _READERS.items():
        try:
            value, problems = read(store)
        except Exception as error:  # noqa: BLE001 (whatever a reader says, it has said something)
            value, problems = None, (f"{type(error).__name__}: {error}",)
        yield name, (value, tuple(problems))


def _compare(found: Seen, store: Path, before: dict[str, Any], where: str, file: str) -> None:
    told = changed = False
    for name, (value, problems) in _read(store):
        expected = before[name][0]
        named = any(file in problem for problem in problems)
        told |= named
        if value == expected:
            continue
        changed = True
        if not named:
            found.wrong.append(f"{where}: {name} has other values, and names no file")
        elif not _is_part(value, expected):
            found.wrong.append(f"{where}: {name} has wrong values, although it names the file")
    found.counts["bits flipped"] += 1
    found.counts["named and left out" if told else "changed nothing" if not changed else "wrong values"] += 1


def _is_part(value: Any, expected: Any) -> bool:
    """Tell whether nothing came out that was not there before; nothing at all is fine."""
    return value is None or set(value) <= set(expected)


def _rows(rows: Any) -> list[str]:
    return sorted(map(repr, rows))


def _of_whole(store: Path) -> tuple[list[str], tuple[str, ...]]:
    whole = WholeStore(store, [*COLUMNS, *_TREND, "kernels", "axes"])
    return _rows(record for _, several in by_run(whole, [*COLUMNS, *_TREND]) for record in several), whole.problems


def _of_index(store: Path) -> tuple[list[str], tuple[str, ...]]:
    index = RunIndex.of_store(store)
    rows = [f"{head.run_id} {head.commit} {head.branch} {head.dirty} {sorted(head.devices)}" for head in index]
    return sorted(rows), tuple(index.problems)


def _of_frame(store: Path) -> tuple[list[str], tuple[str, ...]]:
    frame, problems = read_frame(store, columns=["run_id", "case", "implementation", "call_p50_ns", "n_samples"])
    return _rows(frame.itertuples(index=False, name=None)), problems


def _of_latencies(store: Path) -> tuple[list[str], tuple[str, ...]]:
    found, problems = latency_samples(store, LAST)
    return sorted(
        f"{series} {name} {list(values)}" for series, of in found.items() for name, values in of.items()
    ), problems


def _value(reading: Any) -> tuple[list[str], tuple[str, ...]]:
    value = reading.value
    return _rows(value.items() if isinstance(value, dict) else value), reading.problems


_READERS: dict[str, Any] = {
    "show": lambda store: _value(read_run(store, LAST)),
    "show --runs": lambda store: _value(runs(store)),
    "samples": lambda store: _value(read_samples(store, LAST)),
    "latencies": _of_latencies,
    "trend": lambda store: _value(read_series(store, where={"case": CASES}, columns=_TREND)),
    "dashboard": _of_whole,
    "compare": _of_index,
    "a frame": _of_frame,
    "accepted": lambda store: _value(read_acceptances(store)),
    "triage": lambda store: _value(read_triages(store)),
    "calibrations": lambda store: _value(read_calibrations(store)),
    "breakdowns": lambda store: _value(read_breakdowns(store)),
}
