"""A stand-in for Google's object store on this machine: gcp-storage-emulator, which has an environment of its own as moto has.

`PAIRBENCH_GCS_SERVER` names its command, and `nox -s s3` installs it.
"""

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path

from tests.faults.ports import command_of, free_port, running

VARIABLE = "PAIRBENCH_GCS_SERVER"
BUCKET = "bucket"


def server_command() -> str | None:
    return command_of(VARIABLE, "gcp-storage-emulator")


@contextlib.contextmanager
def object_store(log: Path) -> Iterator[int]:
    command, port = server_command(), free_port()
    assert command is not None, f"no server of Google's kind: set {VARIABLE} to the command of gcp-storage-emulator"
    words = [command, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    with log.open("wb") as output, running(words, port, output):
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        line.request("POST", "/storage/v1/b?project=p", f'{{"name": "{BUCKET}"}}', {"Content-Type": "application/json"})
        assert line.getresponse().status == 200
        yield port


def url_of(port: int, name: str = "store") -> str:
    return f"gs://anonymous@{BUCKET}/{name}?scheme=http&endpoint_override=127.0.0.1%3A{port}"
