"""An open file of `ResilientAzureBlobFileSystem`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final

from adlfs.spec import AzureBlobFile
from adlfs.utils import get_blob_metadata
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError
from azure.storage.blob import BlobBlock
from fsspec.asyn import sync, sync_wrapper
from fsspec.spec import AbstractBufferedFile

from resilient_io.azure import reading
from resilient_io.azure.whole import Source, read_span, whole_size_of
from resilient_io.control.ranges import Span
from resilient_io.drive.ahead import reads_ahead, stop_reading_ahead
from resilient_io.drive.first import First, all_or_none
from resilient_io.drive.forked import CarefulFile
from resilient_io.drive.guard import guard_file
from resilient_io.errors import GaveUp, ResilientIOError

# Up to here the SDK sends a blob in one request, which is as atomic as blocks and their list.
_ONE_REQUEST_BYTES: Final = 64 * 2**20


class ResilientAzureBlobFile(CarefulFile, AzureBlobFile):  # type: ignore[misc]  # adlfs is untyped
    """adlfs's file; `first` are the bytes that opening it brought, which save the HEAD.

    All bytes that it reads are of one version of the blob: ObjectChanged is raised when it is
    replaced. A write that fails ends the file: closing it raises again, and nothing becomes visible.

    A file open for reading that a fork hands to a child goes on there at its position. One open for
    writing does not: parent and child would each upload a part of it.
    """

    # Older adlfs knows none.
    _content_settings: Any = None

    def __init__(self, fs: Any, path: str, mode: str = "rb", *, first: First | None = None, **options: Any) -> None:
        self._pid = os.getpid()
        self._first = first.data if first is not None else b""
        self._etag: str | None = first.details.get("etag") if first is not None else None
        self._metadata: Any
        if first is not None:
            self.details = first.details
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

    # -- writing -----------------------------------------------------------------------------------

    async def _async_upload_chunk(self, final: bool = False, **kwargs: Any) -> None:
        """Send what is buffered: as blocks, of which the last chunk makes the blob, or whole if there is but one."""
        if self.mode == "ab":
            await super()._async_upload_chunk(final, **kwargs)
            return
        try:
            await self._send(self.buffer.getvalue(), final)
        except (GaveUp, ResilientIOError):
            raise
        except ResourceExistsError as error:
            raise FileExistsError(self.path) from error
        except Exception as error:
            raise RuntimeError(f"Failed to upload block: {error}!") from error

    _upload_chunk = sync_wrapper(_async_upload_chunk)

    async def _send(self, data: bytes, final: bool) -> None:
        if final and not self._block_list and len(data) <= min(self.blocksize, _ONE_REQUEST_BYTES):
            answer = await self._put_whole(data)
        else:
            self._block_list.extend(await self._staged(data))
            if not final:
                return
            answer = await self._committed()
        if self.fs.version_aware:
            self.version_id = answer.get("version_id")

    async def _put_whole(self, data: bytes) -> Any:
        return await self.container_client.get_blob_client(blob=self.blob).upload_blob(
            data,
            length=len(data),
            overwrite=self.mode == "wb",
            metadata=self.metadata,
            content_settings=self._content_settings,
        )

    async def _staged(self, data: bytes) -> list[str]:
        """Send the blocks, and return their ids in order; where one fails the others are not sent."""
        slots = asyncio.Semaphore(self.fs.max_concurrency or 1)
        blocks = [(start, end, self._get_block_id()) for start, end in self._get_chunks(data)]
        return await all_or_none(self._stage_block(data, start, end, name, slots) for start, end, name in blocks)

    async def _committed(self) -> Any:
        unless_exists = {"headers": {"If-None-Match": "*"}} if self.mode == "xb" else {}
        return await self.container_client.get_blob_client(blob=self.blob).commit_block_list(
            block_list=[BlobBlock(name) for name in self._block_list],
            metadata=self.metadata,
            content_settings=self._content_settings,
            **unless_exists,
        )

    # -- the end, and fork -------------------------------------------------------------------------

    def _renew(self) -> None:
        """Give an inherited file the loop and connections of this process."""
        if self._is_inherited() and self.mode == "rb":
            self.loop = self.fs.loop
            self.container_client = self._get_container_client()
        super()._renew()

    def close(self) -> None:
        """Finish the file; after a write that failed it raises as that did. The client is the filesystem's."""
        stop_reading_ahead(self)
        self._end_inherited()
        AbstractBufferedFile.close(self)


guard_file(ResilientAzureBlobFile, "_fetch_metadata")
