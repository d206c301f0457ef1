"""An open file of `ResilientAzureBlobFileSystem`."""

from __future__ import annotations

import os
from typing import Any

from adlfs.spec import AzureBlobFile
from adlfs.utils import get_blob_metadata
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from fsspec.asyn import sync

from resilient_io.azure import reading
from resilient_io.azure.writing import Writing
from resilient_io.drive.first import First
from resilient_io.drive.forked import CarefulFile
from resilient_io.drive.guard import guard_file
from resilient_io.drive.publishing import PublishedWhole


class ResilientAzureBlobFile(PublishedWhole, Writing, CarefulFile, AzureBlobFile):  # type: ignore[misc]  # adlfs is untyped
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
        rest: bytes = sync(self.loop, self._async_fetch_range, start + len(known), end)
        return known + rest

    async def _async_fetch_range(self, start: int, end: int | None = None, **kwargs: Any) -> bytes:
        """Return bytes from the store, of the version that the file was opened on."""
        end = self.size if end is None else min(end, self.size)
        try:
            stream = await self.container_client.download_blob(
                blob=self.blob,
                offset=start,
                length=end - start,
                version_id=self.version_id,
                max_concurrency=self.fs.max_concurrency or 1,
                **self._same_version(),
            )
            data: bytes = await stream.readall()
        except HttpResponseError as error:
            # 416: the blob has become shorter than a listing said.
            if isinstance(error, ResourceModifiedError) or error.status_code == 416:
                raise self._changed() from error
            raise
        self._pin(stream)
        return data

    def _same_version(self) -> dict[str, Any]:
        if self._etag is None or self.version_id is not None:
            return {}
        return {"etag": self._etag, "match_condition": MatchConditions.IfNotModified}

    def _pin(self, stream: Any) -> None:
        """Keep to the version of the first answer; a listing may be older, its size must be right."""
        if reading.whole_size_of(stream) != self.size:
            raise self._changed()
        if self._etag is None:
            self._etag = stream.properties.etag

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


guard_file(ResilientAzureBlobFile, "_fetch_metadata")
