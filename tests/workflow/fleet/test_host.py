"""Whether a host is fit for a unit, from made-up loads and processes."""

import pytest

from pairbench.features.fleet import worker
from pairbench.features.fleet.worker import BusyWatch, processes_of
from pairbench.model.unit import Offer

GPU = Offer(identity="GPU-1", kind="cuda", model="nvidia-h200", selector="cuda:0", environment_hash="e")
CPU = Offer(identity="cpu-here", kind="cpu", model="some-cpu", selector="cpu", environment_hash="e")
PROCESSES = [("GPU-1", "4711"), ("GPU-2", "4712")]


def watch(
    monkeypatch: pytest.MonkeyPatch, offer: Offer, *, busy: float, processes: list[tuple[str, str]]
) -> str | None:
    monkeypatch.setattr("pairbench.features.fleet.worker.LoadMeter.foreign_cores", lambda _: busy)
    monkeypatch.setattr(worker, "count_cores", lambda: 8)
    monkeypatch.setattr(worker, "compute_processes", lambda: processes)
    return BusyWatch((offer,)).held_up()


def test_what_nvidia_smi_prints() -> None:
    assert processes_of("GPU-1, 4711\nGPU-2, 4712\n") == PROCESSES
    assert processes_of("No running processes found\n[N/A], [N/A]\n") == []


def test_a_quiet_host_takes_units(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, CPU, busy=0.5, processes=PROCESSES) is None
    assert watch(monkeypatch, GPU, busy=4.0, processes=PROCESSES[1:]) is None


def test_a_host_with_other_work_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, CPU, busy=4.0, processes=[]) == "4.0 of 8 cores are busy with other work"
    assert watch(monkeypatch, GPU, busy=0.0, processes=PROCESSES) == "processes 4711 compute on its GPU"
