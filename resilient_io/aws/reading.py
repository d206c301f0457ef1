"""Reading one range of an object, or its first bytes, with the permit held over the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from resilient_io.aws.body import Changed, Request
from resilient_io.aws.get import read as _read
from resilient_io.control.span import told_by
from resilient_io.drive.first import First

__all__ = ["Changed", "read_first", "read_range"]


async def read_range(fs: Any, request: Request, *, etag: str | None = None) -> bytes:
    """Return the bytes of the range that the request names; Changed if they are not of the version `etag`."""
    pieces: list[bytes] = []
    await _read(fs, request, pieces, etag=etag)
    return b"".join(pieces)


async def read_first(fs: Any, request: Request, length_bytes: int) -> First | None:
    """Return the first bytes of an object and its details; an empty object answers 416, which tells as much.

    None where the answer does not tell the size of the object: that has to be asked for as s3fs does.
    """
    path = f"{request['Bucket']}/{request['Key']}"
    pieces: list[bytes] = []
    asked = {**request, "Range": f"bytes=0-{length_bytes - 1}"}
    try:
        answer = await _read(fs, asked, pieces, at_most_bytes=length_bytes, raw_errors=True)
    except ClientError as error:
        if _status_of(error) != 416:
            raise
        return First(data=b"", details={"name": path, "size": 0, "type": "file", "StorageClass": "STANDARD"})
    size_bytes = told_by(answer.get("ContentRange"), answer.get("ContentLength")).size
    if size_bytes is None:
        return None
    return First(data=b"".join(pieces), details=_details(path, answer, size_bytes))


def _details(path: str, answer: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
    """Return what s3fs's `info` would say of the object."""
    return {
        "ETag": answer.get("ETag", ""),
        "LastModified": answer.get("LastModified", ""),
        "size": size_bytes,
        "name": path,
        "type": "file",
        "StorageClass": answer.get("StorageClass", "STANDARD"),
        "VersionId": answer.get("VersionId"),
        "ContentType": answer.get("ContentType"),
    }


def _status_of(error: ClientError) -> int | None:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
