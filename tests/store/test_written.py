"""Half-written files that a kill leaves are swept at the next start, if nobody holds them; no writer loses its file to a sweep."""

import fcntl
import os
import signal
import time
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from pairbench.site.build import publish
from pairbench.site.paths import File
from pairbench.store.files import sweep_temporary, write_whole
from pairbench.store.reader import read_run
from pairbench.store.user_cache import KeptValues
from pairbench.store.writer import spool_places, waiting
from tests.builders import at_once
from tests.store.rows import open_run, record


def kill_while_writing(path: Path) -> Path:
    """Have a process killed that has written half of a file, and return what it has left."""
    child = os.fork()
    if not child:
        with mock.patch("os.fsync", side_effect=lambda _: os.kill(os.getpid(), signal.SIGKILL)):
            write_whole(path, b"half")
    os.waitpid(child, 0)
    (left,) = path.parent.glob(".*.tmp")
    return left


def test_the_next_run_sweeps_the_whole_store_and_nothing_beside_its_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "records" / "device=cpu" / "month=2020-01", tmp_path / "accepted", tmp_path / "samples"]
    left = []
    for folder in folders:
        folder.mkdir(parents=True)
        left.append(kill_while_writing(folder / "a.parquet"))
    (folders[0] / ".probe-00000000.tmp").touch()  # as a kill leaves it between the probe and its end
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".a.tmp").touch()
    held = folders[1] / ".b.json.01234567.tmp"
    with held.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with open_run(tmp_path, "20260101T000000-a") as writer:
            writer.append_records([record(run_id="20260101T000000-a")])
        assert held.exists() and not any(path.exists() for path in left)
    assert sorted(path.name for path in tmp_path.rglob(".*")) == [".a.tmp", held.name]
    assert len(read_run(tmp_path).value) == 1


def test_a_site_and_a_cache_sweep_their_folder(tmp_path: Path) -> None:
    site, cache = tmp_path / "site", tmp_path / "cache"
    for folder, name in ((site, ".pairbench-site.json"), (cache, "tries.json")):
        folder.mkdir()
        if folder == site:
            publish(site, [File(path="index.html", content=b"<html>")])
        kill_while_writing(folder / name)
    (site / ".pairbench-new-01234567").mkdir()
    publish(site, [File(path="index.html", content=b"<html>")])
    KeptValues(cache / "tries.json", most=2).keep({"a": {}})
    assert sorted(path.name for path in tmp_path.rglob(".*")) == [".pairbench-site.json"]


def test_links_and_what_others_own_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x")
    (tmp_path / ".link.tmp").symlink_to(precious)
    (tmp_path / ".folder.tmp").mkdir()
    os.mkfifo(tmp_path / ".pipe.tmp")
    sweep_temporary([tmp_path, tmp_path / "nowhere"])
    (tmp_path / ".others.tmp").touch()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    sweep_temporary([tmp_path])
    assert len(list(tmp_path.iterdir())) == 5 and precious.read_text() == "x"


def test_without_locks_age_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    write_whole(tmp_path / "a", b"x")
    for name, age_s in ((".new.tmp", 60), (".old.tmp", 100_000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    sweep_temporary([tmp_path])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.tmp", "a"]


def test_a_writer_whose_file_is_swept_before_it_is_held_writes_it_again(tmp_path: Path) -> None:
    wrong: list[BaseException] = []
    until = time.monotonic() + 1.0

    def write(number: int) -> None:
        try:
            while time.monotonic() < until:
                write_whole(tmp_path / str(number), str(number).encode(), durable=False)
        except BaseException as error:  # noqa: BLE001 (for the test to see)
            wrong.append(error)

    def sweep() -> None:
        while time.monotonic() < until:
            sweep_temporary([tmp_path])

    at_once(*(partial(write, number) for number in range(3)), sweep)
    assert not wrong
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: name for name in "012"}


def test_an_empty_folder_of_the_spool_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spool = spool_places()[0] / "spool"
    spool.mkdir(mode=0o700, parents=True)
    for name in ("killed", "killed-while-writing", "has-rows"):
        (spool / name).mkdir(mode=0o700)
        (spool / name / ".owner").touch()
    kill_while_writing(spool / "killed-while-writing" / "spool.json")
    (spool / "has-rows" / "records").mkdir()
    assert list(waiting()) == []
    assert [path.name for path in spool.iterdir()] == ["has-rows"]
