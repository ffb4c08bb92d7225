"""A run that ends at any moment leaves whole batches, each once."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pairbench.errors import StoreError, StoreFailedError
from pairbench.store import writer as writer_module
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_run, read_samples
from pairbench.store.writer import RunWriter
from tests.store.rows import record, samples

BATCH = 3

# Forks for each run, so that thirty kills cost one start of Python. Says on stdout what is surely in the store.
WRITER = """
import os, sys
from pairbench.model.record import Record, Samples
from pairbench.store.schema import to_table
from pairbench.store.writer import RunWriter

def say(line):
    os.write(1, f"{line}\\n".encode())  # whole: an unbuffered print is several writes, and a kill would fall between

to_table([Record(run_id="warm-up")], Record)  # pyarrow imports pandas on first use, which takes longer than a whole run

for line in iter(sys.stdin.readline, ""):
    run_id, store = line.split()
    child = os.fork()
    if not child:
        say(f"pid {os.getpid()}")
        known = {"run_id": run_id, "device_name": "cpu", "suite": "s.py"}
        with RunWriter(store, run_id=run_id, device_slug="cpu", month="2026-01") as writer:
            for batch in range(6):
                rows = [Record(case=f"{batch}.{row}", status="measured", **known) for row in range(3)]
                writer.append_samples([
                    Samples(case=row.case, implementation="a", mode="eager", round=0, call_ns=(1.0, 2.0), **known)
                    for row in rows
                ])
                writer.append_records(rows)
                say(f"batch {batch}")
        say("closed")
        os._exit(0)
    os.waitpid(child, 0)
    say("end")
"""


def open_writer(store: Path, run_id: str = "run-1") -> RunWriter:
    return RunWriter(store, run_id=run_id, device_slug="cpu", month="2026-01")


def whole_batches(cases: list[str | None]) -> int:
    """Return how many batches there are, after checking that none is cut, doubled or missing from the middle."""
    count, rest = divmod(len(cases), BATCH)
    assert rest == 0
    assert cases == [f"{batch}.{row}" for batch in range(count) for row in range(BATCH)]
    return count


def test_killed_at_any_moment(tmp_path: Path) -> None:
    generator = random.Random(1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ends = {"before": 0, "in the middle": 0, "closed": 0}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        for number in range(30):
            store = tmp_path / str(number)
            process.stdin.write(f"run-1 {store}\n")
            process.stdin.flush()
            pid = int(process.stdout.readline().split()[1])
            # After some batches, and not after some time: how long a batch takes is the machine's affair.
            said = [process.stdout.readline() for _ in range(number % 7)]
            time.sleep(generator.uniform(0, 0.01))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            said += iter(process.stdout.readline, "end\n")
            sure = sum(line.startswith("batch") for line in said)
            ends["closed" if "closed\n" in said else "in the middle" if sure else "before"] += 1
            check(store, sure=sure)
        process.stdin.close()
    assert ends["in the middle"] >= 10, ends


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


def test_finished_batches_are_seen_while_the_run_goes_on(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        for number in range(3):
            writer.append_records([record("run-1", case=str(number))])
            assert pd.read_parquet(tmp_path / "records")["case"].tolist() == [str(seen) for seen in range(number + 1)]
    assert pd.read_parquet(tmp_path / "records")["case"].tolist() == ["0", "1", "2"]
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == ["run-1.parquet"]


def test_the_records_of_a_case_are_replaced_and_never_there_twice(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
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


def test_ctrl_c_closes_the_run(tmp_path: Path) -> None:
    def interrupted() -> None:
        with open_writer(tmp_path) as writer:
            writer.append_records([record("run-1")])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == ["run-1.parquet"]


def test_killed_between_the_one_file_and_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "tidy", lambda place, files: None)
    with open_writer(tmp_path) as writer:
        writer.append_records([record("run-1", case="0")])
        writer.append_records([record("run-1", case="1")])
    monkeypatch.undo()
    assert len(list((tmp_path / "records").rglob("*.parquet"))) == 3
    assert [row.case for row in read_run(tmp_path).value] == ["0", "1"]
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == ["run-1.parquet"]


def test_parts_are_kept_beside_a_broken_whole(tmp_path: Path) -> None:
    writer = open_writer(tmp_path).__enter__()
    writer.append_records([record("run-1")])
    (part,) = (tmp_path / "records").rglob("*.parquet")
    part.with_name("run-1.parquet").write_bytes(b"cut short by a bad copy")
    found = read_run(tmp_path)
    assert (len(found.value), len(found.problems)) == (1, 1)
    assert part.exists()


def test_the_next_writer_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.append_records([record("run-1")])
    (whole,) = (tmp_path / "records").rglob("*.parquet")
    doubled = whole.with_name("run-1.part-000001.parquet")
    doubled.write_bytes(whole.read_bytes())
    left, held = whole.with_name(".run-0.parquet.tmp"), whole.with_name(".run-5.parquet.tmp")
    for path in (left, held):
        path.write_bytes(b"half")
    with held.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as its writer does
        with open_writer(tmp_path, "run-2"):
            pass
    assert not doubled.exists()
    assert not left.exists()
    assert held.exists()


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    with open_writer(tmp_path, "run-1") as one, open_writer(tmp_path, "run-11") as two:
        for number in range(4):
            for run_id, writer in (("run-1", one), ("run-11", two)):
                writer.append_samples([samples(run_id)])
                writer.append_records([record(run_id, case=str(number))])
    for run_id in ("run-1", "run-11"):
        assert [row.case for row in read_run(tmp_path, run_id).value] == ["0", "1", "2", "3"]
        assert len(read_samples(tmp_path, run_id).value) == 4


def test_a_closed_run_takes_no_more(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.append_records([record("run-1")])
    writer.close()
    with pytest.raises(ValueError, match="run-1 is closed"):
        writer.append_records([record("run-1")])
    assert len(read_run(tmp_path).value) == 1


def refuse(self: StoreLocation, path: str, content: object) -> None:
    raise StoreFailedError("no space")


def test_a_failing_close_leaves_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_writer(tmp_path).__enter__()
    writer.append_records([record("run-1")])
    monkeypatch.setattr(StoreLocation, "publish", refuse)
    with pytest.raises(StoreFailedError, match="no space"):
        writer.close()
    assert len(read_run(tmp_path).value) == 1


def test_an_error_that_ended_a_run_is_not_hidden_by_its_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended() -> None:
        with open_writer(tmp_path) as writer:
            writer.append_records([record("run-1")])
            monkeypatch.setattr(StoreLocation, "publish", refuse)
            raise RuntimeError("the first")

    with pytest.raises(RuntimeError, match="the first") as error:
        ended()
    assert any("no space" in note for note in error.value.__notes__)
