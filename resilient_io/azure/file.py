"""An open file of `ResilientAzureBlobFileSystem`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from adlfs.spec import AzureBlobFile
from adlfs.utils import get_blob_metadata
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from fsspec.asyn import sync

from resilient_io.azure import reading
from resilient_io.azure.denied import told
from resilient_io.azure.whole import Source, read_span, whole_size_of
from resilient_io.azure.writing import Writing
from resilient_io.control.ranges import Span
from resilient_io.drive.ahead import reads_ahead, stop_reading_ahead
from resilient_io.drive.first import First
from resilient_io.drive.forked import CarefulFile
from resilient_io.drive.guard import guard_file
from resilient_io.drive.lines import ReadsLines
from resilient_io.drive.publishing import PublishedWhole


class ResilientAzureBlobFile(PublishedWhole, ReadsLines, Writing, CarefulFile, AzureBlobFile):  # type: ignore[misc]  # adlfs is untyped
    """adlfs's file; `first` are the bytes that opening it brought, which save the HEAD.

    All bytes that it reads are of one version of the blob: ObjectChanged is raised when it is
    replaced. A write that fails ends the file: closing it raises again, and nothing becomes visible.

    A file open for reading that a fork hands to a child goes on there at its position. One open for
    writing does not: parent and child would each upload a part of it.
    """

    def __init__(self, fs: Any, path: str, mode: str = "rb", *, first: First | None = None, **options: Any) -> None:
        self._pid = os.getpid()
        self._first = first.data if first is not None else b""
        self._etag: str | None = first.details.get("etag") if first is not None else None
        self._metadata: Any
        if first is not None:
            self.details = first.details
        self._note_open(mode)
        super().__init__(fs, path, mode, **options)
        if mode == "rb":
            reads_ahead(self, self._fetch_later, self._first)

    def _get_container_client(self) -> Any:
        return self.fs.client_on(self.loop).get_container_client(self.container_name)

    # -- reading -----------------------------------------------------------------------------------

    def _fetch_range(self, start: int, end: int | None = None) -> bytes:
        """Return the bytes [start, end); what opening brought is not asked for again."""
        self._renew()
        end = self.size if end is None else min(end, self.size)
        known = self._first[start:end]
        if start >= end or len(known) == end - start:
            return known
        data: bytes = sync(self.loop, self._async_fetch_range, start, end, known)
        return data

    async def _async_fetch_range(self, start: int, end: int | None = None, known: bytes = b"", **kwargs: Any) -> bytes:
        """Return bytes from the store, of the version that the file was opened on; `known` are the first of them."""
        span = Span(start, self.size if end is None else min(end, self.size))
        return await self._asked(self._source(), span, known, read_span)

    def _fetch_later(self, start: int, end: int) -> Future[bytes]:
        """Begin to fetch [start, end), and return at once."""
        read = self.fs._read_ahead
        return asyncio.run_coroutine_threadsafe(self._asked(self._source(), Span(start, end), b"", read), self.loop)

    async def _asked(self, source: Source, span: Span, known: bytes, read: Callable[..., Awaitable[bytes]]) -> bytes:
        try:
            return await read(source, span, known, self._etag)
        except HttpResponseError as error:
            # 416: the blob has become shorter than a listing said.
            if isinstance(error, ResourceModifiedError) or error.status_code == 416:
                raise self._changed() from error
            raise

    def _source(self) -> Source:
        return Source(
            client=self.container_client.get_blob_client(self.blob),
            version_id=self.version_id,
            block_bytes=max(self.blocksize, self.fs.blocksize),
            side_by_side=self.fs.max_concurrency or 1,
            options=getattr(self.fs, "_timeout_kwargs", {}),
            on_answer=self._pin,
        )

    def _pin(self, stream: Any) -> None:
        """Keep to the version of the first answer; a listing may be older, its size must be right."""
        if whole_size_of(stream) != self.size:
            raise self._changed()
        if self._etag is None:
            self._etag = stream.properties.etag
        elif not self.version_id and stream.properties.etag != self._etag:
            raise self._changed()

    def _changed(self) -> Exception:
        # The listing that said otherwise must not say so again to the one who opens it anew.
        self.fs.invalidate_cache(self.fs._parent(self.path))
        return reading.changed(self.path)

    @property
    def metadata(self) -> Any:
        """The blob's metadata, asked for when first read."""
        if self._metadata is None and self.mode == "rb":
            self._metadata = self.details.get("metadata")
        if self._metadata is None:
            self._metadata = self._fetch_metadata()
        return self._metadata

    @metadata.setter
    def metadata(self, value: Any) -> None:
        self._metadata = value

    def _fetch_metadata(self) -> Any:
        self._renew()
        return sync(self.loop, get_blob_metadata, self.container_client, self.blob, version_id=self.version_id)

    # -- the end, and fork -------------------------------------------------------------------------

    def _renew(self) -> None:
        """Give an inherited file the loop and connections of this process."""
        if self._is_inherited() and self.mode == "rb":
            self.loop = self.fs.loop
            self.container_client = self._get_container_client()
        super()._renew()

    def close(self) -> None:
        """Finish the file; what was fetched ahead of its reader is given up."""
        stop_reading_ahead(self)
        super().close()


guard_file(ResilientAzureBlobFile, "_fetch_metadata", told=told)
