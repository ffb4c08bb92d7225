"""Files that are small on the disk and endless in memory: refused by what their footers say, and by how long their texts would be."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.store import opened
from pairbench.store.documents import read_acceptances
from pairbench.store.reader import WholeStore, read_run, read_series, runs
from pairbench.store.schema import VERSION_KEY
from tests.builders import by_run, make_run, run_id_of, write_runs
from tests.faults.forked import each_forked

TEXTS = {
    "run_id": run_id_of(9),
    "device_name": "x",
    "suite": "s.py",
    "case": "c",
    "implementation": "baseline",
    "mode": "eager",
    "status": "failed",
    "started_at": "2024-01-01T09:00:00+00:00",
}
MEMORY = 1000 * 2**20
"""More than a reader takes beyond what its process had before, and a tenth of what the files would fill."""


def repeated(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(bytes(count), pa.int8()), pa.array([text]))


def written(store: Path, count: int, **columns: Any) -> Path:
    path = store / "records" / "device=x" / "month=2024-01" / f"{TEXTS['run_id']}.parquet"
    path.parent.mkdir(parents=True)
    table = pa.table({**{name: repeated(text, count) for name, text in TEXTS.items()}, **columns})
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: b"5"}), path, compression="zstd")
    return path


def rows(store: Path) -> Path:
    return written(store, 1_500_000)


def one_long_text(store: Path) -> Path:
    return written(store, 150_000, reason=repeated("x" * 100_000, 150_000))


def long_names_inside(store: Path) -> Path:
    count = 100_000
    fields = [repeated("k" * 100_000, count), pa.array([1] * count), pa.array([1.0] * count)]
    inside = pa.StructArray.from_arrays(fields, ["name", "count", "total_ns"])
    return written(store, count, kernels=pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), inside))


def of_every_run(store: Path) -> tuple[str, ...]:
    names = ("case", "reason", "kernels")
    whole = WholeStore(store, names)
    assert [len(records) for _, records in by_run(whole, names)] == [4]
    return tuple(whole.problems)


READERS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "one run": lambda store: read_run(store).problems,
    "heads of runs": lambda store: runs(store).problems,
    "every run": of_every_run,
    "one case": lambda store: read_series(store, where={"case": "c"}, columns=["reason", "kernels"]).problems,
}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (rows, "has 1,500,000 rows, expected at most"),
        (one_long_text, "'reason' holds more than"),
        pytest.param(long_names_inside, "'kernels'", marks=pytest.mark.slow),
    ],
)
def test_a_file_that_would_fill_the_memory(tmp_path: Path, make: Callable[[Path], Path], said: str) -> None:
    write_runs(tmp_path, make_run(0))
    assert make(tmp_path).stat().st_size < 2_000_000

    def most() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def work(name: str) -> tuple[tuple[str, ...], int]:
        before = most()  # at the fork: what the process of the tests has by then, which other tests have filled
        problems = READERS[name](tmp_path)
        return problems, most() - before

    for name, result, wrong in each_forked(work, READERS):
        assert not wrong, wrong
        problems, memory = result
        assert memory < MEMORY, (name, memory / 2**20)
        if name != "heads of runs" or make is rows:
            assert len(problems) == 1 and said in problems[0], (name, problems)


def test_what_the_footer_adds_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path, make_run(0), make_run(1, cases=[f"op[n={number}]" for number in range(200)]))
    monkeypatch.setattr(opened, "LARGEST", 200_000)
    found = runs(tmp_path)
    assert [run.run_id for run in found.value] == [run_id_of(0)]
    assert "holds more than 0 MiB once it is decoded" in found.problems[0]


def test_a_file_and_a_document_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accepted").mkdir()
    with (tmp_path / "accepted" / "x.json").open("wb") as file:
        file.truncate(opened.LARGEST_DOCUMENT + 1)
    value, (problem,) = read_acceptances(tmp_path)
    assert value == {} and "expected at most 64 MiB" in problem
    write_runs(tmp_path, make_run(0))
    monkeypatch.setattr("pairbench.store.opened.read_content.__defaults__", (1000,))
    with pytest.raises(Exception, match="expected at most 0 MiB"):
        read_run(tmp_path)
