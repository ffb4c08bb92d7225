"""A run that ends at any moment leaves whole batches, each once."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO
from unittest import mock

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pairbench.errors import StoreError, StoreFailedError
from pairbench.store import writer as writer_module
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_run, read_samples
from pairbench.store.writer import RunWriter
from tests.store.rows import open_run, record, samples

BATCH = 3
BATCHES = [[record("run-1", case=f"{batch}.{row}") for row in range(BATCH)] for batch in range(6)]


def whole_batches(cases: list[str | None]) -> int:
    """Return how many batches there are, after checking that none is cut, doubled or missing from the middle."""
    count, rest = divmod(len(cases), BATCH)
    assert rest == 0
    assert cases == [f"{batch}.{row}" for batch in range(count) for row in range(BATCH)]
    return count


def begun(store: Path) -> tuple[int, IO[str]]:
    """Write a run in batches in a forked process; return its process id, and a stream of lines, each written once a batch is stored."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, os.fdopen(reading)
    try:
        with open_run(store) as writer:
            for batch, rows in enumerate(BATCHES):
                writer.append_samples([samples("run-1", case=row.case) for row in rows])
                writer.append_records(rows)
                os.write(writing, f"batch {batch}\n".encode())
        os.write(writing, b"closed\n")
    finally:
        os._exit(0)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    generator = random.Random(1)
    ends = Counter[str]()
    for number in range(14):
        store = tmp_path / str(number)
        child, output = begun(store)
        with output:
            # After some batches, and not after some time: how long a batch takes is the machine's affair.
            said = [output.readline() for _ in range(number % 7)]
            time.sleep(generator.uniform(0, 0.01))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            said += output.readlines()
        sure = sum(line.startswith("batch") for line in said)
        ends["closed" if "closed\n" in said else "in the middle" if sure else "before"] += 1
        check(store, sure=sure)
    assert ends["in the middle"] >= 5, ends


def check(store: Path, *, sure: int) -> None:
    files = list((store / "records").rglob("*.parquet"))
    assert all(pq.read_metadata(path).num_rows for path in files)
    if not files:
        assert sure == 0
        with pytest.raises(StoreError):
            read_run(store)
        return
    # pandas first: our reader would tidy up.
    frame = pd.read_parquet(store / "records").drop_duplicates("case")
    assert whole_batches(sorted(frame["case"])) >= sure
    records = read_run(store)
    assert records.problems == ()
    stored = whole_batches([row.case for row in records.value])
    assert sure <= stored <= sure + 1
    samples = read_samples(store, "run-1")
    assert samples.problems == ()
    assert stored <= whole_batches([row.case for row in samples.value]) <= stored + 1
    assert pd.read_parquet(store / "records")["case"].is_unique


def test_the_records_of_a_case_are_replaced_and_never_there_twice(tmp_path: Path) -> None:
    with open_run(tmp_path) as writer:
        writer.append_records([record("run-1", case="early")])
        for rounds in (1, 2, 3):
            for case in ("a", "b"):
                writer.write_case(case, [record("run-1", case=case, n_rounds=rounds)])
                writer.append_samples([])
            frame = pd.read_parquet(tmp_path / "records").set_index("case")
            assert frame["n_rounds"].drop("early").to_dict() == {"a": rounds, "b": rounds}
            assert frame.index.is_unique
            assert len(read_run(tmp_path).value) == 3
        writer.append_records([record("run-1", case="late")])
        assert len(list((tmp_path / "records").rglob("*.parquet"))) == 4
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == ["run-1.parquet"]
    assert sorted(row.case or "" for row in read_run(tmp_path).value) == ["a", "b", "early", "late"]


@pytest.mark.parametrize("next_one", [read_run, lambda store: open_run(store, "run-2").__enter__()])
def test_killed_between_the_one_file_and_its_parts_the_next_reader_or_writer_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_one: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(writer_module, "tidy", lambda place, files: None)
    with open_run(tmp_path) as writer:
        writer.append_records([record("run-1", case="0")])
        writer.append_records([record("run-1", case="1")])
    monkeypatch.undo()
    assert len(list((tmp_path / "records").rglob("*.parquet"))) == 3
    next_one(tmp_path)
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == ["run-1.parquet"]
    assert [row.case for row in read_run(tmp_path).value] == ["0", "1"]


def test_parts_are_kept_beside_a_broken_whole(tmp_path: Path) -> None:
    open_run(tmp_path).__enter__().append_records([record("run-1")])
    (part,) = (tmp_path / "records").rglob("*.parquet")
    part.with_name("run-1.parquet").write_bytes(b"cut short by a bad copy")
    found = read_run(tmp_path)
    assert (len(found.value), len(found.problems), part.exists()) == (1, 1, True)


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    with open_run(tmp_path, "run-1") as one, open_run(tmp_path, "run-11") as two:
        for number in range(4):
            for run_id, writer in (("run-1", one), ("run-11", two)):
                writer.append_samples([samples(run_id)])
                writer.append_records([record(run_id, case=str(number))])
    for run_id in ("run-1", "run-11"):
        assert [row.case for row in read_run(tmp_path, run_id).value] == ["0", "1", "2", "3"]
        assert len(read_samples(tmp_path, run_id).value) == 4


def break_off(writer: RunWriter, error: BaseException, before: Callable[[], object] = lambda: None) -> None:
    with writer:
        writer.append_records([record("run-1")])
        before()
        raise error


def test_ctrl_c_closes_the_run_which_takes_no_more(tmp_path: Path) -> None:
    writer = open_run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        break_off(writer, KeyboardInterrupt())
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == ["run-1.parquet"]
    writer.close()
    with pytest.raises(ValueError, match="run-1 is closed"):
        writer.append_records([record("run-1")])
    assert len(read_run(tmp_path).value) == 1


def test_a_close_that_fails_leaves_the_parts_and_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = partial(monkeypatch.setattr, StoreLocation, "publish", mock.Mock(side_effect=StoreFailedError("no space")))
    with pytest.raises(RuntimeError, match="the first") as error:
        break_off(open_run(tmp_path), RuntimeError("the first"), refuse)
    assert any("no space" in note for note in error.value.__notes__)
    assert len(read_run(tmp_path).value) == 1
