"""The writing half of an open S3 file: what it publishes, and what it takes back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from fsspec.asyn import sync

from resilient_io.aws.uploads import Uploads, noted_in, warn_of_orphan, watched


class Writing:
    """The part of the file that commits and discards; it stands before s3fs's class among the bases."""

    mode: str
    path: str
    buffer: Any
    mpu: Any
    _uploads: Uploads | None = None

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

    def _initiate_upload(self) -> None:
        """Begin an upload, and note it as soon as there is one: an interrupt may keep s3fs from doing so."""
        if self._uploads is None:
            self._uploads = Uploads()
        with noted_in(self._uploads):
            super()._initiate_upload()  # type: ignore[misc]  # s3fs's class comes after this one

    def commit(self) -> None:
        """Make the object visible: a small one by one PUT, a large one by completing its upload."""
        if self.tell() == 0 and self.buffer is not None and "x" in self.mode:
            self._commit_empty()
        else:
            super().commit()  # type: ignore[misc]  # s3fs's class comes after this one
        self._ended(self.mpu)

    def _ended(self, upload: Any) -> None:
        if self._uploads is not None and upload:
            self._uploads.completed(upload["UploadId"])

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
            self._ended(upload)
            self._take_back()
        except FileNotFoundError:
            self.mpu = self.buffer = None  # it is gone already
            self._ended(upload)
        except Exception as error:
            if upload:
                warn_of_orphan({"Bucket": self.bucket, "Key": self.key}, upload["UploadId"], error)
            raise

    def _take_back(self) -> None:
        """Abort what the store began and s3fs has not heard of."""
        uploads = self._uploads
        if uploads:
            with watched(uploads):
                sync(self.fs.loop, uploads.take_back, self.fs)

    def _give_up_writing(self) -> None:
        with contextlib.suppress(Exception):
            self.discard()
