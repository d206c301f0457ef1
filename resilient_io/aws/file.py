"""An open file of `ResilientS3FileSystem`."""

from __future__ import annotations

import os
from typing import Any

from fsspec.asyn import sync
from s3fs.core import S3File
from s3fs.utils import FileExpired

from resilient_io.aws import reading
from resilient_io.drive.guard import guard_file
from resilient_io.errors import NotForkSafe


class ResilientS3File(S3File):  # type: ignore[misc]  # s3fs is untyped
    """s3fs's file; `first` are the bytes that opening it brought, which save the HEAD.

    A file open for reading that a fork hands to a child goes on there at its position. One open for
    writing does not: parent and child would each upload a part of it.
    """

    def __init__(
        self, s3: Any, path: str, mode: str = "rb", *, first: reading.First | None = None, **options: Any
    ) -> None:
        self._pid: int = os.getpid()
        self.closed: bool
        self.req_kw: dict[str, Any]
        self._first = first.data if first is not None else b""
        if first is not None:
            self._details = first.details
            options["size"] = first.details["size"] if not first.details.get("ETag") else None
        super().__init__(s3, path, mode, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end); what opening brought is not asked for again."""
        if self.size is not None:
            end = min(end, self.size)
        if start >= end:
            return b""
        known = self._first[start:end]
        if len(known) == end - start:
            return known
        asked = f"bytes={start + len(known)}-{end - 1}"
        request = {"Bucket": self.bucket, "Key": self.key, "Range": asked, **_reading(self)}
        if self.version_id:
            request["VersionId"] = self.version_id
        etag = self.details.get("ETag") if getattr(self.fs, "local_expiry_check", False) else None
        try:
            rest: bytes = sync(self.fs.loop, reading.read_range, self.fs, request, etag=etag)
            return known + rest
        except reading.Changed as error:
            raise FileExpired(filename=self.details["name"], e_tag=self.details.get("ETag")) from error

    # -- fork --------------------------------------------------------------------------------------

    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def read(self, length: int = -1) -> bytes:
        """Return up to `length` bytes from the position on; all that follow if it is negative."""
        self._renew_cache()
        data: bytes = super().read(length)
        return data

    def _renew_cache(self) -> None:
        """Give the cache of an inherited file its own lock and thread; the parent's may be held, or do not run here."""
        if not self._is_inherited() or self.mode != "rb":
            return
        self._pid = os.getpid()
        if hasattr(self.cache, "_thread_executor"):
            self.cache.__setstate__(self.cache.__getstate__())

    def _refuse_if_inherited(self) -> None:
        if self._is_inherited() and self.mode != "rb":
            raise NotForkSafe(
                f"{self.path} was opened for writing before the process forked; close it before the fork, "
                "or open it in the worker"
            )

    def write(self, data: Any) -> int:
        """Write bytes; raises NotForkSafe in a forked child that inherited the file."""
        self._refuse_if_inherited()
        written: int = super().write(data)
        return written

    def flush(self, force: bool = False) -> None:
        """Send what fills a block; raises NotForkSafe in a forked child that inherited the file."""
        self._refuse_if_inherited()
        super().flush(force)

    def close(self) -> None:
        """Finish the file; raises NotForkSafe in a forked child that inherited one open for writing."""
        if self._is_inherited() and not self.closed:
            self._renew_cache()
            if self.mode != "rb":
                # Once is enough: the collector closes too.
                self.closed = True
                self._refuse_if_inherited()
        super().close()

    def __del__(self) -> None:
        # The parent's upload is not the child's to finish, nor to complain about.
        if getattr(self, "_pid", None) != os.getpid() and getattr(self, "mode", "rb") != "rb":
            self.closed = True
        super().__del__()


def _reading(file: ResilientS3File) -> Any:
    """Return what requests for the file's bytes carry besides; older s3fs has one set for all requests of a file."""
    return getattr(file, "read_kw", file.req_kw)


guard_file(ResilientS3File)
