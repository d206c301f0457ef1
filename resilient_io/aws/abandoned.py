"""Multipart uploads that nobody completed: found by listing a bucket, and aborted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from resilient_io.aws.hooks import harden

#: What the functions here raise where the store or the way to it does not do what is asked.
FAILURES: Final = (BotoCoreError, ClientError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One upload that is still open, or was a moment ago."""

    bucket: str
    key: str
    upload_id: str
    initiated: datetime

    def age_s(self, now: datetime) -> float:
        """Return the seconds since it began, by the service's clock and ours."""
        return (now - self.initiated).total_seconds()

    @property
    def url(self) -> str:
        """Where its object would be."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What an upload holds, and is paid for."""

    parts: int
    size_bytes: int


def client(endpoint_url: str | None) -> Any:
    """Return a hardened S3 client of botocore, which needs neither boto3 nor an event loop. Safe in threads."""
    from botocore.session import get_session

    return harden(get_session().create_client("s3", endpoint_url=endpoint_url))


def find(s3: Any, bucket: str, prefix: str, *, older_than_s: float = 0.0) -> Iterator[Upload]:
    """Give the open uploads of keys under a prefix that began at least so many seconds ago, in the order of keys."""
    now = datetime.now(timezone.utc)
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        for row in page.get("Uploads", ()):
            upload = Upload(bucket=bucket, key=row["Key"], upload_id=row["UploadId"], initiated=row["Initiated"])
            if upload.age_s(now) >= older_than_s:
                yield upload


def held_by(s3: Any, upload: Upload) -> Held:
    """Return what an upload holds; nothing if it ended meanwhile."""
    pages = s3.get_paginator("list_parts").paginate(Bucket=upload.bucket, Key=upload.key, UploadId=upload.upload_id)
    try:
        sizes = [part["Size"] for page in pages for part in page.get("Parts", ())]
    except ClientError as error:
        if not _is_gone(error):
            raise
        sizes = []
    return Held(parts=len(sizes), size_bytes=sum(sizes))


def abort(s3: Any, upload: Upload) -> None:
    """Abort an upload; one that ended meanwhile is no error."""
    try:
        s3.abort_multipart_upload(Bucket=upload.bucket, Key=upload.key, UploadId=upload.upload_id)
    except ClientError as error:
        if not _is_gone(error):
            raise


def _is_gone(error: ClientError) -> bool:
    return error.response.get("Error", {}).get("Code") == "NoSuchUpload"
