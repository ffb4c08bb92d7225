"""Uploads to an object store that nobody is going to finish: their parts take space that is paid for, and no listing shows them."""

import contextlib
import datetime as dt
import importlib
from collections.abc import Iterable
from typing import Any

ABANDONED_S = 24 * 3600
"""Age in seconds from which an upload, or a file that was to show whether the store takes any, was left behind. Both live for seconds."""


def abort_uploads(filesystem: Any, root: str, folders: Iterable[str]) -> int:
    """Abort the unfinished uploads below some folders of a store on S3 that began more than a day ago, and return how many.

    A process that is killed leaves one where a file has more than five megabytes, or where pyarrow is older than 18 and begins one for each.
    Whether the process that began an upload still lives is not known; its age is. pyarrow can neither list nor abort uploads, so this
    takes botocore, and the right to list them: without these nothing happens, and a rule of the bucket
    (AbortIncompleteMultipartUpload) does the same.

    Args:
        filesystem: pyarrow's.
        root: Bucket and prefix.
        folders: Below the root.
    """
    if getattr(filesystem, "type_name", "") != "s3":
        return 0
    try:
        session, config = importlib.import_module("botocore.session"), importlib.import_module("botocore.config")
        errors = importlib.import_module("botocore.exceptions")
    except ImportError:
        return 0
    bucket, _, prefix = root.partition("/")
    aborted = 0
    with contextlib.suppress(errors.BotoCoreError, errors.ClientError, LookupError, TypeError, ValueError):
        client = _client(session, config, filesystem)
        for folder in folders:
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix=f"{prefix}/{folder}/".lstrip("/")
            )
            for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
                if is_abandoned(upload["Initiated"]):
                    client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    aborted += 1
    return aborted


def is_abandoned(when: dt.datetime | None) -> bool:
    """Return whether something is so old that whoever made it is gone."""
    return when is not None and (dt.datetime.now(dt.UTC) - when).total_seconds() > ABANDONED_S


def _client(session: Any, config: Any, filesystem: Any) -> Any:
    _, (options,) = filesystem.__reduce__()  # the only way to the address that it was made with
    address = options["endpoint_override"]
    return session.get_session().create_client(
        "s3",
        region_name=filesystem.region,
        endpoint_url=f"{options['scheme'] or 'https'}://{address}" if address else None,
        aws_access_key_id=options["access_key"],
        aws_secret_access_key=options["secret_key"],
        aws_session_token=options["session_token"],
        config=config.Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"max_attempts": 1},
            s3={"addressing_style": "virtual" if options["force_virtual_addressing"] else "path"} if address else None,
        ),
    )
