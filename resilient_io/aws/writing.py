"""The writing half of an open S3 file: what it publishes, and what it takes back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from resilient_io.aws.uploads import warn_of_orphan


class Writing:
    """The part of the file that commits and discards; it stands before s3fs's class among the bases."""

    mode: str
    path: str
    buffer: Any
    mpu: Any

    if TYPE_CHECKING:  # of s3fs's file
        fs: Any
        bucket: str
        key: str
        acl: Any
        kwargs: Any
        version_id: Any

        def tell(self) -> int: ...  # noqa: D102  # s3fs's

        def _abort_mpu(self) -> None: ...

        def _call_s3(self, method: str, *given: Any, **params: Any) -> Any: ...

    def commit(self) -> None:
        """Make the object visible: a small one by one PUT, a large one by completing its upload."""
        if self.tell() == 0 and self.buffer is not None and "x" in self.mode:
            self._commit_empty()
        else:
            super().commit()  # type: ignore[misc]  # s3fs's class comes after this one

    def _commit_empty(self) -> None:
        """Create an empty object; s3fs touches it, which would overwrite another one."""
        self._abort_mpu()
        acl = {"ACL": self.acl} if self.acl else {}
        place = {"Bucket": self.bucket, "Key": self.key}
        answer = self._call_s3("put_object", **place, Body=b"", IfNoneMatch="*", **acl, **self.kwargs)
        if self.fs.version_aware:
            self.version_id = answer.get("VersionId")
        self.buffer = None
        self.fs.invalidate_cache(self.path)

    def discard(self) -> None:
        """Take back what was sent: parts of an upload that is never completed would cost money for ever."""
        upload = self.mpu
        try:
            super().discard()  # type: ignore[misc]  # s3fs's class comes after this one
        except FileNotFoundError:
            self.mpu = self.buffer = None  # it is gone already
        except Exception as error:
            if upload:
                warn_of_orphan({"Bucket": self.bucket, "Key": self.key}, upload["UploadId"], error)
            raise

    def _give_up_writing(self) -> None:
        with contextlib.suppress(Exception):
            self.discard()
