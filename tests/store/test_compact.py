"""Old records in fewer files: every reader finds what it found before, whatever is killed, damaged, copied or done at the same time."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.errors import StoreFailedError
from pairbench.features.attempt.attempts import NewestRuns
from pairbench.model.record import Record, Series
from pairbench.store import compacted, upkeep
from pairbench.store.compacted import INDEX
from pairbench.store.location import StoreLocation
from pairbench.store.reader import (
    RunIndex,
    WholeStore,
    read_frame,
    read_records,
    read_run,
    read_samples,
    read_series,
    runs,
)
from pairbench.store.reading import dataset_files, read_each, stored_files
from pairbench.store.upkeep import compact
from pairbench.store.writer import RunWriter, Spool, push, waiting, write_run
from tests.builders import CASES, at_once, by_run, make_run, run_id_of, write_runs
from tests.faults.kill_at import killed_at, lines_of
from tests.store.rows import samples

RUNS = 10
COLUMNS = ("run_id", "case", "implementation", "call_p50_ns", "commit", "device_name")
IDENTITY = ["run_id", "device_name", "case", "implementation"]
HERE: dict[str, Any] = {"device_slug": "nvidia-h200", "month": "2024-01"}


def a_run(number: int, **changes: Any) -> tuple[Record, ...]:
    """Return a run whose values are like no other's, on two device models in turn, or on both."""
    names = ("NVIDIA H200",) if number % 3 else ("NVIDIA H200", "NVIDIA H100")
    rows = [row for name in names for row in make_run(number, cv=0.01 * (number + 1), device_name=name, **changes)]
    return tuple(rows)


