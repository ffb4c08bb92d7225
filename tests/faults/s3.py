"""An object store on this machine, and a way to it that can be slow, broken or closed.

The store is moto's server. It needs packages that do not go with the versions that pairbench is tested with, so it has an environment of its
own: `PAIRBENCH_S3_SERVER` names its command, and `nox` makes it. `PAIRBENCH_S3_SERVER=swift` takes OpenStack Swift with its S3 interface
instead, as Debian's packages `swift-proxy`, `swift-account`, `swift-container` and `swift-object` have it (see `swift.py`).
"""

import contextlib
import http.client
import os
import socket
import struct
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyarrow import fs

from tests.faults import swift
from tests.faults.ports import command_of, free_port, running

VARIABLE = "PAIRBENCH_S3_SERVER"
BUCKET = "bucket"
SLOW_S = 1.0
MODES = ("fine", "errors", "slow", "refuses", "hangs", "denies")


def server_command() -> str | None:
    command = command_of(VARIABLE, "moto_server")
    if command == swift.NAME and (missing := swift.missing()):
        raise FileNotFoundError(f"{VARIABLE}={swift.NAME}, and {missing}")
    return command


@contextlib.contextmanager
def object_store(log: Path) -> Iterator[int]:
    """Run an empty store with one bucket, and give its port."""
    command = server_command()
    assert command is not None, f"no S3 server: set {VARIABLE} to the command of moto_server"
    with contextlib.ExitStack() as stack:
        if command == swift.NAME:
            port = stack.enter_context(swift.all_in_one(log, [free_port() for _ in range(5)]))
        else:
            port = free_port()
            output = stack.enter_context(log.open("wb"))
            stack.enter_context(running([command, "-H", "127.0.0.1", "-p", str(port)], port, output))
        _put_bucket(port)
        yield port


def _put_bucket(port: int) -> None:
    found = fs.S3FileSystem(
        access_key=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        secret_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    found.create_dir(BUCKET)  # an empty one: nothing is uploaded


def url_of(port: int, prefix: str = "store") -> str:
    query = urllib.parse.urlencode({"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1"})
    return f"s3://{BUCKET}/{prefix}?{query}"


ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tests:tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_EC2_METADATA_DISABLED": "true",
}
if os.environ.get(VARIABLE) == swift.NAME:
    ENVIRONMENT |= {
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
    }


class Way:
    def __init__(self, target: int) -> None:
        self.mode = "fine"  # how it is: one of `MODES`
        self.only = ""  # a part of the paths that it is so for; all if empty
        self.puts = 0  # how many objects were put so far
        self.requests: Counter[str] = Counter()  # by LIST, or the method
        self.turn_after: tuple[int, str] | None = None  # after how many further objects which mode begins
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.way, self._server.target = self, target
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.mode = "fine"
        self._server.shutdown()
        self._server.server_close()

    def mode_of(self, method: str, path: str) -> str:
        """Return how it is for a request, and count it."""
        self.requests["LIST" if method == "GET" and "list-type=" in path else method] += 1
        if self.only and self.only not in urllib.parse.unquote(path):
            return "fine"
        # A file may go up in parts; it turns in the middle of one, whose beginning is then there.
        key, _, query = path.partition("?")
        if method == "PUT" and key.endswith(".parquet") and ("partNumber" not in query or "partNumber=1&" in query):
            self.puts += 1
            if self.turn_after and self.puts > self.turn_after[0]:
                self.mode, self.turn_after = self.turn_after[1], None
        return self.mode


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    way: Way
    target: int

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # whoever hangs up in the middle has had enough


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _pass(self) -> None:
        body = self._body()
        mode = self.server.way.mode_of(self.command, self.path)
        if mode == "refuses":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        while mode == "hangs" and self.server.way.mode == "hangs":
            time.sleep(0.05)
        if mode in _ERRORS:
            status, code = _ERRORS[mode]
            content = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self._answer(status, [("Content-Type", "application/xml")], content)
            return
        if mode == "slow":
            time.sleep(SLOW_S)
        line = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        line.request(self.command, self.path, body, {**sent, "Content-Length": str(len(body))})
        answer = line.getresponse()
        content = answer.read()
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        self._answer(answer.status, kept, content, length)
        line.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 (so named by the base)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        pass


_ERRORS = {"errors": (500, "InternalError"), "denies": (403, "InvalidAccessKeyId")}
_HOP = ("connection", "content-length", "transfer-encoding", "server", "date", "keep-alive")
