"""The writing half of an open Azure file: blocks, the list that makes a blob of them, what a transaction holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobBlock
from fsspec.asyn import sync, sync_wrapper
from fsspec.spec import AbstractBufferedFile

from resilient_io.drive.first import all_or_none
from resilient_io.errors import GaveUp, ResilientIOError

# Up to here the SDK sends a blob in one request, which is as atomic as blocks and their list.
_ONE_REQUEST_BYTES: Final = 64 * 2**20


class Writing:
    """The part of the file that sends and commits; it stands before adlfs's class among the bases.

    Blocks that are never committed are no part of the blob, and the service drops them after a week: there is nothing
    to take back. In a transaction of fsspec's the blob appears when the transaction ends; adlfs commits at once.
    """

    # Older adlfs knows none.
    _content_settings: Any = None
    _is_held_back: bool = False

    if TYPE_CHECKING:  # of adlfs's file, and of those beside this part
        fs: Any
        path: str
        mode: str
        loop: Any
        blob: str
        blocksize: int
        buffer: Any
        autocommit: bool
        container_client: Any
        metadata: Any
        version_id: Any
        _block_list: list[str]

        def _get_chunks(self, data: bytes) -> Any: ...

        def _get_block_id(self) -> str: ...

        def _stage_block(self, *what: Any) -> Awaitable[str]: ...

        def _end_inherited(self) -> None: ...

    async def _async_initiate_upload(self, **kwargs: Any) -> None:
        """Begin a blob; one to be appended to is made unless it is there, also by another at this moment."""
        self._block_list = []
        if self.mode != "ab" or await self.fs._exists(self.path):
            return
        unless_exists = MatchConditions.IfMissing
        try:
            await self._client().create_append_blob(
                metadata=self.metadata, content_settings=self._content_settings, match_condition=unless_exists
            )
        except ResourceExistsError:
            return

    _initiate_upload = sync_wrapper(_async_initiate_upload)

    async def _async_upload_chunk(self, final: bool = False, **kwargs: Any) -> bool | None:
        """Send what is buffered: as blocks, of which the last chunk makes the blob, or whole if there is but one.

        False leaves the buffer as it is: what is appended in a transaction is sent at its end.
        """
        if self.mode != "ab":
            await self._translated(self._send, self.buffer.getvalue(), final)
            return None
        if not self.autocommit:
            self._is_held_back = final
            return False
        await super()._async_upload_chunk(final, **kwargs)  # type: ignore[misc]  # adlfs's class comes after this one
        return None

    _upload_chunk = sync_wrapper(_async_upload_chunk)

    async def _translated(self, send: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Send, and raise what adlfs raises."""
        try:
            await send(*args)
        except (GaveUp, ResilientIOError):
            raise
        except ResourceExistsError as error:
            raise FileExistsError(self.path) from error
        except Exception as error:
            raise RuntimeError(f"Failed to upload block: {error}!") from error

    async def _send(self, data: bytes, final: bool) -> None:
        whole = final and self.autocommit and not self._block_list
        if whole and len(data) <= min(self.blocksize, _ONE_REQUEST_BYTES):
            self._made(await self._put_whole(data))
            return
        self._block_list.extend(await self._staged(data))
        if final and self.autocommit:
            self._made(await self._committed())
        else:
            self._is_held_back = final

    def _made(self, answer: Any) -> None:
        if self.fs.version_aware:
            self.version_id = answer.get("version_id")

    def _client(self) -> Any:
        return self.container_client.get_blob_client(blob=self.blob)

    async def _put_whole(self, data: bytes) -> Any:
        return await self._client().upload_blob(
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
        return await all_or_none(
            self._stage_block(data, start, end, name, slots)  # type: ignore[misc]  # a coroutine
            for start, end, name in blocks
        )

    async def _committed(self) -> Any:
        unless_exists = {"headers": {"If-None-Match": "*"}} if self.mode == "xb" else {}
        return await self._client().commit_block_list(
            block_list=[BlobBlock(name) for name in self._block_list],
            metadata=self.metadata,
            content_settings=self._content_settings,
            **unless_exists,
        )

    # -- the end -----------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make visible what a transaction held back."""
        if self._is_held_back:
            self._is_held_back = False
            sync(self.loop, self._commit)

    async def _commit(self) -> None:
        if self.mode == "ab":
            await super()._async_upload_chunk(True)  # type: ignore[misc]  # adlfs's class comes after this one
        else:
            await self._translated(self._publish)
        self.fs.invalidate_cache(self.fs._parent(self.path))

    async def _publish(self) -> None:
        self._made(await self._committed())

    def discard(self) -> None:
        """Forget what a transaction held back."""
        self._is_held_back = False

    def close(self) -> None:
        """Finish the file; after a write that failed it raises as that did. The client is the filesystem's."""
        self._end_inherited()
        AbstractBufferedFile.close(self)


__all__ = ["Writing"]
