from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.environment import Device, Environment, HostLoad
from pairbench.workflow import devices
from pairbench.workflow.devices import probe_device
from tests.analyze.test_records import ENVIRONMENT

GPU = Device(selector="cuda:0", kind="cuda", name="a GPU", uuid="GPU-1")
FOUND = {"copy_gbps": 3000.0}


@pytest.mark.parametrize(
    ("busy_cores", "foreign", "probes"),
    [(0.0, None, [False, True, False]), (4.0, None, [False, True] * 2), (0.0, [17], [False, True] * 2)],
)
def test_what_a_busy_host_gives_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_cores: float, foreign: list[int] | None, probes: list[bool]
) -> None:
    probed: list[bool] = []

    def probe_in(workers: Any, device: Device, *, ceilings: bool = True) -> Environment:
        probed.append(ceilings)
        found = replace(ENVIRONMENT, device=device, rest={})
        return found.observing(ceilings=FOUND if ceilings else {}, foreign_processes=foreign)

    class Workers:
        def __init__(self, context: Any, device: Device) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    class Watch:
        def begin(self, environment: Environment) -> HostLoad:
            return HostLoad(cores=4, before=busy_cores)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(devices, "probe_in", probe_in)
    monkeypatch.setattr(devices, "Workers", Workers)
    context: Any = None
    watch: Any = Watch()
    for _ in range(2):
        observed = probe_device(context, GPU, watch).observed
        assert observed["ceilings"] == FOUND and observed["load"]["before"] == busy_cores
    assert probed == probes
