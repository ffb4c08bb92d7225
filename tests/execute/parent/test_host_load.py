"""How busy others keep the host, read from a folder that looks like /proc."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairbench.execute.parent.lock import LoadMeter, count_cores, read_usage

TICKS = os.sysconf("SC_CLK_TCK")


class FakeProc:
    """A host of two processors, this process, a child of it that has a child, and somebody else's; and who asks how busy others are."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now = root, 100.0
        self.processes = {os.getpid(): (1, 0), 70_001: (os.getpid(), 0), 70_002: (70_001, 0), 70_003: (1, 0)}
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("pairbench.execute.parent.lock.time", clock)
        (root / "sys").mkdir()
        self._write(0, 0)
        self._meter = LoadMeter(root)

    def _write(self, busy_s: int, idle_s: int) -> None:
        ticks = f"{busy_s * TICKS} 0 0 {idle_s * TICKS} 7 0 0 0 99 0"
        (self.root / "stat").write_text(f"cpu  {ticks}\ncpu0 1 0 0 1 0 0 0\ncpu1 1 0 0 1 0 0 0\nctxt 5")
        for pid, (parent, own) in self.processes.items():
            (self.root / str(pid)).mkdir(exist_ok=True)
            (self.root / str(pid) / "stat").write_text(
                f"{pid} (a) name) (x) S {parent} 0 0 0 0 0 0 0 0 0 {own} 0 0 0 20 0"
            )

    def foreign_cores(self, seconds: float, busy_s: int = 0, idle_s: int = 0) -> float | None:
        """Return what is said so many seconds later, when all were busy for some seconds so far."""
        self.now += seconds
        self._write(busy_s, idle_s)
        return self._meter.foreign_cores()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    return FakeProc(tmp_path, monkeypatch)


def test_what_others_use_is_everything_without_this_process_and_its_descendants(proc: FakeProc) -> None:
    proc.processes |= {os.getpid(): (1, TICKS), 70_001: (os.getpid(), 2 * TICKS), 70_002: (70_001, 5 * TICKS)}
    proc.processes[70_003] = (1, 9 * TICKS)
    assert proc.foreign_cores(10, busy_s=18, idle_s=2) == pytest.approx((18 - 8) / 10)


def test_each_reading_is_of_the_time_since_the_last(proc: FakeProc) -> None:
    assert [proc.foreign_cores(10, busy_s) for busy_s in (20, 20, 25)] == pytest.approx([2.0, 0.0, 0.5])


def test_too_short_a_time_and_no_counters_say_nothing(proc: FakeProc, tmp_path: Path) -> None:
    assert proc.foreign_cores(0.01) is None and count_cores(proc.root) == 2
    none = tmp_path / "sys"
    assert LoadMeter(none).foreign_cores() is None and read_usage(none) is None
    assert count_cores(none) == (os.cpu_count() or 1)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux only")
def test_a_real_host_has_counters() -> None:
    first, second = read_usage(), read_usage()
    assert first is not None and second is not None
    assert second.busy_s >= first.busy_s > 0 and second.own_s >= first.own_s > 0
