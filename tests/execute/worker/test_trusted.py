import functools
import subprocess
import sys

import pynvml
import pytest

from pairbench.execute.worker.trusted import watch


@pytest.mark.parametrize(
    "name",
    [
        *("SetGpuLockedClocks", "ResetGpuLockedClocks", "SetApplicationsClocks", "SetMemoryLockedClocks"),
        *("SetPowerManagementLimit", "SetPersistenceMode", "WorkloadPowerProfileSetRequestedProfiles"),
    ],
)
def test_what_would_change_a_gpu_is_refused(name: str) -> None:
    words = f"^nvmlDevice{name} would change the GPU for everything that is timed on it; .* before the run$"
    with pytest.raises(PermissionError, match=words):
        getattr(pynvml, f"nvmlDevice{name}")(None, 1980, 1980)


def test_readings_are_not_refused() -> None:
    refused = {name for name, value in vars(pynvml).items() if isinstance(value, functools.partial)}
    assert refused and not any("Get" in name for name in refused)


def test_a_reading_that_was_replaced_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch.changed() == []
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _: 0)
    assert watch.changed() == ["pynvml.nvmlDeviceGetPowerUsage"]


_AUDITS = """
import sys
import torch
sys.version_info = (3, 12, 0, "final", 0)
import pairbench.execute.worker.trusted
import filelock
"""


def test_filelock_which_the_compiler_loads_may_add_its_audit_hook() -> None:
    """It adds one from Python 3.12 on, so every suite that compiles was refused there."""
    done = subprocess.run([sys.executable, "-c", _AUDITS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
