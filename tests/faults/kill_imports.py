"""Imports that are killed before each line that writes, hence between any two of its calls of the system, and done again."""

import json
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pairbench.features.exchange.importing import import_runs
from pairbench.store.reader import read_frame
from tests.faults.imports import benchmark_document
from tests.faults.kill_at import killed_at, lines_of
from tests.faults.seen import Seen

_COUNTED = ("store/writer", "store/location", "store/files", "store/opened", "exchange/importing")


def kill_imports(most: int, number: int = signal.SIGKILL) -> Seen:
    """Kill an import so often, each time at another line, in a store of its own; then import again, twice."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "saved.json").write_text(json.dumps(benchmark_document()))
        _import(here, "whole")()
        wanted = _rows(here / "whole")
        lines = lines_of(_import(here, "counted"), *_COUNTED)
        for line in range(1, lines + 1, max(1, -(-lines // most))):
            store = f"store-{line}"
            seen.counts["imports"] += 1
            seen.counts["killed"] += killed_at(line, _import(here, store), *_COUNTED, number=number)
            what = f"an import that was killed before line {line} of {lines}"
            _import(here, store)()
            try:
                found = _rows(here / store)
            except AssertionError as error:
                seen.wrong.append(f"{what}: {error}")
                continue
            if wanted - found:
                seen.wrong.append(f"{what}: rows are lost: {list(wanted - found)[:2]}")
            if found - wanted:
                seen.wrong.append(f"{what}: rows are there twice, or others: {list(found - wanted)[:2]}")
            _import(here, store)()
            if _rows(here / store) != found:
                seen.wrong.append(f"{what}: rows are there twice once it is done again")
            if left := [path.name for path in (here / store).rglob(".*")]:
                seen.wrong.append(f"{what}: {len(left)} files are left: {left[:3]}")
    return seen


def _import(here: Path, store: str) -> Callable[[], object]:
    saved = [str(here / "saved.json")]
    return lambda: import_runs(str(here / store), "pytest-benchmark", saved, when="measured")


def _rows(store: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for dataset in ("records", "samples"):
        frame, problems = read_frame(store, dataset)
        assert not problems, f"the store cannot be read: {problems}"
        found.update(map(repr, frame.astype(str).itertuples(index=False, name=None)))
    return found
