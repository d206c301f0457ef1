"""An open file of `ResilientS3FileSystem`."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from typing import Any

from fsspec.asyn import sync
from s3fs.core import S3File
from s3fs.utils import FileExpired

from resilient_io.aws import reading, whole
from resilient_io.aws.writing import Writing
from resilient_io.control.ranges import Span
from resilient_io.drive.ahead import reads_ahead, stop_reading_ahead
from resilient_io.drive.first import First
from resilient_io.drive.forked import CarefulFile
from resilient_io.drive.guard import guard_file
from resilient_io.drive.lines import ReadsLines
from resilient_io.drive.publishing import PublishedWhole
from resilient_io.errors import GiveUp, ObjectChanged


class ResilientS3File(PublishedWhole, ReadsLines, Writing, CarefulFile, S3File):  # type: ignore[misc]  # s3fs is untyped
    """s3fs's file; `first` are the bytes that opening it brought, which save the HEAD.

    A file open for reading that a fork hands to a child goes on there at its position. One open for
    writing does not: parent and child would each upload a part of it.
    """

    def __init__(self, s3: Any, path: str, mode: str = "rb", *, first: First | None = None, **options: Any) -> None:
        self._pid: int = os.getpid()
        self.closed: bool
        self.req_kw: dict[str, Any]
        self._first = first.data if first is not None else b""
        if first is not None:
            self._details = first.details
            options["size"] = first.details["size"] if not first.details.get("ETag") else None
        self._note_open(mode)
        super().__init__(s3, path, mode, **options)
        reads_ahead(self, self._fetch_later, self._first)

    def _fetch_range(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end); what opening brought is not asked for again."""
        if self.size is not None:
            end = min(end, self.size)
        if start >= end:
            return b""
        known = self._first[start:end]
        if len(known) == end - start:
            return known
        try:
            data: bytes = sync(self.fs.loop, whole.read_span, *self._span(start, end, known))
            return data
        except reading.Changed as error:
            raise _changed(self.details["name"]) from error

    def _fetch_later(self, start: int, end: int) -> Future[bytes]:
        """Begin to fetch [start, end), and return at once."""
        return asyncio.run_coroutine_threadsafe(self._read_ahead(start, end), self.fs.loop)

    async def _read_ahead(self, start: int, end: int) -> bytes:
        try:
            data: bytes = await self.fs._read_ahead(*self._span(start, end, b"")[1:])
            return data
        except reading.Changed as error:
            raise _changed(self.details["name"]) from error

    def _span(self, start: int, end: int, known: bytes) -> tuple[Any, ...]:
        """Return what `read_span` needs to know."""
        request = {"Bucket": self.bucket, "Key": self.key, **_reading(self)}
        if self.version_id:
            request["VersionId"] = self.version_id
        etag = self.details.get("ETag") if getattr(self.fs, "local_expiry_check", False) else None
        block_bytes = max(self.blocksize, self.fs.default_block_size)
        return self.fs, request, Span(start, end), known, etag, block_bytes, self.fs.max_concurrency

    def close(self) -> None:
        """Finish the file; what was fetched ahead of its reader is given up."""
        stop_reading_ahead(self)
        super().close()


class FileChanged(ObjectChanged, FileExpired):  # type: ignore[misc]  # s3fs is untyped
    """The object of an open file was replaced: ObjectChanged, and what s3fs raises, for the `except` that knows it."""

    def __init__(self, message: str = "", *, record: GiveUp | None = None) -> None:
        ObjectChanged.__init__(self, message, record=record)


def _changed(name: str) -> FileChanged:
    record = GiveUp(operation="GetObject", path=f"s3://{name}")
    told = f"GetObject s3://{name}: the object was replaced after the file was opened; open it anew"
    return FileChanged(told, record=record)


def _reading(file: ResilientS3File) -> Any:
    """Return what requests for the file's bytes carry besides; older s3fs has one set for all requests of a file."""
    return getattr(file, "read_kw", file.req_kw)


guard_file(ResilientS3File)
