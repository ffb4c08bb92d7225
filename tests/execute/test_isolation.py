"""Processes that are kept from others, and in isolation from the network and from files."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pairbench.execute.isolation import VARIABLE, can_be_kept_from, isolated_environment

SCRIPT = """
import os, signal, subprocess, sys, tempfile
from pairbench.execute.isolation import enter, what_holds
enter()
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


ISOLATED = """
import errno, os, pathlib, shutil, socket, sys, tempfile
from pairbench.execute.isolation import enter
enter()
outside = pathlib.Path(sys.argv[1])
def refused(attempt):
    try:
        attempt()
    except OSError as error:
        return error.errno in (errno.EACCES, errno.ENETUNREACH, errno.EXDEV)
    return False
attempts = {
    "made": lambda: (outside / "new").write_text("x"),
    "changed": lambda: (outside / "file").write_text("x"),
    "cut": lambda: os.truncate(outside / "file", 0),
    "removed": lambda: (outside / "file").unlink(),
    "moved": lambda: (outside / "file").rename(outside / "other"),
    "linked": lambda: os.symlink("file", outside / "link"),
    "connected": lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=5).close(),
}
print(" ".join(name for name, attempt in attempts.items() if refused(attempt)))
assert (outside / "file").read_text() == "kept" and os.getuid() == int(sys.argv[3])
with tempfile.TemporaryDirectory() as folder:
    os.makedirs(f"{folder}/a")
    pathlib.Path(folder, "built").write_text("x")
    os.replace(f"{folder}/built", f"{folder}/a/built")
pathlib.Path("/dev/null").write_text("x")
with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
    shared.write(b"x")
"""
CHANGES = "made changed cut removed moved linked"


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_a_process_in_its_domain_reaches_no_other_but_its_children() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    if done.returncode == 3:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 0


def run_isolated(scratch: Path, outside: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Try to change a file outside of the scratch folder, and to reach a server on this host."""
    (outside / "file").write_text("kept")
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = [str(outside), str(server.getsockname()[1]), str(os.getuid())]
        return subprocess.run(
            [sys.executable, "-c", ISOLATED, *arguments],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)},
        )


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces and Landlock are Linux's")
def test_in_isolation_only_the_scratch_folder_changes_and_nothing_is_reached(tmp_path: Path) -> None:
    kept = can_be_kept_from()
    if not kept:
        pytest.skip("this kernel has neither")
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    scratch.mkdir()
    outside.mkdir()
    done = run_isolated(scratch, outside, isolated_environment(scratch))
    expected = [*(CHANGES.split() if "files" in kept else ()), *(["connected"] if "network" in kept else ())]
    assert (done.returncode, done.stdout.split()) == (0, expected), done.stderr
    assert not [*(scratch / "home").glob("tmp*")]


def test_a_process_that_cannot_be_isolated_as_it_was_promised_ends(tmp_path: Path) -> None:
    done = run_isolated(tmp_path, tmp_path, {VARIABLE: f"clock:{tmp_path}"})
    assert done.returncode == 1 and "fatal: the process cannot be kept from clock" in done.stderr
