"""Watching and recording operators: the compiler is not loaded for that, and what is compiled stays so."""

import subprocess
import sys

import pytest
import torch

from pairbench.execute.worker.profile.memory import count_ops

_WATCHED = """
import sys, torch
from torch.profiler import ProfilerActivity
from pairbench.execute.worker.profile.memory import count_ops
from pairbench.execute.worker.profile.trace import raw_trace
x = torch.ones(3)
assert count_ops(lambda: (x + 1) * 2)[0] == 2
events = raw_trace(lambda: x + 1, (ProfilerActivity.CPU,), memory=True)
assert {"aten::add", "[memory]"} <= {event.get("name") for event in events}
assert "torch._dynamo" not in sys.modules
compiled = torch.compile(lambda x: (x + 1) * 2, backend="eager")
compiled(x)
assert "torch._dynamo" in sys.modules
from torch._dynamo.utils import counters
before = counters["frames"]["total"]
assert count_ops(lambda: (x + 1) * 2)[0] == 2
assert count_ops(lambda: compiled(x))[0] == 2
assert counters["frames"]["total"] == before, "what watches was compiled, or the call was compiled anew"
"""


@pytest.mark.slow
def test_watching_loads_no_compiler_and_is_not_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", _WATCHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_modes_may_be_nested() -> None:
    x = torch.ones(3)
    assert count_ops(lambda: count_ops(lambda: x + 1)) == (1, False)
