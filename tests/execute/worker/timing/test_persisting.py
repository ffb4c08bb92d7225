"""Lines set aside in the L2: given back where a runtime is there and some call may have set lines aside, else nothing happens."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from pairbench.execute.worker.timing import timers


class FakeRuntime:
    def __init__(self, limit: int, error: int = 0) -> None:
        self.limit, self.error, self.resets = limit, error, 0

    def cudaDeviceGetLimit(  # noqa: N802 (the name is CUDA's)
        self, target: Any, which: int
    ) -> int:
        assert which == 6
        ctypes.cast(target, ctypes.POINTER(ctypes.c_size_t))[0] = self.limit
        return self.error

    def cudaCtxResetPersistingL2Cache(self) -> int:  # noqa: N802
        self.resets += 1
        return 0


@pytest.mark.parametrize(("limit", "error", "resets"), [(0, 0, 0), (1 << 20, 0, 1), (1 << 20, 100, 0)])
def test_only_lines_that_may_be_there_are_given_back(
    monkeypatch: pytest.MonkeyPatch, limit: int, error: int, resets: int
) -> None:
    runtime = FakeRuntime(limit, error)
    monkeypatch.setattr(timers, "open_runtime", lambda: (runtime, None))
    assert timers.reset_persisting() is bool(resets)
    assert runtime.resets == resets


def test_without_a_runtime_nothing_happens_and_the_reason_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 0000 00:00 0    /usr/lib/libc.so.6\n")
    found = timers.open_runtime(maps)
    assert found == (None, "no libcudart is loaded")
    assert "cannot be read" in str(timers.open_runtime(tmp_path / "none")[1])
    monkeypatch.setattr(timers, "open_runtime", lambda: found)
    assert timers.reset_persisting() is False


def test_a_runtime_without_the_call_is_named(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    library = next(
        line.split(maxsplit=5)[5]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libc.so" in line or "/libm.so" in line
    )
    (tmp_path / "libcudart.so.1").symlink_to(library)
    maps.write_text(f"7f00-7f01 r-xp 0000 00:00 0    {tmp_path}/libcudart.so.1\n")
    runtime, why = timers.open_runtime(maps)
    assert runtime is None and str(why).endswith("has no cudaDeviceGetLimit")