def write(folder: str | Path, numbers: Sequence[int] = range(RUNS)) -> StoreLocation:
    write_runs(folder, *(a_run(number) for number in numbers))
    return StoreLocation.of(folder)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of a month that is not over; each test has a copy."""
    folder = tmp_path_factory.mktemp("sound") / "store"
    write(folder)
    for run_id in ("20240101T000000-aaaaaa", "20240101T000001-aaaaaa"):
        write_run(folder, run_id=run_id, records=(), samples=[samples(run_id)], **HERE)
    return folder


@pytest.fixture
def place(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    monkeypatch.setattr(upkeep, "AT_LEAST", 2)
    return StoreLocation.of(shutil.copytree(sound, tmp_path / "store"))


def merge(place: StoreLocation, keep: int = 2) -> int:
    """Compact the store and return by how many its files have become fewer."""
    found = list(compact(place, keep=keep))
    assert not [problem for one in found for problem in one.problems]
    return sum(one.files for one in found)


def merge_all(place: StoreLocation, expected: Any, *, files: int) -> None:
    """Compact all, after which nothing is left to do, and readers find what they found."""
    merge(place, keep=0)
    assert merge(place, keep=0) == 0 and len(layout(place)) == files
    assert same(rows_of_all(place), expected)


def answers(place: StoreLocation) -> dict[str, Any]:
    """Return what every reader says, each row of each run in its order."""
    index = RunIndex.of_store(place)
    heads = list(index)
    whole = WholeStore(place, COLUMNS)
    every, frame = read_records(place, {head.run_id for head in heads}), read_frame(place)
    assert [*index.problems, *whole.problems, *every.problems, *frame.problems] == []
    return rows_of_all(place) | {
        "every column": frame.value.astype(str).to_dict("list"),
        "runs": runs(place).value,
        "heads": [replace(head, names=frozenset()) for head in heads],
        "ids": dataset_files(place, "records").run_ids,
        "keys": {
            run: sorted((row["case"], row["mode"]) for row in rows)
            for run, rows in index.keys(heads, ("case", "mode")).items()
        },
        "columns": index.columns(heads, ("run_id", "case")),
        "records": every.value,
        "one by one": [read_run(place, head.run_id).value for head in heads],
        "of a run": index.records(heads[-1:], cases=[CASES[0]]).value,
        "by operator": dict(whole.by_operator(COLUMNS)),
        "by run": dict(by_run(whole, COLUMNS)),
        "last": dict(by_run(WholeStore(place, COLUMNS, last=7), COLUMNS)),
        "newest": NewestRuns(place).of({s for row in read_run(place).value if (s := Series.of(row))}),
    }


def rows_of_all(place: StoreLocation) -> dict[str, Any]:
    frame = read_frame(place, columns=COLUMNS)
    series = read_series(place, where={"case": CASES[1], "implementation": "fused"})
    assert (*frame.problems, *series.problems) == ()
    return {"frame": frame.value.astype(str).to_dict("list"), "series": series.value}


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # in which NaN is NaN


def layout(place: StoreLocation) -> list[str]:
    return [file.path[len(place.root) + 1 :] for file in place.files("records")]


def compacted_file(place: StoreLocation) -> Path:
    """Return the compacted file of the device model of which every run has records."""
    (path,) = [Path(place.root, name) for name in layout(place) if "compact-" in name and "h200" in name]
    return path


def test_every_reader_finds_what_it_found_and_done_again_nothing_is_done(place: StoreLocation) -> None:
    before = answers(place)
    files = len(layout(place))
    kept = {path: path.read_bytes() for path in Path(place.root, "samples").rglob("*.parquet")}
    assert merge(place) == files - len(layout(place)) == 8
    after = answers(place)
    for name, value in before.items():
        assert same(after[name], value), name
    assert Counter(file.is_compacted for file in place.files("records")) == {True: 2, False: 4}
    assert {path: path.read_bytes() for path in kept} == kept, "samples stay as they are"
    assert len(read_samples(place, "20240101T000001-aaaaaa").value) == 1
    times = {path: Path(place.root, path).stat().st_mtime_ns for path in layout(place)}
    assert merge(place) == 0
    assert times == {path: Path(place.root, path).stat().st_mtime_ns for path in layout(place)}


def test_a_month_that_is_not_over_waits_for_some_runs(place: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    merge(place, keep=2)
    monkeypatch.undo()
    one = len(layout(place))
    write(place.root, [10, 11, 13])  # three more are old now, and that is too few
    assert merge(place, keep=2) == 0 and len(layout(place)) == one + 3
    row = make_run(31 * 24 + 1)[0]
    write_run(place, run_id=row.run_id, device_slug="nvidia-h200", month="2024-02", records=[row], samples=())
    assert merge(place, keep=1)
    months = [path.partition("month=")[2][:7] for path in layout(place) if "h200" in path]
    assert months == ["2024-01", "2024-02"], "now the month is over"


def test_other_tools_read_it(place: StoreLocation) -> None:
    before = pd.read_parquet(Path(place.root) / "records")
    merge(place, keep=0)
    after = pd.read_parquet(Path(place.root) / "records")
    assert set(after.columns) - set(before.columns) == {compacted.ROW}
    columns = [*IDENTITY, "call_p50_ns", "device", "month"]
    ordered = [
        frame[columns].astype({"device": str, "month": str}).sort_values(IDENTITY).reset_index(drop=True)
        for frame in (before, after)
    ]
    pd.testing.assert_frame_equal(*ordered)


def test_runs_that_were_never_closed_and_a_file_above_the_folders_stay(place: StoreLocation) -> None:
    row = replace(make_run(1)[0], run_id="20240101T003000-dddddd")
    writer = RunWriter(place, run_id=row.run_id, **HERE).__enter__()
    writer.append_records([row])
    before = rows_of_all(place)
    merge(place, keep=0)
    assert same(rows_of_all(place), before)
    (part,) = [Path(file.path) for file in place.files("records") if file.is_part]
    shutil.copy(part, Path(place.root, "records", f"{row.run_id}.parquet"))
    both = rows_of_all(place)
    writer.close()
    assert same(rows_of_all(place), both) and merge(place, keep=0) == 1 and len(layout(place)) == 3


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_line_no_row_is_lost_or_doubled(place: StoreLocation, sound: Path, times: int) -> None:
    before = rows_of_all(place)["frame"]
    merge(place)
    done = layout(place)

    def restore() -> None:
        shutil.rmtree(place.root)
        shutil.copytree(sound, place.root)

    def work() -> None:
        list(compact(place, keep=2))

    restore()
    parts = ("store/upkeep", "store/files", "store/compacted", "store/location")
    lines = lines_of(work, *parts)
    met = 0
    for line in range(1 + lines // (2 * times), lines + 1, 1 + lines // times):
        restore()
        met += killed_at(line, work, *parts)
        assert same(rows_of_all(place)["frame"], before), f"killed before line {line} of {lines}"
        work()
        assert layout(place) == done, f"killed before line {line} of {lines}"
        assert same(rows_of_all(place)["frame"], before)
        assert not list(Path(place.root).rglob(".*.tmp"))
    assert met > times // 2


def all_originals(sound: Path, _: Path) -> Path:
    return sound


def a_part(_: Path, aside: Path) -> Path:
    row = a_run(1)[0]
    RunWriter(aside, run_id=row.run_id, **HERE).__enter__().append_records([row])
    return aside


@pytest.mark.parametrize(("come_back", "fewer"), [(all_originals, 10), (a_part, 1)])
def test_originals_and_parts_that_come_back_are_read_once_and_go(
    place: StoreLocation, sound: Path, tmp_path: Path, come_back: Callable[[Path, Path], Path], fewer: int
) -> None:
    """As rsync does from a store that was not compacted, and to one."""
    before = rows_of_all(place)
    merge(place)
    done = layout(place)
    shutil.copytree(come_back(sound, tmp_path / "aside"), place.root, dirs_exist_ok=True)
    assert same(rows_of_all(place), before)
    assert merge(place) == fewer
    assert layout(place) == done and same(rows_of_all(place), before)


def test_two_stores_that_were_compacted_become_one(place: StoreLocation, tmp_path: Path) -> None:
    other = write(tmp_path / "other", range(4, RUNS + 3))
    merge(place, keep=1)
    merge(other, keep=3)
    shutil.copytree(other.root, place.root, dirs_exist_ok=True)
    expected = rows_of_all(write(tmp_path / "plain", range(RUNS + 3)))
    assert same(rows_of_all(place), expected)
    merge_all(place, expected, files=2)


def test_later_runs_join_the_file_of_their_month_and_who_listed_before_reads_all_the_same(place: StoreLocation) -> None:
    """The files that were listed are gone; their rows are found, each run once; also where they were compacted already."""
    columns = IDENTITY[:3]
    for numbers, keep in ((range(0), 2), (range(RUNS, RUNS + 6), 0)):
        write(place.root, numbers)
        expected = rows_of_all(place)
        listed = dataset_files(place, "records")
        index = RunIndex.of_store(place)
        merge(place, keep=keep)
        found = read_each(place, "records", listed, lambda opened: opened.read(columns))
        assert found.problems == ()
        rows = pa.concat_tables(found.value.values()).to_pylist()
        wanted = zip(*(expected["frame"][name] for name in columns), strict=True)
        assert Counter(tuple(row.values()) for row in rows) == Counter(wanted)
        assert [head.run_id for head in index] == sorted({row["run_id"] for row in rows}, reverse=True)
        assert same(rows_of_all(place), expected)
    merge_all(place, expected, files=2)  # both months are this one, and nothing is kept: one file a device model


def test_readers_beside_compacting_find_each_row_once(place: StoreLocation) -> None:
    expected = Counter(map(str, read_frame(place, columns=IDENTITY).value.to_dict("records")))
    wrong: list[str] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            frame, problems = read_frame(place, columns=IDENTITY)
            if problems or Counter(map(str, frame.to_dict("records"))) != expected:
                wrong.append(f"{problems} {len(frame)}")

    def work() -> None:
        for keep in (8, 5, 2, 0):
            list(compact(place, keep=keep))
        stop.set()

    at_once(look, look, work)
    assert wrong == [] and sum(expected.values()) == len(read_frame(place).value)


def test_two_that_compact_at_once_lose_nothing(place: StoreLocation) -> None:
    expected = rows_of_all(place)
    at_once(*(lambda keep=keep: list(compact(place, keep=keep)) for keep in (0, 2, 4)))
    assert same(rows_of_all(place), expected)
    merge_all(place, expected, files=2)


def test_columns_of_another_form_are_not_mixed(place: StoreLocation) -> None:
    """Two versions in one month become two files, each as its version wrote it."""
    for name in layout(place)[::2]:
        table = pq.ParquetFile(Path(place.root, name)).read()
        metadata = {**table.schema.metadata, b"pairbench.schema_version": b"6"}
        pq.write_table(table.drop_columns(["saved_bytes"]).replace_schema_metadata(metadata), Path(place.root, name))
    merge_all(place, rows_of_all(place), files=3)
    assert sum("h200" in name for name in layout(place)) == 2


def test_a_file_holds_no_more_than_readers_take(place: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MOST_ROWS", 20)
    merge_all(place, rows_of_all(place), files=3)
    files = stored_files(place, "records").files
    assert all(compacted.CompactedFile(place, file, "records").num_rows <= 20 for file in files)


def test_one_case_reads_one_group(place: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "GROUP_ROWS", 8)
    merge_all(place, rows_of_all(place), files=2)
    (file,) = [one for one in stored_files(place, "records").files if "h200" in one.path]
    opened = compacted.CompactedFile(place, file, "records")
    assert opened.metadata.num_row_groups == 2
    table = opened.read(["case"], [CASES[0]])
    assert set(table.column("case").to_pylist()) == {CASES[0]} and len(table) == opened.num_rows / 2


def test_a_push_into_a_compacted_run_adds_what_is_missing(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    merge(place, keep=0)
    before = len(read_frame(place).value)
    more = [replace(row, case=f"more[{row.case}]") for row in make_run(4)]
    spool = Spool(place, "late", lambda _: None)
    spool.why = "it was away"
    rows = [*make_run(4, cv=0.05), *more]
    write_run(tmp_path / "aside", run_id=more[0].run_id, records=rows, samples=(), **HERE)
    (file,) = (tmp_path / "aside").rglob("records/**/*.parquet")
    spool.publish(f"{place.root}/records/device=nvidia-h200/month=2024-01/{file.name}", pa.py_buffer(file.read_bytes()))
    spool.close()
    for _ in range(2):
        for one in waiting():
            push(one, place)
        frame = read_frame(place).value
        assert len(frame) == before + len(more)
        assert {case for case in frame["case"] if case.startswith("more[")} == {row.case for row in more}
    list(compact(place, keep=0))
    assert len(read_frame(place).value) == len(frame) and len(layout(place)) == 2
    assert not frame.duplicated(IDENTITY).any()


def test_the_index_may_be_missing_wrong_or_damaged(place: StoreLocation) -> None:
    merge(place)
    before = rows_of_all(place)
    index = Path(place.root, INDEX)
    sound = index.read_bytes()
    for content in (b"", b"{", b"[]", b'{"records/x.parquet": {"a": 1}}', sound.replace(b": 4", b": 5"), b"null"):
        index.write_bytes(content)
        assert same(rows_of_all(place), before), content
    index.unlink()
    assert same(rows_of_all(place), before)
    assert merge(place) == 0 and index.read_bytes() == sound


def test_a_damaged_file_is_named_and_costs_only_itself(place: StoreLocation, sound: Path) -> None:
    merge(place)
    path = compacted_file(place)
    content = path.read_bytes()
    # The checksum of the whole file is not asked where groups and footer have their own.
    whole = content.rindex(b"pairbench:crc32:")
    spots = {*range(10, len(content), len(content) // 10), len(content) - 3} - {*range(whole, whole + 20)}
    for spot in sorted(spots, reverse=True):
        flipped = bytearray(content)
        flipped[spot] ^= 4
        path.write_bytes(flipped)
        frame, problems = read_frame(place)
        assert len(problems) == 1 and problems[0].startswith(str(path)) and "left out" in problems[0]
        assert len(frame) and run_id_of(0) not in set(frame[frame["device_name"] == "NVIDIA H200"]["run_id"])
        found = list(compact(place, keep=2))
        assert [str(path) in problem for one in found for problem in one.problems] in ([True], [])
        assert path.exists(), "what is damaged is somebody's"
    shutil.copytree(sound, place.root, dirs_exist_ok=True)
    list(compact(place, keep=2))
    own = {file.run_id for file in place.files("records") if not file.is_compacted and "h200" in file.path}
    assert own == {run_id_of(number) for number in range(RUNS)}, "originals beside a damaged file are not deleted"


def test_a_store_that_does_not_give_back_what_it_took_keeps_its_files(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = layout(place)
    real = StoreLocation.publish

    def publish(location: StoreLocation, path: str, content: pa.Buffer) -> None:
        changed = bytearray(content)
        changed[500] ^= 1
        real(location, path, pa.py_buffer(changed))

    monkeypatch.setattr(StoreLocation, "publish", publish)
    with pytest.raises(StoreFailedError, match="cannot be read back"):
        list(compact(place, keep=0))
    assert set(before) <= set(layout(place))


@pytest.mark.parametrize("version", ["v1", "v3"])
def test_files_of_old_versions_stay_for_columns_are_derived_of_their_samples(tmp_path: Path, version: str) -> None:
    store = shutil.copytree(Path(__file__).parent / "data" / version, tmp_path / "store")
    before = {path: path.read_bytes() for path in store.rglob("*.parquet")}
    assert list(compact(StoreLocation.of(store), keep=0)) == [] and before
    assert before == {path: path.read_bytes() for path in store.rglob("*.parquet")}
