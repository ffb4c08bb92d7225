"""Uploads to an object store that nobody finishes: none is begun for a small file, and old ones are aborted at the next start."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pairbench.model.record import Record
from pairbench.store import files
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_run
from tests.store.rows import open_run, record

s3 = pytest.importorskip("tests.faults.s3")
botocore = pytest.importorskip("botocore.session", reason="botocore is not installed, which aborts uploads")
pytestmark = pytest.mark.skipif(s3.server_command() is None, reason="no S3 server; see tests/faults/s3.py")

KEY = "store/records/device=cpu/month=2026-01/a.parquet"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3.object_store(tmp_path_factory.mktemp("s3") / "log") as found:
        yield found


@pytest.fixture
def client(port: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in s3.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return botocore.get_session().create_client("s3", "us-east-1", endpoint_url=f"http://127.0.0.1:{port}")


def open_uploads(client: Any) -> list[str]:
    return [upload["Key"] for upload in client.list_multipart_uploads(Bucket=s3.BUCKET).get("Uploads", [])]


def write_a_run(port: int, record: Record) -> StoreLocation:
    location = StoreLocation.of(s3.url_of(port))
    with open_run(location, record.run_id) as writer:
        writer.append_records([record])
    return location


def test_the_next_run_aborts_old_uploads_of_this_store_alone(
    port: int, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "elsewhere/records/b.parquet"
    for key in (KEY, other):
        client.create_multipart_upload(Bucket=s3.BUCKET, Key=key)
    monkeypatch.setattr(files, "ABANDONED_S", 1e12)  # moto has uploads begin in 2010
    write_a_run(port, record(run_id="20260101T000000-a"))
    assert set(open_uploads(client)) == {other, KEY}  # whoever began it may still be at it
    monkeypatch.setattr(files, "ABANDONED_S", -60)
    location = write_a_run(port, record(run_id="20260101T000000-b"))
    assert open_uploads(client) == [other]
    assert [row.run_id for row in read_run(location, "20260101T000000-b").value] == ["20260101T000000-b"]


def test_a_writer_that_is_killed_leaves_no_upload(port: int, client: Any) -> None:
    before, url = open_uploads(client), s3.url_of(port)
    child = os.fork()
    if not child:
        stream = StoreLocation.of(url).filesystem.open_output_stream(f"{s3.BUCKET}/{KEY}")
        stream.write(pa.py_buffer(b"half"))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert open_uploads(client) == before


def test_a_probe_that_a_kill_left_goes(port: int, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "store/records/device=cpu/month=2026-01/.probe-01234567.tmp"
    client.put_object(Bucket=s3.BUCKET, Key=key, Body=b"x")
    monkeypatch.setattr(files, "ABANDONED_S", -1)
    write_a_run(port, record(run_id="20260101T000000-c"))
    found = client.list_objects_v2(Bucket=s3.BUCKET)["Contents"]
    assert [item["Key"] for item in found if ".probe-" in item["Key"]] == []
