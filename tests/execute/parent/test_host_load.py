"""How busy others keep the host, read from a folder that looks like /proc."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairbench.execute.parent.host_load import LoadMeter, count_cores, read_usage

TICKS = os.sysconf("SC_CLK_TCK")


class FakeProc:
    """A host of two processors, this process, a child of it that has a child, and somebody else's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.busy, self.idle = 0, 0
        self.processes = {os.getpid(): (1, 0), 70_001: (os.getpid(), 0), 70_002: (70_001, 0), 70_003: (1, 0)}
        (root / "sys").mkdir()
        self.write()

    def write(self) -> None:
        lines = [f"cpu  {self.busy} 0 0 {self.idle} 7 0 0 0 99 0", "cpu0 1 0 0 1 0 0 0", "cpu1 1 0 0 1 0 0 0", "ctxt 5"]
        (self.root / "stat").write_text("\n".join(lines))
        for pid, (parent, ticks) in self.processes.items():
            (self.root / str(pid)).mkdir(exist_ok=True)
            (self.root / str(pid) / "stat").write_text(
                f"{pid} (a) name) (x) S {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0"
            )


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("pairbench.execute.parent.host_load.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_what_others_use_is_everything_without_this_process_and_its_descendants(
    proc: FakeProc, clock: list[float]
) -> None:
    meter = LoadMeter(proc.root)
    clock[0] += 10
    proc.busy, proc.idle = 18 * TICKS, 2 * TICKS
    proc.processes |= {os.getpid(): (1, TICKS), 70_001: (os.getpid(), 2 * TICKS), 70_002: (70_001, 5 * TICKS)}
    proc.processes[70_003] = (1, 9 * TICKS)
    proc.write()
    assert meter.foreign_cores() == pytest.approx((18 - 8) / 10)


def test_each_reading_is_of_the_time_since_the_last(proc: FakeProc, clock: list[float]) -> None:
    meter = LoadMeter(proc.root)
    for busy, expected in ((20, 2.0), (20, 0.0), (25, 0.5)):
        clock[0] += 10
        proc.busy = busy * TICKS
        proc.write()
        assert meter.foreign_cores() == pytest.approx(expected)


def test_too_short_a_time_and_no_counters_say_nothing(proc: FakeProc, clock: list[float], tmp_path: Path) -> None:
    meter = LoadMeter(proc.root)
    clock[0] += 0.01
    assert meter.foreign_cores() is None and count_cores(proc.root) == 2
    none = tmp_path / "sys"
    assert LoadMeter(none).foreign_cores() is None and read_usage(none) is None
    assert count_cores(none) == (os.cpu_count() or 1)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux only")
def test_a_real_host_has_counters() -> None:
    first, second = read_usage(), read_usage()
    assert first is not None and second is not None
    assert second.busy_s >= first.busy_s > 0 and second.own_s >= first.own_s > 0
