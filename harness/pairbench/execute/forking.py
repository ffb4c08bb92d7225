"""What a parent and its fork server say to each other: one message for each process that is asked for.

A message carries open files, the first of which is the line on which the server answers: the process id, then, when the
process has ended, its exit code. Whoever closes that line for writing wants the process killed, with what it started.
"""

import contextlib
import json
import os
import socket
import struct
from dataclasses import field
from enum import StrEnum

from pairbench.model.plain import Value

_LENGTH = struct.Struct("!Q")
_NUMBER = struct.Struct("!q")
_MOST_FILES = 16


class Preload(StrEnum):
    """What a fork server loads after it has forked its first worker, which only finds devices and loads suites."""

    DESCRIPTION = "description"  # nothing, until a second worker is asked for
    MEASUREMENT = "measurement"  # what verifying, timing and profiling take
    COMPILER = "compiler"  # what verifying, timing and profiling take, and torch's compiler, which takes some seconds


class ForkRequest(Value):
    """A process that a fork server is asked for."""

    environment: dict[str, str]
    """The whole environment; variables that torch reads as it is imported must be those of the server."""
    folder: str
    arguments: tuple[str, ...] = ()  # arguments beside the files; workers need none
    files: tuple[int, ...] = field(default=(), compare=False)
    """Open files: those for standard output and standard error, then what else the process needs."""


def send_request(control: socket.socket, request: ForkRequest) -> socket.socket:
    """Ask for a process, and return the line on which the server reports it; an OSError says that the server has ended."""
    payload = json.dumps([request.environment, request.folder, request.arguments]).encode()
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            socket.send_fds(control, [_LENGTH.pack(len(payload))], [theirs.fileno(), *request.files])
            control.sendall(payload)
    except OSError:
        ours.close()
        raise
    return ours


def send_farewell(control: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the server has ended
        control.sendall(b".")


def receive_request(control: socket.socket) -> tuple[socket.socket, ForkRequest] | None:
    """Return the line to answer on and the request, or None after a farewell; an EOFError says that the parent hung up without one."""
    try:
        head, files, _, _ = socket.recv_fds(control, _LENGTH.size, _MOST_FILES)
        if not head:
            raise EOFError
        if not files:
            return None
        for file in files:
            os.set_inheritable(file, False)
        (length,) = _LENGTH.unpack(head + read_bytes(control, _LENGTH.size - len(head)))
        environment, folder, arguments = json.loads(read_bytes(control, length))
    except OSError:
        raise EOFError from None
    request = ForkRequest(environment=environment, folder=folder, arguments=tuple(arguments), files=tuple(files[1:]))
    return socket.socket(fileno=files[0]), request


def send_number(line: socket.socket, number: int) -> None:
    """Send a process id or an exit code; whoever has hung up does not want it."""
    with contextlib.suppress(OSError):
        line.sendall(_NUMBER.pack(number))


def receive_number(line: socket.socket) -> int | None:
    """Return the next number, or None when the server has ended; a TimeoutError is of a line that has a timeout."""
    try:
        return int(_NUMBER.unpack(read_bytes(line, _NUMBER.size))[0])
    except TimeoutError:
        raise
    except (OSError, EOFError):
        return None


def read_bytes(line: socket.socket, count: int) -> bytearray:
    """Return that many bytes; an EOFError says that the other end has hung up."""
    content = bytearray(count)
    view = memoryview(content)
    while view:
        got = line.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return content
