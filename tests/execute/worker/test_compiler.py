"""torch.compile's limits hold whoever loads the compiler, and nobody loads it who does not compile."""

import subprocess
import sys

FIRST_CALL_COMPILES = """
import sys
import torch
import pairbench.execute.worker.stages
from pairbench.execute.worker.stages import reset_compiler

reset_compiler(needed=False)
assert "torch._dynamo" not in sys.modules, "1.5 s for every worker"


def call(x):
    return torch.compile(lambda x: x + 1, backend="eager")(x)


call(torch.ones(2))
print(torch._dynamo.config.recompile_limit, torch._dynamo.config.fail_on_recompile_limit_hit)
"""


def test_the_limits_bind_the_first_call_that_compiles() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CALL_COMPILES], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["64", "True"], done.stderr
