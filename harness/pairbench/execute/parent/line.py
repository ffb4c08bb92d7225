"""The parent's end of the line to a worker, on which it never waits without looking after other things."""

import pickle
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from pairbench.execute.wire import LENGTH, decode, read_head

_POLL_S = 0.05
_PIECE = 1 << 20

Watch = Callable[[], bool]
"""Looks after the process at the other end, some twenty times a second, and returns whether it has ended; it may raise."""


class Line:
    """Sends pickled values to a worker, and takes messages, which are data, from it."""

    def __init__(self, ours: socket.socket) -> None:
        ours.settimeout(_POLL_S)
        self._socket = ours
        self._begun = bytearray()  # of messages that were not taken yet
        self._looked = 0.0
        self.received_at = self._piece_at = time.monotonic()
        """When the newest message was all there, unless others came with it."""

    def send(self, value: Any, watch: Watch, file: int | None = None) -> None:
        """Send a value, with an open file if given; a ConnectionError says that the worker has hung up or has ended."""
        content = pickle.dumps(value)
        rest = memoryview(LENGTH.pack(len(content)) + content)
        while rest:
            if self._look(watch):
                raise ConnectionError
            try:
                if file is not None:
                    rest, file = rest[socket.send_fds(self._socket, [rest], [file]) :], None
                    continue
                rest = rest[self._socket.send(rest) :]
            except TimeoutError:  # it has not read what was sent before
                continue

    def receive(self, expected: Mapping[str, type], watch: Watch) -> Any:
        """Return the next message, one of the expected dataclasses by name, or raise NoMessageError; EOFError once the worker has hung up or ended."""
        while True:
            frame = read_head(self._begun)
            ended = self._look(watch)
            if frame is not None and len(self._begun) >= frame.size:
                message = self._begun[: frame.size]
                del self._begun[: frame.size]
                if not self._begun:
                    self.received_at = self._piece_at
                return decode(message, expected)
            try:
                piece = self._socket.recv(_PIECE)
            except TimeoutError:
                if ended:
                    raise EOFError from None
                continue
            if not piece:
                raise EOFError
            self._piece_at = time.monotonic()
            self._begun += piece

    def _look(self, watch: Watch) -> bool:
        """Call the watch if it is time to, and return whether the process is known to have ended."""
        now = time.monotonic()
        if now - self._looked < _POLL_S:
            return False
        self._looked = now
        return watch()

    def close(self) -> None:
        self._socket.close()
