"""Ceilings that are kept between runs: of the same device and environment, measured on a quiet host, or not at all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.environment import Device, Environment
from pairbench.model.load import HostLoad
from pairbench.workflow import ceilings
from pairbench.workflow.ceilings import KeptCeilings, probe_device

GPU = Device(selector="cuda:0", kind="cuda", name="a GPU", uuid="GPU-1")
FOUND = {"ceilings": {"copy_gbps": 3000.0}, "ceilings_at": "2026-11-24T12:00:00+00:00"}


def environment(**changes: Any) -> Environment:
    values: dict[str, Any] = {
        "device": GPU,
        "driver": "580",
        "cuda": "13",
        "cudnn": None,
        "torch": "2.13",
        "triton": None,
        "python": "3.11",
        "hostname": "here",
        "cpu": "a CPU",
        "rest": {"observed": dict(FOUND)},
    }
    return Environment(**{**values, **changes})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pairbench" / "ceilings.json"


def test_they_are_of_one_device_under_one_environment(file: Path) -> None:
    KeptCeilings.of_user().put(environment())
    kept = KeptCeilings.of_user()
    assert kept.get(environment(hostname="there")) == FOUND, "a GPU has a name of its own"
    assert kept.get(environment(driver="590")) is None
    assert kept.get(environment(device=replace(GPU, uuid="GPU-2"))) is None
    cpu = Device(selector="cpu", kind="cpu", name="a CPU")
    kept.put(environment(device=cpu))
    assert kept.get(environment(device=cpu)) == FOUND == kept.get(environment())
    assert kept.get(environment(device=cpu, hostname="there")) is None
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 3}', "\udcff", "[" * 100_000])
def test_a_damaged_file_is_none(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_bytes(text.encode(errors="surrogateescape"))
    kept = KeptCeilings.of_user()
    assert kept.get(environment()) is None
    kept.put(environment())
    assert kept.get(environment()) == FOUND


def test_a_folder_that_cannot_be_written_is_no_error(file: Path) -> None:
    file.parent.write_text("a file where the folder should be")
    KeptCeilings.of_user().put(environment())
    assert KeptCeilings.of_user().get(environment()) is None


@pytest.mark.parametrize(("busy_cores", "foreign", "kept"), [(0.0, None, True), (4.0, None, False), (0.0, [17], False)])
def test_what_a_busy_host_gives_is_not_kept(
    file: Path, monkeypatch: pytest.MonkeyPatch, busy_cores: float, foreign: list[int] | None, kept: bool
) -> None:
    found = environment(rest={"observed": {**FOUND, "foreign_processes": foreign}})
    monkeypatch.setattr(ceilings, "probe_environment", lambda context, device, known: found)

    class Watch:
        def begin(self, environment: Environment) -> HostLoad:
            return HostLoad(cores=4, before=busy_cores)

    context: Any = None
    watch: Any = Watch()
    assert probe_device(context, GPU, watch)[0] == found
    assert (KeptCeilings.of_user().get(found) is not None) is kept
