import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, subprocess, sys, tempfile
from pairbench.execute.orphans import enter_domain, what_holds
enter_domain()
kept, words = what_holds()
if not kept:
    sys.exit(3)
for attempt in (lambda: open(f"/proc/{os.getppid()}/mem", "rb"), lambda: os.kill(os.getppid(), 0)):
    try:
        attempt()
    except PermissionError:
        continue
    sys.exit(1 if "signal" in words else 0)
with tempfile.TemporaryDirectory() as folder:
    os.makedirs(f"{folder}/cache")
    open(f"{folder}/built", "w").close()
    os.replace(f"{folder}/built", f"{folder}/cache/built")
with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
    open(f"/proc/{child.pid}/mem", "rb").close()
    child.kill()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_a_process_in_its_domain_reaches_no_other_but_its_children() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    if done.returncode == 3:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 0
