"""What is kept between commands in the user's cache folder: it may be lost or damaged, and nothing else may happen."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pairbench.model.environment import HostLoad
from pairbench.store.user_cache import KeptCeilings, KeptValues, kept_bytecode, kept_compilations, user_folder
from tests.analyze.test_records import ENVIRONMENT


def test_values_are_kept_beside_others_and_the_oldest_go(tmp_path: Path) -> None:
    kept = KeptValues(tmp_path / "below" / "values.json", most=2)
    kept.keep({"one": {"x": 1}})
    kept.keep({"two": {"x": 2}, "three": {"x": 3}})
    assert kept.read() == {"two": {"x": 2}, "three": {"x": 3}}
    kept.keep({"two": {"x": 4}})
    kept.keep({"four": {"x": 5}})
    assert kept.read() == {"two": {"x": 4}, "four": {"x": 5}}, "what was kept last is the newest"
    assert [file.name for file in (tmp_path / "below").iterdir()] == ["values.json"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"format": 1, "values": {"a": {"b"', id="cut off"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[1, 2]", id="a list"),
        pytest.param(b'{"format": 0, "values": {"a": {"b": 1}}}', id="another format"),
        pytest.param(b'{"format": 1, "values": 7}', id="no values"),
        pytest.param(b"[" * 100_000, id="nested too deep"),
    ],
)
def test_a_damaged_file_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    kept = KeptValues(tmp_path / "values.json", most=2)
    (tmp_path / "values.json").write_bytes(content)
    assert kept.read() == {}
    kept.keep({"one": {"x": 1}})
    assert kept.read() == {"one": {"x": 1}}


def test_the_folder_is_the_users(tmp_path: Path) -> None:
    assert user_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "pairbench"
    home = Path("~/.cache/pairbench").expanduser()
    assert user_folder({}) == user_folder({"XDG_CACHE_HOME": ""}) == user_folder({"XDG_CACHE_HOME": "here"}) == home


def test_ceilings_are_kept_by_device_driver_and_torch(tmp_path: Path) -> None:
    ceilings = {"ceilings": {"copy_gbps": 4000.0}, "nvml": "available"}
    measured = replace(ENVIRONMENT, driver="1", torch="2.6", rest={"flags": {}, "observed": ceilings})
    bare = replace(measured, rest={"flags": {}, "observed": {"ceilings": {}, "nvml": "available"}})
    kept = KeptCeilings(tmp_path)
    assert kept.put_in(bare) is None
    kept.keep(bare, HostLoad(cores=4, before=0.0))
    assert kept.put_in(bare) is None, "there was nothing to keep"
    kept.keep(measured, HostLoad(cores=4, before=0.0))
    assert kept.put_in(bare) == measured
    others: list[dict[str, Any]] = [{"driver": "2"}, {"torch": "2.7"}, {"device": replace(bare.device, uuid="GPU-2")}]
    assert [kept.put_in(replace(bare, **other)) for other in others] == [None] * 3
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("4000.0", '"fast"'))
    assert kept.put_in(bare) is None


def test_what_was_compiled_long_ago_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = kept_compilations()
    assert folder is not None
    for name, days in (("old", 15), ("young", 13)):
        (folder / "triton" / name).mkdir(parents=True)
        (folder / "triton" / name / "kernel.cubin").write_text("")
        then = time.time() - days * 24 * 3600
        os.utime(folder / "triton" / name, (then, then))
    assert kept_compilations() == folder
    assert [entry.name for entry in (folder / "triton").iterdir()] == ["young"]


@pytest.mark.parametrize("home", [True, False])
def test_where_nothing_can_be_written_or_without_a_home_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: bool
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Path, "expanduser", mock.Mock(side_effect=RuntimeError("Could not determine home directory.")))
    kept = KeptValues((tmp_path / "file" if home else user_folder({})) / "values.json", most=2)
    kept.keep({"one": {"x": 1}})
    assert kept.read() == {}
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert kept_compilations() is None


def test_bytecode_is_kept_for_each_python_until_nobody_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = kept_bytecode()
    monkeypatch.setattr("sys.prefix", "/another")
    other = kept_bytecode()
    assert mine and other and mine.parent == other.parent and mine != other
    old = time.time() - 15 * 24 * 3600
    for folder in (mine, other):
        os.utime(folder, (old, old))
    assert kept_bytecode() == other
    assert other.exists() and not mine.exists()
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert kept_bytecode() is None
