"""Temporary folders: gone at the end, left by a kill until the next start, and nothing else is ever removed."""

import os
import signal
from pathlib import Path

import pytest

from pairbench.config import load_config
from pairbench.own_folders import held_folder, is_held, sweep_folders
from pairbench.workflow.setup import open_context
from tests.builders import at_once

PREFIX = "pairbench-run-"


def killed_with_a_folder(base: Path) -> None:
    child = os.fork()
    if not child:
        with held_folder(base) as folder:
            (folder / "compiled").mkdir()
            (folder / "compiled" / "kernel").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_what_a_killed_process_left_is_removed_and_what_is_held_is_not(tmp_path: Path) -> None:
    killed_with_a_folder(tmp_path)
    (left,) = tmp_path.iterdir()
    with held_folder(tmp_path) as held:
        assert (is_held(left), is_held(held), is_held(tmp_path / "gone")) == (False, True, False)
        assert held.stat().st_mode & 0o777 == 0o700
        sweep_folders(tmp_path)
        assert list(tmp_path.iterdir()) == [held]
    assert not list(tmp_path.iterdir())


def test_what_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious, base = tmp_path / "precious", tmp_path / "tmp"
    precious.mkdir()
    (precious / "thesis").touch()
    base.mkdir()
    (base / f"{PREFIX}link").symlink_to(precious)
    (base / f"{PREFIX}file").touch()
    os.mkfifo(base / f"{PREFIX}pipe")
    (base / "pairbench-1000").mkdir()
    inside = base / f"{PREFIX}01234567"
    inside.mkdir()
    (inside / "link").symlink_to(precious)
    sweep_folders(base)
    assert (precious / "thesis").exists() and not inside.exists()
    others = base / f"{PREFIX}89abcdef"
    others.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    sweep_folders(base)
    names = {f"{PREFIX}89abcdef", f"{PREFIX}file", f"{PREFIX}link", f"{PREFIX}pipe", "pairbench-1000"}
    assert {path.name for path in base.iterdir()} == names


def test_many_that_make_and_sweep_at_once_lose_no_folder(tmp_path: Path) -> None:
    lost: list[Path] = []

    def work() -> None:
        for _ in range(50):
            sweep_folders(tmp_path)
            with held_folder(tmp_path) as folder:
                (folder / "a").touch()
                sweep_folders(tmp_path)
                if not (folder / "a").exists():
                    lost.append(folder)

    at_once(*[work] * 4)
    assert not lost and not list(tmp_path.iterdir())


def test_the_next_command_removes_the_cache_of_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed_with_a_folder(tmp_path)
    (left,) = tmp_path.iterdir()
    with open_context(load_config(tmp_path), signals=False) as context:
        assert not left.exists() and is_held(context.cache) and context.cache.parent == tmp_path
    assert not list(tmp_path.iterdir())
