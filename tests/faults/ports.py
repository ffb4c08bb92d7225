"""Servers on this machine, and their ports."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO


def command_of(variable: str, usual: str) -> str | None:
    """Return the command that starts a server; None where there is none, or where the variable is empty: then its tests are another session's."""
    command = os.environ.get(variable)
    return shutil.which(usual) if command is None else command or None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, output: IO[bytes], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        _wait_for(port, process)
        yield
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, "the server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError("the server does not answer")
