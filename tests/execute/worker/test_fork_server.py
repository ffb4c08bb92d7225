"""The server that forks workers: it loads modules that ask for GPUs, and never asks a driver, which would not survive a fork."""

import os
import sys
from pathlib import Path

import pytest
import torch

from pairbench.execute.worker.fork_server import load


def test_no_module_asks_the_driver_as_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def driver() -> int:
        raise AssertionError

    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", driver, raising=False)
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "asks.py").write_text(
        "import os, torch\nFOUND = torch._C._cuda_getDeviceCount(), os.environ['PYTORCH_NVML_BASED_CUDA_CHECK']\n"
    )
    load("none_such", "asks")
    assert sys.modules.pop("asks").FOUND == (0, "1")
    assert torch._C._cuda_getDeviceCount is driver
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
